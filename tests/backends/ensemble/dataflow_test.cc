#include "backends/ensemble/dataflow.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/backends/ensemble/ensemble_fixture.h"

namespace nereid::ensemble {
namespace {

using Values = std::vector<int64_t>;

// Drives a Dataflow and records the actions that it returns.
class Flow {
 public:
  explicit Flow(const Sketch& sketch, std::vector<std::string> outputs = {})
      : plan_(Build(sketch).MakePlanFor(std::move(outputs))), flow_(plan_) {}

  void Begin(const TensorRefs& inputs) {
    DataflowActions actions;
    flow_.Begin(inputs, actions);
    Record(actions);
  }
  // The `nth` execution of `step` responds; with `is_final` it also ends.
  void Respond(int step, size_t nth, const TensorRefs& outputs, bool is_final = true) {
    DataflowActions actions;
    StepExecution& execution = runs_.at(step).at(nth).execution;
    flow_.OnResponse(execution, outputs, actions);
    if (is_final) flow_.OnEnd(execution, actions);
    Record(actions);
  }
  void End(int step, size_t nth) {
    DataflowActions actions;
    flow_.OnEnd(runs_.at(step).at(nth).execution, actions);
    Record(actions);
  }
  void Fail(int step, size_t nth, Status error) {
    DataflowActions actions;
    flow_.OnError(runs_.at(step).at(nth).execution, std::move(error), actions);
    Record(actions);
  }
  void Abort() { flow_.Abort(); }

  size_t NumRuns(int step) const {
    const auto it = runs_.find(step);
    return it == runs_.end() ? 0 : it->second.size();
  }
  Values Inputs(int step, size_t nth) const { return ValuesOf(runs_.at(step).at(nth).inputs); }

  std::vector<Values> emitted;
  int num_finished = 0;
  Status error;

 private:
  void Record(DataflowActions& actions) {
    for (StepLaunch& launch : actions.launches) {
      runs_[launch.execution.step].push_back(std::move(launch));
    }
    for (const EnsembleResponse& response : actions.responses)
      emitted.push_back(ValuesOf(response.outputs));
    if (actions.finished) ++num_finished;
    if (!actions.error.ok()) error = actions.error;
  }

  Plan plan_;
  Dataflow flow_;
  std::map<int, std::vector<StepLaunch>> runs_;
};

const Sketch kChainOfTwoOutputs{{"A"}, {"C", "B"}, kChain.steps};
// split -> for each part: work -> result. HEAD is made before the split and joined after it.
const Sketch kStream{{"A"},
                     {"R"},
                     {{"head", {{"IN", "A"}}, {{"OUT", "HEAD"}}},
                      {"split*", {{"IN", "HEAD"}}, {{"OUT", "PART"}}},
                      {"work", {{"PART", "PART"}, {"HEAD", "HEAD"}}, {{"OUT", "R"}}}}};

TEST(DataflowTest, RunsAStepWhenItsInputsExist) {
  Flow flow(kChainOfTwoOutputs);
  flow.Begin({Value(1)});
  EXPECT_EQ(flow.NumRuns(0), 1u);
  EXPECT_EQ(flow.NumRuns(1), 0u);
  flow.Respond(0, 0, {Value(2)});
  EXPECT_EQ(flow.Inputs(1, 0), Values{2});
  EXPECT_TRUE(flow.emitted.empty());
  flow.Respond(1, 0, {Value(3)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{3, 2}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, StartsIndependentStepsTogetherAndJoinsThem) {
  Flow flow({{"A"},
             {"D"},
             {{"left", {{"IN", "A"}}, {{"OUT", "B"}}},
              {"right", {{"IN", "A"}}, {{"OUT", "C"}}},
              {"join", {{"L", "B"}, {"R", "C"}}, {{"OUT", "D"}}}}});
  flow.Begin({Value(1)});
  EXPECT_EQ(flow.NumRuns(0), 1u);
  EXPECT_EQ(flow.NumRuns(1), 1u);
  flow.Respond(1, 0, {Value(30)});
  EXPECT_EQ(flow.NumRuns(2), 0u);
  flow.Respond(0, 0, {Value(20)});
  EXPECT_EQ(flow.Inputs(2, 0), (Values{20, 30}));
}

TEST(DataflowTest, RunsOnlyWhatTheRequestedOutputsNeed) {
  Flow flow(kChainOfTwoOutputs, {"B"});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(2)});
  EXPECT_EQ(flow.NumRuns(1), 0u);
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{2}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, RunsTheProducerOfAnIntermediateTensorThatWasNotRequested) {
  Flow flow(kChainOfTwoOutputs, {"C"});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(2)});
  flow.Respond(1, 0, {Value(3)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{3}}));
}

