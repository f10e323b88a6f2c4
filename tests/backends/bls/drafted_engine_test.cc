#include "backends/bls/drafted_engine.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/bls/chain.h"
#include "backends/bls/drafted_text.h"
#include "backends/bls/int_tensor.h"

namespace nereid::bls {
namespace {

using ensemble::Graph;
using ensemble::Plan;
using ensemble::Step;
using ensemble::StepCall;
using ensemble::StepEvents;
using ensemble::StepModels;
using ensemble::StepRequest;
using ensemble::TensorRef;

const std::vector<std::string> kInputs = {"input_ids",  "input_lengths",   "request_output_len",
                                          "streaming",  "stop_words_list", "min_length",
                                          "beam_width", "draft_input_ids"};
const std::vector<std::string> kOutputs = {"output_ids", "sequence_length", "cum_log_probs",
                                           "output_log_probs", "generation_logits"};

TensorRef Ints(const TokenIds& elements, std::initializer_list<int64_t> shape) {
  return MakeIntTensor(elements, ShapeOf(shape));
}

Graph MakeGraph(const std::string& engine, size_t num_inputs) {
  Graph graph;
  graph.steps.resize(kNumChainSteps);
  Step& step = graph.steps[kEngine];
  step.model_name = engine;
  for (size_t i = 0; i < num_inputs; ++i) step.inputs.push_back({.name = kInputs[i]});
  for (const std::string& output : kOutputs) {
    step.outputs.push_back({.name = output, .tensor = static_cast<int>(graph.tensors.size())});
    graph.tensors.push_back({.name = output});
  }
  return graph;
}

// The token that a model generates after these. -1 ends the output.
using Rule = std::function<int32_t(std::span<const int32_t>)>;

int32_t TargetRule(std::span<const int32_t> ids) {
  return static_cast<int32_t>((ids.back() * 7 + ids.size() * 3) % 50);
}
int32_t PoorRule(std::span<const int32_t> ids) {
  return ids.size() % 3 == 0 ? 99 : TargetRule(ids);
}

struct Call {
  TokenIds prompt, drafts;
  int32_t num_tokens = 0, min_length = -1;
};

// Generates tokens by a rule, at once.
class RuleModel : public StepModels {
 public:
  explicit RuleModel(Rule rule) : rule_(std::move(rule)) {}

  Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                          std::shared_ptr<StepEvents> events) override {
    const auto ints = [&](size_t i) {
      return i < request.inputs.size() && request.inputs[i] != nullptr
                 ? ElementsOf<int32_t>(*request.inputs[i])
                 : TokenIds();
    };
    Call call{ints(0), ints(7), ints(2)[0], -1};
    if (!ints(5).empty()) call.min_length = ints(5)[0];
    EXPECT_EQ(ints(1)[0], static_cast<int32_t>(call.prompt.size()));
    TokenIds ids = call.prompt, generated;
    calls.push_back(call);
    if (fails_at > 0 && static_cast<int>(calls.size()) == fails_at) {
      events->OnError(InternalError("out of memory"), true);
      events->OnReleased();
      return std::shared_ptr<StepCall>(std::make_shared<NoCall>());
    }
    for (int32_t i = 0; i < call.num_tokens; ++i) {
      const int32_t next = rule_(ids);
      if (next < 0) break;
      ids.push_back(next);
      generated.push_back(next);
    }
    std::vector<float> log_probs;
    for (const int32_t id : generated) log_probs.push_back(-static_cast<float>(id));
    const char* bytes = reinterpret_cast<const char*>(log_probs.data());
    const auto size = static_cast<int64_t>(generated.size());
    const auto length = static_cast<int32_t>(size);
    const float sum = -1;
    const std::vector<TensorRef> outputs = {
        Ints(generated, {1, 1, size}), Ints({length}, {1, 1}),
        MakeTensor(TRITONSERVER_TYPE_FP32, ShapeOf({1, 1}),
                   {reinterpret_cast<const char*>(&sum), reinterpret_cast<const char*>(&sum + 1)}),
        MakeTensor(TRITONSERVER_TYPE_FP32, ShapeOf({1, 1, size}),
                   {bytes, bytes + log_probs.size() * sizeof(float)}),
        Logits(size)};
    events->OnResponse(outputs, false);
    events->OnFinal();
    events->OnReleased();
    return std::shared_ptr<StepCall>(std::make_shared<NoCall>());
  }

  std::vector<Call> calls;
  int fails_at = 0;
  bool has_logits = true;  // false: one zero in their place

