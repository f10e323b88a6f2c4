#include "backends/bls/token_accumulator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid::bls {
namespace {

using ensemble::Binding;
using ensemble::Graph;
using ensemble::Plan;
using ensemble::Step;
using ensemble::StepCall;
using ensemble::StepEvents;
using ensemble::StepModels;
using ensemble::StepRequest;
using ensemble::Tensor;
using ensemble::TensorRef;
using Ids = std::vector<int32_t>;

struct IdsTensor : Tensor {
  Ids ids;
};

TensorRef MakeIds(Ids ids, std::initializer_list<int64_t> shape) {
  auto tensor = std::make_shared<IdsTensor>();
  tensor->ids = std::move(ids);
  tensor->data_type = TRITONSERVER_TYPE_INT32;
  tensor->shape.assign({shape.begin(), shape.size()});
  tensor->segments.push_back(
      {.base = tensor->ids.data(), .byte_size = tensor->ids.size() * sizeof(int32_t)});
  return tensor;
}

Ids IdsOf(const TensorRef& tensor) {
  Ids ids(tensor->byte_size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), tensor->segments.front().base, tensor->byte_size());
  return ids;
}

// Keeps the events that it was started with.
class FakeModels : public StepModels {
 public:
  Result<std::shared_ptr<StepCall>> Start(const StepRequest&,
                                          std::shared_ptr<StepEvents> given) override {
    events = std::move(given);
    return std::shared_ptr<StepCall>();
  }
  std::shared_ptr<StepEvents> events;
};

// Keeps the outputs of the last response.
struct LastResponse : StepEvents {
  void OnResponse(std::span<const TensorRef> outputs, bool) override {
    last.assign(outputs.begin(), outputs.end());
  }
  void OnError(Status error, bool) override { text = error.message(); }
  void OnFinal() override { text = "final"; }
  void OnReleased() override {}

  std::vector<TensorRef> last;
  std::string text;
};

class TokenAccumulatorTest : public testing::Test {
 protected:
  TokenAccumulatorTest() {
    auto graph = std::make_shared<Graph>();
    Step engine;
    for (const char* name : {"output_ids", "sequence_length", "prior_ids", "sequence_index"}) {
      engine.outputs.push_back({.name = name});
    }
    graph->steps = {Step(), engine};
    plan_.graph = graph;
  }

  // Starts the step and returns the events that the models see.
  StepEvents& Start(int step) {
    TokenAccumulator accumulator(models_, plan_, /*engine_step=*/1);
    EXPECT_TRUE(accumulator.Start({.step = step, .inputs = {}}, response_).ok());
    return *models_.events;
  }
  static void Respond(StepEvents& events, Ids ids, int32_t sequence) {
    const auto size = static_cast<int64_t>(ids.size());
    const std::vector<TensorRef> outputs = {MakeIds(ids, {1, 1, size}),
                                            MakeIds({static_cast<int32_t>(size)}, {1, 1}),
                                            MakeIds({8, 9}, {1, 2}), MakeIds({sequence}, {1, 1})};
    events.OnResponse(outputs, false);
  }

  FakeModels models_;
  Plan plan_;
  std::shared_ptr<LastResponse> response_ = std::make_shared<LastResponse>();
};

TEST_F(TokenAccumulatorTest, PassesOnAllTokensOfEachSequenceSoFar) {
  StepEvents& events = Start(1);
  Respond(events, {1, 2}, 0);
  Respond(events, {7}, 1);
  Respond(events, {3}, 0);
  EXPECT_EQ(IdsOf(response_->last[0]), (Ids{1, 2, 3}));
  EXPECT_EQ(response_->last[0]->shape[2], 3);
  EXPECT_EQ(IdsOf(response_->last[1]), Ids{3});
  EXPECT_EQ(IdsOf(response_->last[2]), Ids{}) << "nothing precedes the tokens";
  Respond(events, {}, 1);
  EXPECT_EQ(IdsOf(response_->last[0]), Ids{7});
}

TEST_F(TokenAccumulatorTest, LeavesSeveralBeamsAndOtherStepsAlone) {
  StepEvents& engine = Start(1);
  const std::vector<TensorRef> beams = {MakeIds({1, 2, 3, 4}, {1, 2, 2}), MakeIds({2, 2}, {1, 2}),
                                        nullptr, nullptr};
  engine.OnResponse(beams, false);
  engine.OnResponse(beams, false);
  EXPECT_EQ(IdsOf(response_->last[0]), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(&Start(0), response_.get());
}

TEST_F(TokenAccumulatorTest, PassesOnErrorsAndTheEnd) {
  StepEvents& events = Start(1);
  events.OnFinal();
  EXPECT_EQ(response_->text, "final");
  events.OnError(InternalError("broken"), true);
  EXPECT_EQ(response_->text, "broken");
}

}  // namespace
}  // namespace nereid::bls
