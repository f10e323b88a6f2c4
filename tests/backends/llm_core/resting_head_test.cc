// A head whose drafts do not pay costs an engine next to nothing, although it reads hidden states,
// which keeps steps from overlapping. Steps, drafting and the host take simulated times.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <iterator>
#include <random>
#include <thread>

#include "backends/llm_core/engine/engine.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm {
namespace {

constexpr int32_t kOutputToken = 7, kOtherToken = 8;

// An 8B model in bf16 on an H200, in ms: steps with short contexts, what a token of a context adds,
// what the host takes for a step and for each of its sequences, and what a draft of a head takes.
constexpr StepCostPoint kCosts[] = {{1, 3.7f},    {4, 3.97f},   {8, 4.2f},     {9, 4.6f},
                                    {32, 4.9f},   {64, 5.4f},   {128, 6.2f},   {192, 7.2f},
                                    {256, 8.1f},  {320, 10.0f}, {384, 11.3f},  {448, 13.2f},
                                    {512, 14.3f}, {576, 16.8f}, {8192, 210.0f}};
constexpr double kContextToken = 3.1e-5, kHost = 0.025, kHostOfSequence = 0.0009;
constexpr double kDraft = 0.2255, kDraftOfSequence = 0.001;

double CostOf(size_t num_tokens) {
  const auto wanted = static_cast<double>(num_tokens);
  const auto* next = std::find_if(std::begin(kCosts) + 1, std::end(kCosts) - 1,
                                  [&](const auto& point) { return point.num_tokens >= wanted; });
  const StepCostPoint &low = next[-1], &high = *next;
  return low.cost +
         (wanted - low.num_tokens) / (high.num_tokens - low.num_tokens) * (high.cost - low.cost);
}

// Advances when something takes time, which only the engine's thread says.
class SimulatedTime : public EngineClock {
 public:
  TimePoint Now() override { return now_.load(); }
  void WaitUntil(std::unique_lock<std::mutex>& /*lock*/, std::condition_variable& /*changed*/,
                 TimePoint until, const std::function<bool()>& /*is_over*/) override {
    Pass(until);
  }
  void Pass(TimePoint until) { now_ = std::max(now_.load(), until); }
  void Add(double ms) { now_ = now_.load() + Duration(ms); }
  static TimePoint::duration Duration(double ms) {
    return std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double, std::milli>(ms));
  }

 private:
  std::atomic<TimePoint> now_{TimePoint(std::chrono::seconds(1000))};
};

// The first step of a run, which has one request, waits until all others are queued. So what is in
// each step does not depend on how long the threads take.
std::atomic<bool> all_are_queued{true}, is_waiting{false};

// Samples kOutputToken. Steps run one after the other, each not before the host has submitted it.
class SimulatedGpu : public Executor {
 public:
  // `verifying`: how much longer than these costs a step with as many drafts as sequences takes, in
  // units of a step.
  SimulatedGpu(std::shared_ptr<SimulatedTime> time, double verifying)
      : time_(std::move(time)), verifying_(verifying) {}
  const ExecutorLimits& limits() const override { return kLimits; }
  ExecutorFeatures features() const override {
    ExecutorFeatures features;
    features.draft_tokens = features.hidden_states = features.overlap = true;
    return features;
  }
  TypicalCosts typical_step_costs() const override {
    return {kCosts, true, 0.9e-3 * kContextToken};
  }
  Status Submit(const StepBatch& batch) override {
    while (!all_are_queued) {
      is_waiting = true;
      std::this_thread::yield();
    }
    Step& step = steps_.emplace_back();
    double ms = CostOf(batch.token_ids.size());
    int32_t num_drafts = 0;
    for (const BatchEntry& entry : batch.entries) {
      ms += kContextToken * (entry.num_cached + entry.num_tokens);
      const auto drafts = DraftTokens(batch.token_ids, entry);
      const auto wrong = std::find(drafts.begin(), drafts.end(), kOtherToken);
      step.num_accepted.push_back(static_cast<size_t>(wrong - drafts.begin()));
      num_drafts += entry.num_draft_tokens;
      step.keeps_hidden_states |= entry.returns_hidden_states;
    }
    ms *= 1.0 + verifying_ * num_drafts / static_cast<double>(batch.entries.size());
    ms *= 0.99 + 0.02 * static_cast<double>(random_() % 1000) / 1000.0;
    time_->Add(0.6 * HostMs(batch.entries.size()));
    free_ = std::max(free_, time_->Now()) + SimulatedTime::Duration(ms);
    step.end = free_;
    return {};
  }
  Result<StepResult> Collect() override {
    const Step step = std::move(steps_.front());
    steps_.pop_front();
    time_->Pass(step.end);
    time_->Add(0.4 * HostMs(step.num_accepted.size()));
    StepResult result;
    result.keeps_hidden_states = step.keeps_hidden_states;
    result.tokens.assign(step.num_accepted.size(), {kOutputToken, 0.0f});
    for (const size_t count : step.num_accepted) {
      result.accepted.emplace_back(count, SampledToken{kOutputToken, 0.0f});
    }
    return result;
  }

 private:
  struct Step {
    std::vector<size_t> num_accepted;  // by entry
    EngineClock::TimePoint end;
    bool keeps_hidden_states = false;
  };
  static constexpr ExecutorLimits kLimits = {.vocab_size = 1000,
                                             .max_positions = 4096,
                                             .max_num_sequences = 576,
                                             .max_num_tokens = 8192,
                                             .max_num_sampled = 576,
                                             .block_size = 64,
                                             .num_blocks = 4096};
  static double HostMs(size_t num_sequences) {
    return kHost + kHostOfSequence * static_cast<double>(num_sequences);
  }
  const std::shared_ptr<SimulatedTime> time_;
  const double verifying_;
  std::mt19937 random_{3};
  std::deque<Step> steps_;
  EngineClock::TimePoint free_{};
};

