// A trace of agents: conversations of several turns each, whose tools run between the turns while
// others have theirs. For benchmarks of the prefix cache.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"

namespace nereid::bench {

struct AgentTraceShape {
  int num_conversations = 20;
  int num_turns = 8;
  int num_at_once = 4;
  int num_system_tokens = 192;  // the same for all conversations
  int num_turn_tokens = 60;     // of the user or of a tool, about
  int num_output_tokens = 24;
  int vocab_size = 4096;

  int num_requests() const { return num_conversations * num_turns; }
};

struct AgentTraceTotals {
  int64_t num_prompt = 0;
  int64_t num_cached = 0;
  double first_token_seconds = 0.0;  // sum
  double seconds = 0.0;
  std::vector<llm::TokenIds> conversations;
  llm::SchedulerCounts counts;

  // KV cache for all conversations.
  int64_t num_needed(const AgentTraceShape& shape) const {
    int64_t needed = shape.num_system_tokens;
    for (const llm::TokenIds& tokens : conversations)
      needed += static_cast<int64_t>(tokens.size()) - shape.num_system_tokens;
    return needed;
  }
};

struct AgentTraceOutcome {
  llm::TokenIds ids;
  int32_t num_cached = 0;
  double first_token_seconds = 0.0;
};

class AgentTraceSink : public llm::OutputSink {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AgentTraceSink(std::promise<AgentTraceOutcome> promise) : promise_(std::move(promise)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    if (outcome_.first_token_seconds == 0.0) {
      outcome_.first_token_seconds = std::chrono::duration<double>(Clock::now() - sent_).count();
      outcome_.num_cached = output.num_cached_tokens;
    }
    if (output.finish == llm::FinishReason::kNone) return;
    outcome_.ids.assign(output.ids.begin(), output.ids.end());
    promise_.set_value(std::move(outcome_));
  }
  void OnError(const Status& status) override {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }

 private:
  const Clock::time_point sent_ = Clock::now();
  AgentTraceOutcome outcome_;
  std::promise<AgentTraceOutcome> promise_;
};

// Runs the trace; always the same one, as far as the answers are.
inline AgentTraceTotals RunAgentTrace(const AgentTraceShape& shape,
                                      std::unique_ptr<llm::Executor> executor) {
  llm::EngineOptions options;
  options.overlaps_steps = executor->features().overlap;
  options.scheduler.prefix_cache = true;
  llm::Engine engine(std::move(options), std::move(executor));
  std::mt19937 random(1);
  const auto token = [&] {
    return std::uniform_int_distribution<int32_t>(1, shape.vocab_size - 1)(random);
  };
  llm::TokenIds system(static_cast<size_t>(shape.num_system_tokens));
  std::generate(system.begin(), system.end(), token);
  AgentTraceTotals totals;
  totals.conversations.assign(static_cast<size_t>(shape.num_conversations), system);
  std::vector<size_t> order(totals.conversations.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto begin = AgentTraceSink::Clock::now();
  for (int turn = 0; turn < shape.num_turns; ++turn) {
    std::shuffle(order.begin(), order.end(), random);  // tools take different times
    for (int first = 0; first < shape.num_conversations; first += shape.num_at_once) {
      std::vector<std::future<AgentTraceOutcome>> outcomes;
      for (int i = first; i < first + shape.num_at_once; ++i) {
        llm::TokenIds& tokens = totals.conversations[order[i]];
        const int third = shape.num_turn_tokens / 3;
        const int added = 2 * third + static_cast<int>(random() % (2 * third + 1));
        for (int n = 0; n < added; ++n) tokens.push_back(token());
        auto request = std::make_unique<llm::GenerationRequest>();
        request->prompt = tokens;
        request->stop.max_tokens = shape.num_output_tokens;
        totals.num_prompt += static_cast<int64_t>(tokens.size());
        std::promise<AgentTraceOutcome> promise;
        outcomes.push_back(promise.get_future());
        request->sink = std::make_unique<AgentTraceSink>(std::move(promise));
        if (const Status queued = engine.Enqueue(request); !queued.ok()) {
          std::fprintf(stderr, "%s\n", queued.message().c_str());
          std::exit(1);
        }
      }
      for (int i = 0; i < shape.num_at_once; ++i) {
        const AgentTraceOutcome outcome = outcomes[i].get();
        llm::TokenIds& tokens = totals.conversations[order[first + i]];
        tokens.insert(tokens.end(), outcome.ids.begin(), outcome.ids.end());
        totals.num_cached += outcome.num_cached;
        totals.first_token_seconds += outcome.first_token_seconds;
      }
    }
  }
  totals.seconds = std::chrono::duration<double>(AgentTraceSink::Clock::now() - begin).count();
  totals.counts = engine.stats().counts;
  return totals;
}

inline void PrintAgentTraceHeader() {
  std::printf(
      "cache,tokens of the KV cache,prompt tokens,cached,of the reusable,fetched blocks,"
      "mean first token ms,seconds\n");
}

// `all`: of a KV cache for all conversations. Returns whether the answers are the same.
inline bool PrintAgentTrace(const char* name, int64_t cache_tokens, const AgentTraceShape& shape,
                            const AgentTraceTotals& totals, const AgentTraceTotals& all) {
  std::printf("%s,%ld,%ld,%ld,%.3f,%ld,%.1f,%.2f\n", name, long{cache_tokens},
              long{totals.num_prompt}, long{totals.num_cached},
              static_cast<double>(totals.num_cached) / static_cast<double>(all.num_cached),
              long{totals.counts.num_fetched_blocks},
              1000 * totals.first_token_seconds / shape.num_requests(), totals.seconds);
  std::fflush(stdout);
  return totals.conversations == all.conversations;
}

}  // namespace nereid::bench