TEST(DataflowTest, PassesAnInputThroughAsAnOutput) {
  Flow flow({{"A", "B"}, {"B"}, {{"m", {{"IN", "A"}}, {{"OUT", "C"}}}}});
  flow.Begin({Value(1), Value(7)});
  EXPECT_EQ(flow.NumRuns(0), 0u);
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{7}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, DoesNotSendAnOptionalInputThatTheRequestLacks) {
  Flow flow({{"A", "B?"}, {"C"}, {{"m", {{"IN", "A"}, {"OPT?", "B"}}, {{"OUT", "C"}}}}});
  flow.Begin({Value(1), nullptr});
  EXPECT_EQ(flow.Inputs(0, 0), (Values{1, 0}));
}

TEST(DataflowTest, NamesTheMandatoryInputThatTheRequestLacks) {
  Flow flow({{"A", "B?"}, {"C"}, {{"m", {{"IN", "A"}, {"MUST", "B"}}, {{"OUT", "C"}}}}});
  flow.Begin({Value(1), nullptr});
  EXPECT_EQ(flow.num_finished, 1);
  EXPECT_EQ(flow.error.message(),
            "in ensemble 'ens', step 0 ('m') needs input 'MUST', but the request has no input 'B'");
  EXPECT_EQ(flow.error.code(), StatusCode::kInvalidArg);
}

TEST(DataflowTest, OmitsAnEnsembleOutputThatTheStepOmits) {
  Flow flow({{"A"}, {"B", "C"}, {{"m", {{"IN", "A"}}, {{"X", "B"}, {"Y", "C"}}}}});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {nullptr, Value(5)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{0, 5}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, NamesTheStepThatDidNotProduceWhatTheNextNeeds) {
  Flow flow(
      {{"A"},
       {"C", "D"},
       {{"m0", {{"IN", "A"}}, {{"X", "B"}, {"Y", "C"}}}, {"m1", {{"IN", "B"}}, {{"OUT", "D"}}}}});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {nullptr, Value(5)});
  EXPECT_EQ(flow.error.message(),
            "in ensemble 'ens', step 1 ('m1') needs input 'IN', but step 0 ('m0') did not produce "
            "tensor 'B'");
}

TEST(DataflowTest, AnswersWithoutOutputsWhenAStepAnsweredWithout) {
  Flow flow(kChainOfTwoOutputs);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {nullptr});
  EXPECT_EQ(flow.NumRuns(1), 0u);
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{0, 0}}));
  EXPECT_TRUE(flow.error.ok());
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, FailsWithTheStepsErrorAndCode) {
  Flow flow(kChainOfTwoOutputs);
  flow.Begin({Value(1)});
  flow.Fail(0, 0, UnavailableError("queue is full"));
  EXPECT_EQ(flow.error.code(), StatusCode::kUnavailable);
  EXPECT_EQ(flow.error.message(), "in ensemble 'ens', step 0 ('m0'): queue is full");
  EXPECT_EQ(flow.num_finished, 1);
  flow.End(0, 0);
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, RefusesASecondResponseOfAModelThatIsNotDecoupled) {
  Flow flow(kChainOfTwoOutputs);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(2)}, /*is_final=*/false);
  flow.Respond(0, 0, {Value(3)});
  EXPECT_NE(flow.error.message().find("more than one response"), std::string::npos);
}

TEST(DataflowTest, OpensOneScopeForEachResponseAndSharesWhatCameBefore) {
  Flow flow(kStream);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  flow.Respond(1, 0, {Value(100)}, false);
  flow.Respond(1, 0, {Value(101)}, false);
  EXPECT_EQ(flow.Inputs(2, 0), (Values{100, 10}));
  EXPECT_EQ(flow.Inputs(2, 1), (Values{101, 10}));
  flow.Respond(2, 0, {Value(1000)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1000}}));
  EXPECT_EQ(flow.num_finished, 0);
  flow.End(1, 0);
  flow.Respond(2, 1, {Value(1001)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1000}, {1001}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, EmitsResponsesInOrderThoughScopesEndOutOfOrder) {
  Flow flow(kStream);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  for (int64_t i = 0; i < 4; ++i) flow.Respond(1, 0, {Value(100 + i)}, false);
  flow.End(1, 0);
  for (const size_t nth : {3u, 1u, 2u}) {
    flow.Respond(2, nth, {Value(1000 + static_cast<int64_t>(nth))});
  }
  EXPECT_TRUE(flow.emitted.empty());
  flow.Respond(2, 0, {Value(1000)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1000}, {1001}, {1002}, {1003}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, EndsWithoutAResponseWhenTheDecoupledStepSendsNone) {
  Flow flow(kStream);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  flow.End(1, 0);
  EXPECT_TRUE(flow.emitted.empty());
  EXPECT_EQ(flow.num_finished, 1);
  EXPECT_TRUE(flow.error.ok());
}

TEST(DataflowTest, SkipsAResponseWithoutOutputsOfADecoupledStep) {
  Flow flow(kStream);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  flow.Respond(1, 0, {nullptr}, false);
  flow.Respond(1, 0, {Value(101)});
  flow.Respond(2, 0, {Value(1001)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1001}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, SendsTheGoodResponsesBeforeAnErrorInMidStream) {
  Flow flow(kStream);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  flow.Respond(1, 0, {Value(100)}, false);
  flow.Fail(1, 0, InternalError("boom"));
  EXPECT_EQ(flow.num_finished, 0);
  flow.Respond(2, 0, {Value(1000)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1000}}));
  EXPECT_EQ(flow.num_finished, 1);
  EXPECT_EQ(flow.error.message(), "in ensemble 'ens', step 1 ('split'): boom");
}

