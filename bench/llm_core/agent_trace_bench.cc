// What the tiers of the prefix cache bring to agents: 20 conversations of 8 turns each, whose tools
// run between the turns while others have theirs. The same trace with a KV cache for all
// conversations, with one for a third of them, and with that one and host memory or a file behind
// it. Checks that the answers are the same. Prints CSV.
//
//   agent_trace_bench [CHECKPOINT]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNumConversations = 20;
constexpr int kNumTurns = 8;
constexpr int kNumAtOnce = 4;
constexpr int kNumSystemTokens = 192;  // the same for all conversations
constexpr int kNumTurnTokens = 60;     // of the user or of a tool, about
constexpr int kNumOutputTokens = 24;
constexpr int kVocabSize = 4096;

struct Outcome {
  llm::TokenIds ids;
  int32_t num_cached = 0;
  double first_token_seconds = 0.0;
};

class Sink : public llm::OutputSink {
 public:
  explicit Sink(std::promise<Outcome> promise) : promise_(std::move(promise)) {}
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
  Outcome outcome_;
  std::promise<Outcome> promise_;
};

struct Totals {
  int64_t num_prompt = 0;
  int64_t num_cached = 0;
  double first_token_seconds = 0.0;  // sum
  double seconds = 0.0;
  std::vector<llm::TokenIds> conversations;
  llm::SchedulerCounts counts;
};

Totals RunTrace(const std::string& directory, int64_t cache_tokens,
                const llm::KvTierOptions& tiers) {
  auto checkpoint =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
  auto model = llm::ReadDecoder(*checkpoint, true);
  cpu::CpuExecutorOptions options;
  options.num_threads = 1;
  options.max_num_sequences = kNumAtOnce;
  options.max_cache_tokens = cache_tokens;
  options.tiers = tiers;
  auto executor = cpu::CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  if (!executor.ok()) {
    std::fprintf(stderr, "%s\n", executor.status().message().c_str());
    std::exit(1);
  }
  llm::EngineOptions engine_options;
  engine_options.scheduler.prefix_cache = true;
  llm::Engine engine(std::move(engine_options), std::move(*executor));

  std::mt19937 random(1);
  const auto token = [&] {
    return std::uniform_int_distribution<int32_t>(1, kVocabSize - 1)(random);
  };
  llm::TokenIds system(kNumSystemTokens);
  std::generate(system.begin(), system.end(), token);
  Totals totals;
  totals.conversations.assign(kNumConversations, system);
  std::vector<int> order(kNumConversations);
  std::iota(order.begin(), order.end(), 0);
  const auto begin = Clock::now();
  for (int turn = 0; turn < kNumTurns; ++turn) {
    std::shuffle(order.begin(), order.end(), random);  // tools take different times
    for (int first = 0; first < kNumConversations; first += kNumAtOnce) {
      std::vector<std::future<Outcome>> outcomes;
      for (int i = first; i < first + kNumAtOnce; ++i) {
        llm::TokenIds& tokens = totals.conversations[order[i]];
        const int added = kNumTurnTokens - 20 + static_cast<int>(random() % 41);
        for (int n = 0; n < added; ++n) tokens.push_back(token());
        auto request = std::make_unique<llm::GenerationRequest>();
        request->prompt = tokens;
        request->stop.max_tokens = kNumOutputTokens;
        totals.num_prompt += static_cast<int64_t>(tokens.size());
        std::promise<Outcome> promise;
        outcomes.push_back(promise.get_future());
        request->sink = std::make_unique<Sink>(std::move(promise));
        if (const Status queued = engine.Enqueue(request); !queued.ok()) {
          std::fprintf(stderr, "%s\n", queued.message().c_str());
          std::exit(1);
        }
      }
      for (int i = 0; i < kNumAtOnce; ++i) {
        const Outcome outcome = outcomes[i].get();
        llm::TokenIds& tokens = totals.conversations[order[first + i]];
        tokens.insert(tokens.end(), outcome.ids.begin(), outcome.ids.end());
        totals.num_cached += outcome.num_cached;
        totals.first_token_seconds += outcome.first_token_seconds;
      }
    }
  }
  totals.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  totals.counts = engine.stats().counts;
  return totals;
}

void Run(const std::string& directory) {
  const Totals all = RunTrace(directory, 40000, {});
  int64_t needed = kNumSystemTokens;
  for (const llm::TokenIds& tokens : all.conversations)
    needed += static_cast<int64_t>(tokens.size()) - kNumSystemTokens;
  std::printf(
      "cache,tokens of the KV cache,prompt tokens,cached,of the reusable,fetched blocks,"
      "mean first token ms,seconds\n");
  const auto print = [&](const char* name, int64_t cache_tokens, const Totals& totals) {
    std::printf("%s,%ld,%ld,%ld,%.3f,%ld,%.1f,%.1f\n", name, long{cache_tokens},
                long{totals.num_prompt}, long{totals.num_cached},
                static_cast<double>(totals.num_cached) / static_cast<double>(all.num_cached),
                long{totals.counts.num_fetched_blocks},
                1000 * totals.first_token_seconds / (kNumConversations * kNumTurns),
                totals.seconds);
    std::fflush(stdout);
    if (totals.conversations == all.conversations) return;
    std::fprintf(stderr, "%s: the answers differ\n", name);
    std::exit(1);
  };
  print("all conversations", 40000, all);
  const int64_t third = needed / 3;
  print("a third", third, RunTrace(directory, third, {}));
  llm::KvTierOptions host;
  host.host_bytes = int64_t{1} << 30;
  print("a third and host memory", third, RunTrace(directory, third, host));
  llm::KvTierOptions file;
  file.file_path = (std::filesystem::temp_directory_path() / "agent_trace_blocks").string();
  file.file_bytes = int64_t{1} << 30;
  file.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  std::filesystem::remove(file.file_path);
  print("a third and a file", third, RunTrace(directory, third, file));
  std::filesystem::remove(file.file_path);
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Run(argc > 1 ? argv[1] : "demo/model");
}
