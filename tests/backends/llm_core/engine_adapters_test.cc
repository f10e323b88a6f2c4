// LoRA adapters that the executor cannot make ready: their requests end with the error, and the
// others get their answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>

#include "backends/llm_core/engine/engine.h"
#include "tests/backends/llm_core/sequential_model.h"

namespace nereid::llm {
namespace {

using testing::ContinueAlone;
using testing::FakeExecutor;
using ::testing::HasSubstr;

struct Ended {
  std::vector<TokenIds> ids;  // of each sequence
  int num_errors = 0;
  std::string error;
};

class EndSink : public OutputSink {
 public:
  EndSink(std::promise<Ended> promise, int32_t num_sequences)
      : promise_(std::move(promise)), num_left_(num_sequences) {
    ended_.ids.resize(static_cast<size_t>(num_sequences));
  }
  bool IsCancelled() const override { return false; }
  void OnOutput(const SequenceOutput& output) override {
    if (output.finish == FinishReason::kNone) return;
    ended_.ids[static_cast<size_t>(output.sequence_index)].assign(output.ids.begin(),
                                                                  output.ids.end());
    if (--num_left_ == 0) promise_.set_value(ended_);
  }
  void OnError(const Status& status) override {
    ended_.error = status.message();
    ++ended_.num_errors;
    promise_.set_value(ended_);
  }

 private:
  std::promise<Ended> promise_;
  Ended ended_;
  int32_t num_left_;
};

// The parameter: whether steps overlap.
class EngineAdaptersTest : public ::testing::TestWithParam<bool> {
 protected:
  using Adapter = std::shared_ptr<const LoraAdapter>;

  // `fails`: whether the executor cannot make the adapter ready now. [engine thread]
  void Start(std::function<bool(const LoraAdapter&)> fails, int32_t num_blocks = 64) {
    const ExecutorFeatures features{.adapters = true, .overlap = GetParam()};
    limits_.num_blocks = num_blocks;
    auto executor = std::make_unique<FakeExecutor>(limits_, features);
    executor->on_load_adapters = [this, fails](std::span<const Adapter> adapters) {
      std::vector<FailedAdapter> failed;
      failing_.clear();
      for (const Adapter& adapter : adapters) {
        if (!fails(*adapter)) continue;
        failed.push_back({adapter, InternalError("LoRA adapter '", adapter->name(), "' failed")});
        failing_.push_back(adapter);
      }
      return failed;
    };
    executor->on_submit = [this](const StepBatch& batch) {
      for (const Adapter& adapter : batch.adapters) {
        EXPECT_EQ(std::count(failing_.begin(), failing_.end(), adapter), 0) << adapter->name();
      }
      for (const BatchEntry& entry : batch.entries) {
        EXPECT_LT(entry.adapter, static_cast<int32_t>(batch.adapters.size()));
      }
      return Status();
    };
    EngineOptions options;
    options.scheduler.prefix_cache = true;
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    engine_ = std::make_unique<Engine>(std::move(options), std::move(executor));
  }
  std::future<Ended> Send(const TokenIds& prompt, int32_t count, Adapter adapter,
                          int32_t num_sequences = 1) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = prompt;
    request->stop.max_tokens = count;
    request->adapter = std::move(adapter);
    request->num_sequences = num_sequences;
    std::promise<Ended> promise;
    std::future<Ended> ended = promise.get_future();
    request->sink = std::make_unique<EndSink>(std::move(promise), num_sequences);
    const Status queued = engine_->Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return ended;
  }

  ExecutorLimits limits_ = {.vocab_size = 1000,
                            .max_positions = 256,
                            .max_num_sequences = 8,
                            .max_num_tokens = 32,
                            .block_size = 8,
                            .num_blocks = 64};
  std::vector<Adapter> failing_;  // in the newest call of LoadAdapters
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineAdaptersTest, OnlyRequestsOfAFailedAdapterFail) {
  const Adapter good = LoraBuilder("good", 1).Finish(), bad = LoraBuilder("bad", 1).Finish();
  std::atomic<bool> is_broken{true};
  Start([&](const LoraAdapter& adapter) { return adapter.name() == "bad" && is_broken; });
  std::vector<std::future<Ended>> fine, failed;
  for (int32_t i = 0; i < 3; ++i) {
    fine.push_back(Send({5, i}, 20, nullptr));
    failed.push_back(Send({6, i}, 20, bad, 1 + i));
    fine.push_back(Send({5, i}, 20, good));
  }
  for (auto& each : failed) {
    const Ended ended = each.get();
    EXPECT_EQ(ended.error, "LoRA adapter 'bad' failed");
    EXPECT_EQ(ended.num_errors, 1);
  }
  for (size_t i = 0; i < fine.size(); ++i) {
    EXPECT_EQ(fine[i].get().ids[0],
              ContinueAlone({5, static_cast<int32_t>(i / 2)}, 20, limits_, 0));
  }
  EXPECT_TRUE(engine_->health().ok());
  // Alone, so that nothing is left of its step.
  EXPECT_THAT(Send({7, 7}, 20, bad).get().error, HasSubstr("'bad'"));
  is_broken = false;
  EXPECT_EQ(Send({6, 1}, 20, bad).get().ids[0], ContinueAlone({6, 1}, 20, limits_, 0));
}

// In a small cache, where sequences are preempted, with prompts that have prefixes in common. A
// block that was not computed would change answers.
TEST_P(EngineAdaptersTest, FaultsAtRandomChangeNoAnswer) {
  std::mt19937 random(11), faults(5);
  Start([&](const LoraAdapter&) { return faults() % 16 == 0; }, 24);
  std::vector<Adapter> adapters = {nullptr};
  for (const char* name : {"a", "b", "c"}) adapters.push_back(LoraBuilder(name, 1).Finish());
  struct Sent {
    TokenIds prompt;
    int32_t count;
    Adapter adapter;
    std::future<Ended> ended;
  };
  int num_failed = 0, num_answered = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<Sent> sent;
    for (int i = 0; i < 12; ++i) {
      TokenIds prompt(random() % 40 + 1, 3);
      prompt.back() = static_cast<int32_t>(random() % 4);
      const auto count = static_cast<int32_t>(random() % 40 + 1);
      const Adapter& adapter = adapters[random() % adapters.size()];
      const int32_t num_sequences = random() % 4 == 0 ? 2 : 1;
      sent.push_back({prompt, count, adapter, Send(prompt, count, adapter, num_sequences)});
    }
    for (Sent& each : sent) {
      const Ended ended = each.ended.get();
      if (ended.num_errors > 0) {
        ASSERT_NE(each.adapter, nullptr) << ended.error;
        EXPECT_EQ(ended.error, StrCat("LoRA adapter '", each.adapter->name(), "' failed"));
        ++num_failed;
      } else {
        EXPECT_EQ(ended.ids[0], ContinueAlone(each.prompt, each.count, limits_, 0));
        ++num_answered;
      }
    }
  }
  EXPECT_TRUE(engine_->health().ok());
  EXPECT_GT(num_failed, 20);
  EXPECT_GT(num_answered, 60);
}

INSTANTIATE_TEST_SUITE_P(Steps, EngineAdaptersTest, ::testing::Bool());

}  // namespace
}  // namespace nereid::llm