 private:
  // Two logits for each token.
  TensorRef Logits(int64_t num_tokens) const {
    const int64_t width = has_logits ? 2 : 1, rows = has_logits ? num_tokens : 1;
    return MakeTensor(TRITONSERVER_TYPE_FP32, ShapeOf({1, 1, rows, width}),
                      std::vector<char>(static_cast<size_t>(rows * width) * sizeof(float)));
  }
  struct NoCall : StepCall {
    void Cancel() override {}
  };
  const Rule rule_;
};

// Keeps the events of its call, and counts cancellations.
struct HeldModel : StepModels {
  struct Held : StepCall {
    explicit Held(HeldModel& owner) : model(owner) {}
    void Cancel() override { ++model.num_cancelled; }
    HeldModel& model;
  };
  Result<std::shared_ptr<StepCall>> Start(const StepRequest&,
                                          std::shared_ptr<StepEvents> given) override {
    events = std::move(given);
    return std::shared_ptr<StepCall>(std::make_shared<Held>(*this));
  }
  std::shared_ptr<StepEvents> events;
  int num_cancelled = 0;
};

struct Answer : StepEvents {
  void OnResponse(std::span<const TensorRef> outputs, bool is_final) override {
    EXPECT_TRUE(is_final);
    ++num_ends;
    all.assign(outputs.begin(), outputs.end());
  }
  void OnError(Status error, bool is_final) override {
    EXPECT_TRUE(is_final);
    ++num_ends;
    text = error.message();
  }
  void OnFinal() override { ADD_FAILURE(); }
  void OnReleased() override { ++num_releases; }

  std::vector<TensorRef> all;
  std::string text;
  int num_ends = 0, num_releases = 0;
};

class DraftedEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    const Graph target = MakeGraph("target", 7), draft = MakeGraph("draft", 7);
    auto made = MakeDraftingModels(target, true, draft, true);
    ASSERT_TRUE(made.ok()) << made.status().message();
    models_ = *made;
  }

  Status Ask(int32_t num_draft_tokens, std::map<std::string, TensorRef> more = {}) {
    return StartWith(draft_, num_draft_tokens, std::move(more)).status();
  }

  Result<std::shared_ptr<StepCall>> StartWith(StepModels& draft, int32_t num_draft_tokens,
                                              std::map<std::string, TensorRef> more = {}) {
    std::map<std::string, TensorRef> values = {{"input_ids", Ints(prompt_, {1, 2})},
                                               {"input_lengths", Ints({2}, {1, 1})},
                                               {"request_output_len", Ints({20}, {1, 1})}};
    for (auto& [name, tensor] : more) values[name] = tensor;
    std::vector<TensorRef> inputs;
    for (size_t i = 0; i < 7; ++i) inputs.push_back(values[kInputs[i]]);
    DraftedEngine engine(*models_, num_draft_tokens, others_, target_, draft);
    return engine.Start({kEngine, inputs}, answer_);
  }

  TokenIds Plain(int32_t length) const {
    TokenIds ids = prompt_, output;
    while (static_cast<int32_t>(output.size()) < length) {
      output.push_back(TargetRule(ids));
      ids.push_back(output.back());
    }
    return output;
  }

  const TokenIds prompt_ = {3, 5};
  std::shared_ptr<const DraftingModels> models_;
  RuleModel others_{TargetRule}, target_{TargetRule}, draft_{PoorRule};
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
};

TEST_F(DraftedEngineTest, TheTextIsThatOfTheTargetAlone) {
  ASSERT_TRUE(Ask(4).ok());
  EXPECT_EQ(ElementsOf<int32_t>(*answer_->all[0]), Plain(20));
  EXPECT_EQ(ElementsOf<int32_t>(*answer_->all[1]), TokenIds{20});
  EXPECT_EQ(target_.calls.size(), 4u);
  EXPECT_EQ(draft_.calls.size(), 4u);
  EXPECT_EQ(target_.calls[0].drafts.size(), 4u);
  EXPECT_EQ(target_.calls[1].prompt.size(), 7u);
  EXPECT_EQ(answer_->num_ends, 1);
  EXPECT_EQ(answer_->num_releases, 1);
}

TEST_F(DraftedEngineTest, LogProbabilitiesAreThoseOfAllTokens) {
  ASSERT_TRUE(Ask(4).ok());
  std::vector<float> expected;
  float sum = 0;
  for (const int32_t id : Plain(20)) sum += expected.emplace_back(-static_cast<float>(id));
  EXPECT_EQ(ElementsOf<float>(*answer_->all[3]), expected);
  EXPECT_EQ(answer_->all[3]->shape, ShapeOf({1, 1, 20}));
  EXPECT_EQ(ElementsOf<float>(*answer_->all[2]), std::vector<float>{sum});
}

