// What each step of an engine contained and how long it took.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"

namespace nereid::bench {

// Contents and duration of each step. Steps end in the order in which they are launched.
class StepTrace {
 public:
  struct Step {
    int32_t num_decode, num_prompt;
    double ms;
  };

  explicit StepTrace(const std::string& path)
      : file_(path.empty() ? nullptr : std::fopen(path.c_str(), "w")) {}
  ~StepTrace() {
    if (file_ != nullptr) std::fclose(file_);
  }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // [engine thread]
  void Note(const llm::EngineStats& stats) {
    const std::lock_guard lock(mutex_);
    const llm::SchedulerCounts& counts = stats.counts;
    if (counts.num_decode_sequences + counts.num_prefill_tokens > 0)
      launched_.push_back({counts.num_decode_sequences, counts.num_prefill_tokens, 0.0});
    if (stats.num_steps > num_steps_ && !launched_.empty()) {
      Step step = launched_.front();
      launched_.pop_front();
      step.ms = 1e3 * (stats.step_seconds - step_seconds_);
      ended_.push_back(step);
      if (file_ != nullptr)
        std::fprintf(file_, "%d %d %.3f\n", step.num_decode, step.num_prompt, step.ms);
    }
    num_steps_ = stats.num_steps;
    step_seconds_ = stats.step_seconds;
  }
  // Returns the steps since the last call.
  std::vector<Step> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  std::mutex mutex_;
  std::FILE* file_;
  std::deque<Step> launched_;
  std::vector<Step> ended_;
  int64_t num_steps_ = 0;
  double step_seconds_ = 0.0;
};

// Sums steps by their kind.
inline void PrintKinds(const std::vector<StepTrace::Step>& steps) {
  struct Sum {
    int64_t num_steps = 0, num_decode = 0, num_prompt = 0;
    double ms = 0.0;
  };
  int32_t most = 0;
  for (const auto& step : steps) most = std::max(most, step.num_decode);
  std::map<std::string, Sum> kinds;
  for (const auto& step : steps) {
    const char* kind = step.num_prompt > 0          ? "with prompts"
                       : step.num_decode == most    ? "decode, all"
                       : step.num_decode > most / 2 ? "decode, over half"
                                                    : "decode, up to half";
    Sum& sum = kinds[kind];
    ++sum.num_steps;
    sum.num_decode += step.num_decode;
    sum.num_prompt += step.num_prompt;
    sum.ms += step.ms;
  }
  for (const auto& [kind, sum] : kinds) {
    std::printf("  %-18s %4lld steps, %6.3f s, %7lld decoded, %7lld of prompts\n", kind.c_str(),
                static_cast<long long>(sum.num_steps), 1e-3 * sum.ms,
                static_cast<long long>(sum.num_decode), static_cast<long long>(sum.num_prompt));
  }
}

}  // namespace nereid::bench
