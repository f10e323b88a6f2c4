#include "backends/ensemble/validate.h"

#include <gtest/gtest.h>

#include "tests/backends/ensemble/ensemble_fixture.h"

namespace nereid::ensemble {
namespace {

// The messages of all issues, one on each line.
std::string Text(const std::vector<ValidationIssue>& issues) {
  std::string text;
  for (const ValidationIssue& fault : issues) {
    text += StrCat(text.empty() ? "" : "\n", fault.is_warning ? "warning: " : "", fault.message);
  }
  return text;
}

TEST(ValidateTest, AcceptsAChain) {
  EXPECT_EQ(Text(Build(kChain).Issues()), "");
}

TEST(ValidateTest, NamesAnOutputThatNoStepProduces) {
  Built built = Build(kChain);
  built.config.model.outputs.push_back(SpecOf("RESULT"));
  const auto issues = built.Issues();
  EXPECT_EQ(Text(issues),
            "ensemble output 'RESULT' for ensemble 'ens' is not used: no step produces it");
  EXPECT_EQ(issues[0].location, ValidationIssue::Location::kOutput);
  EXPECT_EQ(issues[0].key, "RESULT");
}

TEST(ValidateTest, NamesTheMapEntryThatTheModelDoesNotHaveAndTheInputLeftOver) {
  Built built = Build(kChain);
  built.config.steps[0].input_map[0].first = "INPT";
  built.models[0].inputs[0].name = "INPUT";
  built.config.steps[1].output_map[0].first = "OUTT";
  const auto issues = built.Issues();
  EXPECT_EQ(
      Text(issues),
      "in ensemble ens, ensemble tensor A is mapping to non-existing input INPT in model m0 "
      "(did you mean 'INPUT'?), step 0 ('m0')\n"
      "in ensemble ens, input INPUT in model m0 is not mapped to any ensemble tensors, step 0 "
      "('m0')\n"
      "in ensemble ens, ensemble tensor C is mapped from non-existing output OUTT in model m1 "
      "(did you mean 'OUT'?), step 1 ('m1')");
  EXPECT_EQ(issues[0].location, ValidationIssue::Location::kInputMap);
  EXPECT_EQ(issues[0].step, 0);
  EXPECT_EQ(issues[0].key, "INPT");
}

TEST(ValidateTest, LeavesOptionalInputsOfAStepUnmapped) {
  Built built = Build(kChain);
  built.models[0].inputs.push_back(SpecOf("EXTRA?"));
  EXPECT_EQ(Text(built.Issues()), "");
}

TEST(ValidateTest, NamesATensorThatNobodyProduces) {
  Built built = Build(kChain);
  built.config.steps[1].input_map[0].second = "BB";
  EXPECT_EQ(Text(built.Issues()),
            "in ensemble ens, ensemble tensor 'BB' is not connected: input 'IN' of step 1 ('m1') "
            "reads what is neither an input of the ensemble nor an output of a step");
}

TEST(ValidateTest, NamesBothProducersOfATensor) {
  Built built = Build(kChain);
  built.config.steps[1].output_map[0].second = "B";
  built.config.model.outputs[0].name = "B";
  EXPECT_NE(Text(built.Issues())
                .find("ensemble tensor 'B' can appear in an output map only once for ensemble "
                      "'ens': it is output 'OUT' of step 0 ('m0') and output 'OUT' of step 1 "
                      "('m1')"),
            std::string::npos);
}

TEST(ValidateTest, SpellsOutACycle) {
  const auto issues = Build({{"A"},
                             {"C"},
                             {{"m0", {{"IN", "A"}, {"BACK", "C"}}, {{"OUT", "B"}}},
                              {"m1", {{"IN", "B"}}, {{"OUT", "C"}}}}})
                          .Issues();
  EXPECT_EQ(Text(issues),
            "in ensemble ens, the steps form a cycle: step 0 ('m0') reads 'C' of step 1 ('m1') "
            "reads 'B' of step 0 "
            "('m0')");
}

TEST(ValidateTest, ShowsBothTypesAndShapesWhereTheyDisagree) {
  Built built = Build(kChain);
  built.models[1].inputs[0].data_type = "TYPE_FP32";
  built.models[1].inputs[0].dims = {2, -1};
  built.config.model.outputs[0].dims = {3};
  EXPECT_EQ(
      Text(built.Issues()),
      "in ensemble ens, ensemble tensor B: inconsistent data type: TYPE_INT32 is inferred "
      "from model m0 while TYPE_FP32 is inferred from model m1 (output 'OUT' of step 0 "
      "('m0'), input 'IN' of step 1 ('m1'))\n"
      "in ensemble ens, ensemble tensor B: inconsistent shape: [1] is inferred from model m0 "
      "while [2,-1] is inferred from model m1 (output 'OUT' of step 0 ('m0'), input 'IN' of "
      "step 1 ('m1'))\n"
      "in ensemble ens, ensemble tensor C: inconsistent shape: [3] is inferred from model ens "
      "while [1] is inferred from model m1 (output 'C' of the ensemble, output 'OUT' of step "
      "1 ('m1'))");
}

TEST(ValidateTest, AllowsAStepWithoutBatchingThatTakesTheBatchAsADimension) {
  Built built = Build(kChain);
  built.config.model.max_batch_size = 4;
  for (ModelSpec& model : built.models) model.max_batch_size = 8;
  built.models[1].max_batch_size = 0;
  built.models[1].inputs[0].dims = {-1, 1};
  built.models[1].outputs[0].dims = {-1, 1};
  EXPECT_EQ(Text(built.Issues()), "");
}

TEST(ValidateTest, ComparesBatchSizes) {
  Built built = Build(kChain);
  built.config.model.max_batch_size = 16;
  built.models[0].max_batch_size = 8;
  built.models[1].max_batch_size = 16;
  EXPECT_EQ(Text(built.Issues()),
            "ensemble ens allows maximum batch size 16, but it contains model m0 which only allows "
            "maximum batch size to be 8 (step 0 ('m0'))");
}

TEST(ValidateTest, ReportsAMissingModelOnceAndGoesOn) {
  const Built built = Build(kChain);
  const std::vector<Result<ModelSpec>> models{
      Result<ModelSpec>(NotFoundError("which is not there")), Result<ModelSpec>(built.models[1])};
  EXPECT_EQ(Text(Validate(built.config, models)),
            "ensemble 'ens' depends on 'm0' which is not there");
}

TEST(ValidateTest, TrustsAModelWhoseBackendNamesTheTensorsLater) {
  Built built = Build(kChain);
  built.models[0] = ModelSpec{};
  built.models[0].is_complete = false;
  EXPECT_EQ(Text(built.Issues()), "");
}

TEST(ValidateTest, WarnsOfAnOptionalInputThatAStepCannotDoWithout) {
  Sketch sketch = kChain;
  sketch.inputs = {"A?"};
  const auto issues = Build(sketch).Issues();
  EXPECT_EQ(Text(issues),
            "warning: in ensemble ens, input 'IN' of step 0 ('m0') is mandatory, but the "
            "ensemble's input 'A' is "
            "optional: requests without it fail");
  EXPECT_TRUE(StatusOf(issues).ok());
}

TEST(ValidateTest, RefusesAnInputThatNoStepReads) {
  Sketch sketch = kChain;
  sketch.inputs.push_back("UNUSED");
  EXPECT_EQ(Text(Build(sketch).Issues()),
            "ensemble input 'UNUSED' for ensemble 'ens' is not used: no step reads it");
}

TEST(ValidateTest, RefusesATensorThatNothingReads) {
  Sketch sketch = kChain;
  sketch.steps[1].outputs.emplace_back("REST", "D");
  const auto issues = Build(sketch).Issues();
  EXPECT_EQ(Text(issues),
            "ensemble tensor 'D' is unused in ensemble 'ens': output 'REST' of step 1 ('m1') is "
            "neither an output of the ensemble nor an input of a step");
  EXPECT_EQ(issues[0].location, ValidationIssue::Location::kOutputMap);
  EXPECT_EQ(issues[0].step, 1);
}

TEST(ValidateTest, GathersAllIssuesIntoOneStatus) {
  Built built = Build(kChain);
  built.config.model.outputs.push_back(SpecOf("RESULT"));
  built.config.steps[0].output_map.clear();
  const Status status = StatusOf(built.Issues());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(
      status.message(),
      "must specify 'output_map' in step 0 of ensemble 'ens'; in ensemble ens, ensemble tensor "
      "'B' is not connected: input 'IN' of step 1 ('m1') reads what is neither an input of "
      "the ensemble nor an output of a step; ensemble output 'RESULT' for ensemble 'ens' is "
      "not used: no step produces it");
}

}  // namespace
}  // namespace nereid::ensemble
