// Fixture of engines on the GPU that speculate, for tests that compare whole answers.
#pragma once

#include "tests/backends/gpu_llm/engine_fixture.h"
#include "tests/backends/llm_core/careless_drafter.h"

namespace nereid::gpu::testing {

struct FullAnswer {
  llm::TokenIds ids;
  std::vector<float> log_probs;
  std::vector<int32_t> top_ids;
  llm::FinishReason finish = llm::FinishReason::kNone;
  std::string error;
  bool operator==(const FullAnswer&) const = default;
};

class FullAnswerSink : public llm::OutputSink {
 public:
  FullAnswerSink(std::promise<FullAnswer> promise, int32_t cancel_after)
      : promise_(std::move(promise)), cancel_after_(cancel_after) {}
  bool IsCancelled() const override { return cancel_after_ > 0 && seen_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone) return;
    FullAnswer answer;
    answer.ids.assign(output.ids.begin(), output.ids.end());
    answer.log_probs.assign(output.log_probs.begin(), output.log_probs.end());
    for (const llm::SampledToken& token : output.top_tokens) answer.top_ids.push_back(token.id);
    answer.finish = output.finish;
    promise_.set_value(std::move(answer));
  }
  void OnError(const Status& status) override {
    FullAnswer answer;
    answer.error = status.message();
    promise_.set_value(std::move(answer));
  }

 private:
  std::promise<FullAnswer> promise_;
  const int32_t cancel_after_;
  int32_t seen_ = 0;
};

class GpuSpeculationTest : public GpuEngineTest {
 protected:
  void StartWith(std::shared_ptr<llm::Drafter> drafter, bool adapts_length = false) {
    std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    ASSERT_NE(executor, nullptr);
    StartOn(std::move(executor), std::move(drafter), adapts_length);
  }
  void StartOn(std::unique_ptr<GpuExecutor> executor, std::shared_ptr<llm::Drafter> drafter,
               bool adapts_length = false) {
    llm::EngineOptions options;
    options.scheduler = scheduler_;
    options.speculation.drafter = std::move(drafter);
    options.speculation.adapts_length = adapts_length;
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    engine_ = std::make_unique<llm::Engine>(std::move(options), std::move(executor));
  }
  std::future<FullAnswer> SendFull(const llm::GenerationRequest& work, int32_t cancel_after = 0) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt = work.prompt;
    request->sampling = work.sampling;
    request->stop = work.stop;
    request->grammar = work.grammar;
    request->speculates = work.speculates;
    std::promise<FullAnswer> promise;
    std::future<FullAnswer> answer = promise.get_future();
    request->sink = std::make_unique<FullAnswerSink>(std::move(promise), cancel_after);
    const Status queued = engine_->Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }
  // Requests of all kinds, many of which have a prefix in common.
  std::vector<std::unique_ptr<llm::GenerationRequest>> DrawWork(int count) {
    std::mt19937 random(29);
    std::vector<std::unique_ptr<llm::GenerationRequest>> work;
    for (int i = 0; i < count; ++i) {
      auto request = RandomRequest(random);
      if (i % 3 == 0) {
        for (size_t t = 0; t < std::min<size_t>(request->prompt.size(), 100); ++t)
          request->prompt[t] = static_cast<int32_t>(t);
      }
      llm::SamplingParams& sampling = request->sampling;
      sampling.returns_log_probs = true;
      if (i % 4 == 1) sampling.repetition_penalty = 1.2f;
      if (i % 5 == 2) sampling.num_top_log_probs = 3;
      if (i % 6 == 3) sampling.no_repeat_ngram_size = 3;
      if (i % 7 == 4) sampling.bad_words = {{5}, {11, 7}, {20, 21}};
      if (i % 8 == 5) sampling.logit_bias = {{3, 2.0f}, {40, -3.0f}};
      if (i % 9 == 6) sampling.allowed_ids = {1, 2, 3, 50, 51, 52, 90, 91};
      if (i % 4 == 3) request->stop.min_tokens = std::min(10, request->stop.max_tokens);
      work.push_back(std::move(request));
    }
    return work;
  }
  // Answers of one request at a time, and a drafter that knows them but errs.
  std::vector<FullAnswer> AnswerAlone(
      const std::vector<std::unique_ptr<llm::GenerationRequest>>& work) {
    StartWith(nullptr);
    std::vector<FullAnswer> answers;
    if (HasFatalFailure()) return answers;
    auto known = std::make_shared<std::vector<llm::TokenIds>>();
    for (const auto& request : work) {
      answers.push_back(SendFull(*request).get());
      llm::TokenIds& tokens = known->emplace_back(request->prompt);
      tokens.insert(tokens.end(), answers.back().ids.begin(), answers.back().ids.end());
    }
    EXPECT_EQ(engine_->stats().speculation.num_drafted, 0);
    engine_.reset();
    const auto next = [known](std::span<const int32_t> tokens) {
      for (const llm::TokenIds& all : *known) {
        if (all.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), all.begin()))
          return all[tokens.size()];
      }
      return 0;
    };
    drafter_ = std::make_shared<llm::testing::CarelessDrafter>(7, vocab_size_, 6, next);
    return answers;
  }

  std::shared_ptr<llm::Drafter> drafter_;
};

}  // namespace nereid::gpu::testing