// Proposes kOutputToken with the probability `rate`.
class SimulatedHead : public Drafter {
 public:
  SimulatedHead(std::shared_ptr<SimulatedTime> time, double rate)
      : time_(std::move(time)), is_right_(rate) {}
  std::string_view name() const override { return "head"; }
  bool is_costly() const override { return true; }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<DrafterState>& owned, int32_t first_position,
               const HiddenRows& rows) override {
    if (owned == nullptr) owned = std::make_unique<State>();
    State& state = static_cast<State&>(*owned);
    if (first_position != state.end) state.num_kept = 0;
    state.num_kept += rows.num_rows;
    state.end = first_position + rows.num_rows;
  }
  void Propose(std::span<DraftQuery> queries) override {
    int32_t longest = 0, num_chains = 0, num_rows = 0;
    for (DraftQuery& query : queries) {
      if (*query.state == nullptr) continue;
      State& state = static_cast<State&>(**query.state);
      if (state.end != static_cast<int32_t>(query.tokens.size()) - 1) continue;
      if (state.num_kept > kMostUnseenOfStep) query.num_caught_up = state.num_kept;
      num_rows += std::exchange(state.num_kept, 0);
      ++num_chains;
      longest = std::max(longest, query.max_drafts);
      for (int32_t i = 0; i < query.max_drafts; ++i)
        query.drafts->push_back(is_right_(random_) ? kOutputToken : kOtherToken);
    }
    if (num_chains == 0) return;
    time_->Add(longest * (kDraft + kDraftOfSequence * num_chains) + 0.0006 * num_rows);
  }

 private:
  struct State : DrafterState {
    int32_t end = 0, num_kept = 0;
  };
  const std::shared_ptr<SimulatedTime> time_;
  std::bernoulli_distribution is_right_;
  std::mt19937 random_{5};
};

class Sink : public OutputSink {
 public:
  explicit Sink(std::promise<void> done) : done_(std::move(done)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const SequenceOutput& output) override {
    if (output.finish != FinishReason::kNone) done_.set_value();
  }
  void OnError(const Status& status) override { ADD_FAILURE() << status.message(); }

 private:
  std::promise<void> done_;
};

// An engine, and runs of requests that are all queued at once.
class Server {
 public:
  // A negative `rate`: there is no head.
  explicit Server(double rate, double verifying = 0.0) {
    EngineOptions options;
    options.clock = time_;
    if (rate >= 0.0) options.speculation.drafter = std::make_shared<SimulatedHead>(time_, rate);
    engine_ = std::make_unique<Engine>(std::move(options),
                                       std::make_unique<SimulatedGpu>(time_, verifying));
  }
  // Returns tokens a second.
  double Run(int32_t num_requests) {
    constexpr int32_t kNumOutput = 384;
    std::vector<std::future<void>> ends;
    const auto began = time_->Now();
    all_are_queued = is_waiting = false;
    ends.push_back(Enqueue(/*num_output=*/1));
    while (!is_waiting) std::this_thread::yield();
    for (int32_t i = 0; i < num_requests; ++i) ends.push_back(Enqueue(kNumOutput));
    all_are_queued = true;
    for (std::future<void>& end : ends) end.wait();
    return num_requests * kNumOutput / std::chrono::duration<double>(time_->Now() - began).count();
  }

 private:
  std::future<void> Enqueue(int32_t num_output) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt.assign(64, 1 + num_queued_++ % 256);
    request->stop.max_tokens = num_output;
    std::promise<void> done;
    std::future<void> end = done.get_future();
    request->sink = std::make_unique<Sink>(std::move(done));
    EXPECT_TRUE(engine_->Enqueue(request).ok());
    return end;
  }

  const std::shared_ptr<SimulatedTime> time_ = std::make_shared<SimulatedTime>();
  std::unique_ptr<Engine> engine_;
  int32_t num_queued_ = 0;
};

TEST(RestingHeadTest, ABatchIsNotSlowerThanWithoutAHead) {
  for (const int32_t num_requests : {1, 8, 64, 128, 256}) {
    if (kHasSanitizer && num_requests > 8) continue;  // slow, and nothing new to find
    const double plain = Server(-1.0).Run(num_requests);
    for (const double rate : {0.0, 0.5, 0.787}) {
      for (const double verifying : {0.0, 0.2}) {
        Server server(rate, verifying);
        EXPECT_GE(server.Run(num_requests), 0.97 * plain) << num_requests << " " << rate;
        for (int round = 0; round < 3; ++round) {
          EXPECT_GE(server.Run(num_requests), 0.975 * plain) << num_requests << " " << rate;
        }
      }
    }
  }
}

// So that the test above is not met by a head that always rests.
TEST(RestingHeadTest, AHeadDraftsWhereItPays) {
  for (const auto& [num_requests, gain] :
       {std::pair(1, 2.1), std::pair(8, 1.8), std::pair(64, 1.4), std::pair(128, 1.1)}) {
    if (kHasSanitizer && num_requests > 8) continue;
    Server server(0.787);
    server.Run(num_requests);
    EXPECT_GE(server.Run(num_requests), gain * Server(-1.0).Run(num_requests)) << num_requests;
  }
}

}  // namespace
}  // namespace nereid::llm
