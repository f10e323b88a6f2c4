// Sends requests to an engine, and gets whole answers with log probabilities, which tests compare
// bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"

namespace nereid::cpu::testing {

struct ScoredAnswer {
  llm::TokenIds ids;
  std::vector<float> log_probs;
  bool operator==(const ScoredAnswer&) const = default;
};

// [engine thread]
class ScoredAnswerSink : public llm::OutputSink {
 public:
  // With `cancel_after` > 0 the client leaves when it has so many tokens.
  ScoredAnswerSink(std::promise<ScoredAnswer> promise, int32_t cancel_after)
      : promise_(std::move(promise)), cancel_after_(cancel_after) {}

  bool IsCancelled() const override { return cancel_after_ > 0 && num_seen_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    num_seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone) return;
    promise_.set_value({{output.ids.begin(), output.ids.end()},
                        {output.log_probs.begin(), output.log_probs.end()}});
  }
  void OnError(const Status& status) override {
    ADD_FAILURE() << status.message();
    promise_.set_value({});
  }

 private:
  std::promise<ScoredAnswer> promise_;
  const int32_t cancel_after_;
  int32_t num_seen_ = 0;
};

inline std::future<ScoredAnswer> SendScored(llm::Engine& engine,
                                            std::unique_ptr<llm::GenerationRequest> request,
                                            int32_t cancel_after) {
  request->sampling.returns_log_probs = true;
  std::promise<ScoredAnswer> promise;
  std::future<ScoredAnswer> answer = promise.get_future();
  request->sink = std::make_unique<ScoredAnswerSink>(std::move(promise), cancel_after);
  const Status queued = engine.Enqueue(request);
  EXPECT_TRUE(queued.ok()) << queued.message();
  return answer;
}

}  // namespace nereid::cpu::testing