TEST_F(DraftedEngineTest, LogitsAreThoseOfAllTokensUnlessOneZeroStandsForThem) {
  ASSERT_TRUE(Ask(4).ok());
  EXPECT_EQ(answer_->all[4]->shape, ShapeOf({1, 1, 20, 2}));
  EXPECT_EQ(answer_->all[4]->byte_size(), 40 * sizeof(float));
  target_.has_logits = false;
  ASSERT_TRUE(Ask(4).ok());
  EXPECT_EQ(answer_->all[4]->shape, ShapeOf({1, 1, 1, 1}));
  EXPECT_EQ(answer_->all[4]->byte_size(), sizeof(float));
}

TEST_F(DraftedEngineTest, StopWordsMayBeginInTheCallBefore) {
  ASSERT_TRUE(Ask(4, {{"stop_words_list", Ints({8, 9, 2, -1}, {1, 2, 2})}}).ok());
  EXPECT_EQ(ElementsOf<int32_t>(*answer_->all[0]), Plain(20));
  // Two ids make an overlap of up to eight tokens.
  EXPECT_EQ(target_.calls[1].prompt.size(), 2u);
  EXPECT_EQ(target_.calls[1].drafts.size(), 9u);
}

TEST_F(DraftedEngineTest, TheMinimumLengthCountsTheWholeOutput) {
  ASSERT_TRUE(Ask(4, {{"min_length", Ints({7}, {1, 1})}}).ok());
  EXPECT_EQ(target_.calls[0].min_length, 7);
  EXPECT_EQ(target_.calls[1].min_length, 2);
  EXPECT_EQ(target_.calls[2].min_length, 0);
}

TEST_F(DraftedEngineTest, WhatOneTextCannotHaveIsRefused) {
  EXPECT_NE(Ask(4, {{"streaming", Ints({1}, {1, 1})}}).message().find("'stream'"),
            std::string::npos);
  EXPECT_NE(Ask(4, {{"beam_width", Ints({3}, {1, 1})}}).message().find("'beam_width' is 3"),
            std::string::npos);
  EXPECT_NE(Ask(4, {{"input_lengths", Ints({2, 2}, {2, 1})}}).message().find("got 2"),
            std::string::npos);
  EXPECT_NE(Ask(4, {{"request_output_len", Ints({0}, {1, 1})}}).message().find("got 0"),
            std::string::npos);
  EXPECT_TRUE(target_.calls.empty());
  EXPECT_EQ(answer_->num_ends + answer_->num_releases, 0);
}

TEST_F(DraftedEngineTest, AnErrorOfALaterCallEndsTheRequest) {
  target_.fails_at = 2;
  ASSERT_TRUE(Ask(4).ok());
  EXPECT_EQ(answer_->text, "out of memory");
  EXPECT_EQ(answer_->num_ends, 1);
  EXPECT_EQ(answer_->num_releases, 1);
}

TEST_F(DraftedEngineTest, CancellationReachesTheRunningCallAndStartsNoOther) {
  HeldModel held;
  const auto call = StartWith(held, 4);
  ASSERT_TRUE(call.ok());
  (*call)->Cancel();
  EXPECT_EQ(held.num_cancelled, 1);
  const std::vector<TensorRef> outputs = {Ints({7}, {1, 1, 1}), Ints({1}, {1, 1}), nullptr, nullptr,
                                          nullptr};
  held.events->OnResponse(outputs, true);
  held.events->OnReleased();
  EXPECT_TRUE(target_.calls.empty());
  EXPECT_EQ(answer_->text, "the request was cancelled");
  EXPECT_EQ(answer_->num_ends, 1);
  EXPECT_EQ(answer_->num_releases, 1);
}

TEST_F(DraftedEngineTest, CallsAskForTheTokensAndForWhatTheRequestNeeds) {
  Plan plan;
  plan.graph = std::make_shared<const Graph>(MakeGraph("target", 7));
  plan.slot_of_tensor = {-1, -1, 0, -1, -1};  // cum_log_probs
  const auto target = TargetPlan(*models_, plan);
  for (int tensor = 0; tensor < 4; ++tensor) EXPECT_TRUE(target->needs_tensor(tensor)) << tensor;
  const auto draft = DraftPlan(*models_);
  EXPECT_TRUE(draft->needs_tensor(0) && draft->needs_tensor(1));
  EXPECT_FALSE(draft->needs_tensor(2) || draft->needs_tensor(3));
}

TEST_F(DraftedEngineTest, AModelWithoutTheTensorsIsNamed) {
  const auto made = MakeDraftingModels(MakeGraph("target", 7), true, MakeGraph("draft", 2), true);
  EXPECT_NE(made.status().message().find("'draft' has no input 'request_output_len'"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::bls