TEST(DataflowTest, NestsDecoupledSteps) {
  Flow flow(
      {{"A"},
       {"C"},
       {{"outer*", {{"IN", "A"}}, {{"OUT", "B"}}}, {"inner*", {{"IN", "B"}}, {{"OUT", "C"}}}}});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)}, false);
  flow.Respond(0, 0, {Value(20)});
  flow.Respond(1, 1, {Value(200)}, false);
  flow.Respond(1, 0, {Value(100)}, false);
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{100}}));
  flow.Respond(1, 0, {Value(101)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{100}, {101}, {200}}));
  EXPECT_EQ(flow.num_finished, 0);
  flow.End(1, 1);
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, PairsTheResponsesOfTwoDecoupledStepsByNumber) {
  Flow flow({{"A"},
             {"D"},
             {{"l*", {{"IN", "A"}}, {{"OUT", "L"}}},
              {"r*", {{"IN", "A"}}, {{"OUT", "R"}}},
              {"join", {{"L", "L"}, {"R", "R"}}, {{"OUT", "D"}}}}});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)}, false);
  flow.Respond(0, 0, {Value(11)}, false);
  EXPECT_EQ(flow.NumRuns(2), 0u);
  flow.Respond(1, 0, {Value(20)}, false);
  EXPECT_EQ(flow.Inputs(2, 0), (Values{10, 20}));
  flow.Respond(2, 0, {Value(30)});
  // The right step ends after one response, so the left one's second response has no partner.
  flow.End(1, 0);
  flow.End(0, 0);
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{30}}));
  EXPECT_EQ(flow.num_finished, 1);
}

TEST(DataflowTest, RepeatsAnOutputFromBeforeTheDecoupledStepInEachResponse) {
  Sketch sketch = kStream;
  sketch.outputs = {"R", "HEAD"};
  Flow flow(sketch);
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)});
  flow.Respond(1, 0, {Value(100)}, false);
  flow.Respond(1, 0, {Value(101)});
  flow.Respond(2, 0, {Value(1000)});
  flow.Respond(2, 1, {Value(1001)});
  EXPECT_EQ(flow.emitted, (std::vector<Values>{{1000, 10}, {1001, 10}}));
}

TEST(DataflowTest, JoinsWithASlowStepThatEndsAfterTheStreamBegan) {
  Flow flow({{"A"},
             {"C"},
             {{"split*", {{"IN", "A"}}, {{"OUT", "PART"}}},
              {"slow", {{"IN", "A"}}, {{"OUT", "S"}}},
              {"join", {{"P", "PART"}, {"S", "S"}}, {{"OUT", "C"}}}}});
  flow.Begin({Value(1)});
  flow.Respond(0, 0, {Value(10)}, false);
  flow.Respond(0, 0, {Value(11)});
  EXPECT_EQ(flow.NumRuns(2), 0u);
  flow.Respond(1, 0, {Value(5)});
  EXPECT_EQ(flow.Inputs(2, 0), (Values{10, 5}));
  EXPECT_EQ(flow.Inputs(2, 1), (Values{11, 5}));
}

TEST(DataflowTest, StartsAndEmitsNothingAfterAbort) {
  Flow flow(kChainOfTwoOutputs);
  flow.Begin({Value(1)});
  flow.Abort();
  flow.Respond(0, 0, {Value(2)});
  EXPECT_EQ(flow.NumRuns(1), 0u);
  EXPECT_EQ(flow.num_finished, 0);
}

}  // namespace
}  // namespace nereid::ensemble
