#include "backends/ensemble/validate.h"

#include <gtest/gtest.h>

#include "ensemble_fixture.h"

namespace nereid::ensemble {
namespace {

// The messages of all faults, one a line.
std::string Text(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    text += StrCat(text.empty() ? "" : "\n", fault.is_warning ? "warning: " : "", fault.message);
  }
  return text;
}

TEST(ValidateTest, AcceptsAChain) {
  EXPECT_EQ(Text(Build(kChain).Faults()), "");
}

TEST(ValidateTest, NamesAnOutputThatNoStepProduces) {
  Built built = Build(kChain);
  built.config.model.outputs.push_back(SpecOf("RESULT"));
  const auto faults = built.Faults();
  EXPECT_EQ(Text(faults), "output 'RESULT' of the ensemble is produced by no step");
  EXPECT_EQ(faults[0].place, Fault::Place::kOutput);
  EXPECT_EQ(faults[0].key, "RESULT");
}

TEST(ValidateTest, NamesTheMapEntryThatTheModelDoesNotHaveAndTheInputLeftOver) {
  Built built = Build(kChain);
  built.config.steps[0].input_map[0].first = "INPT";
  built.models[0].inputs[0].name = "INPUT";
  built.config.steps[1].output_map[0].first = "OUTT";
  const auto faults = built.Faults();
  EXPECT_EQ(Text(faults),
            "step 0 ('m0'): input_map names input 'INPT', which model 'm0' does not have (did you "
            "mean 'INPUT'?)\n"
            "step 0 ('m0'): mandatory input 'INPUT' of model 'm0' is not in input_map\n"
            "step 1 ('m1'): output_map names output 'OUTT', which model 'm1' does not have (did "
            "you mean 'OUT'?)");
  EXPECT_EQ(faults[0].place, Fault::Place::kInputMap);
  EXPECT_EQ(faults[0].step, 0);
  EXPECT_EQ(faults[0].key, "INPT");
}

TEST(ValidateTest, LeavesOptionalInputsOfAStepUnmapped) {
  Built built = Build(kChain);
  built.models[0].inputs.push_back(SpecOf("EXTRA?"));
  EXPECT_EQ(Text(built.Faults()), "");
}

TEST(ValidateTest, NamesATensorThatNobodyProduces) {
  Built built = Build(kChain);
  built.config.steps[1].input_map[0].second = "BB";
  EXPECT_EQ(Text(built.Faults()),
            "input 'IN' of step 1 ('m1') reads tensor 'BB', which is neither an input of the "
            "ensemble nor an output of a step");
}

TEST(ValidateTest, NamesBothProducersOfATensor) {
  Built built = Build(kChain);
  built.config.steps[1].output_map[0].second = "B";
  built.config.model.outputs[0].name = "B";
  EXPECT_NE(Text(built.Faults())
                .find("tensor 'B' has two producers: output 'OUT' of step 0 ('m0') and output "
                      "'OUT' of step 1 ('m1')"),
            std::string::npos);
}

TEST(ValidateTest, SpellsOutACycle) {
  const auto faults = Build({{"A"},
                             {"C"},
                             {{"m0", {{"IN", "A"}, {"BACK", "C"}}, {{"OUT", "B"}}},
                              {"m1", {{"IN", "B"}}, {{"OUT", "C"}}}}})
                          .Faults();
  EXPECT_EQ(Text(faults),
            "the steps form a cycle: step 0 ('m0') reads 'C' of step 1 ('m1') reads 'B' of step 0 "
            "('m0')");
}

TEST(ValidateTest, ShowsBothTypesAndShapesWhereTheyDisagree) {
  Built built = Build(kChain);
  built.models[1].inputs[0].data_type = "TYPE_FP32";
  built.models[1].inputs[0].dims = {2, -1};
  built.config.model.outputs[0].dims = {3};
  EXPECT_EQ(Text(built.Faults()),
            "tensor 'B': input 'IN' of step 1 ('m1') is TYPE_FP32, but output 'OUT' of step 0 "
            "('m0') is TYPE_INT32\n"
            "tensor 'B': input 'IN' of step 1 ('m1') is [2,-1], but output 'OUT' of step 0 ('m0') "
            "is [1]\n"
            "tensor 'C': output 'C' of the ensemble is [3], but output 'OUT' of step 1 ('m1') is "
            "[1]");
}

TEST(ValidateTest, AllowsAStepWithoutBatchingThatTakesTheBatchAsADimension) {
  Built built = Build(kChain);
  built.config.model.max_batch_size = 4;
  for (ModelSpec& model : built.models) model.max_batch_size = 8;
  built.models[1].max_batch_size = 0;
  built.models[1].inputs[0].dims = {-1, 1};
  built.models[1].outputs[0].dims = {-1, 1};
  EXPECT_EQ(Text(built.Faults()), "");
}

TEST(ValidateTest, ComparesBatchSizes) {
  Built built = Build(kChain);
  built.config.model.max_batch_size = 16;
  built.models[0].max_batch_size = 8;
  built.models[1].max_batch_size = 16;
  EXPECT_EQ(Text(built.Faults()),
            "max_batch_size 16 of the ensemble exceeds max_batch_size 8 of step 0 ('m0')");
}

TEST(ValidateTest, ReportsAMissingModelOnceAndGoesOn) {
  const Built built = Build(kChain);
  const std::vector<Result<ModelSpec>> models{Result<ModelSpec>(NotFoundError("no such model")),
                                              Result<ModelSpec>(built.models[1])};
  EXPECT_EQ(Text(Validate(built.config, models)), "step 0 ('m0'): no such model");
}

TEST(ValidateTest, TrustsAModelWhoseBackendNamesTheTensorsLater) {
  Built built = Build(kChain);
  built.models[0] = ModelSpec{};
  built.models[0].is_complete = false;
  EXPECT_EQ(Text(built.Faults()), "");
}

TEST(ValidateTest, WarnsOfAnOptionalInputThatAStepCannotDoWithout) {
  Sketch sketch = kChain;
  sketch.inputs = {"A?"};
  const auto faults = Build(sketch).Faults();
  EXPECT_EQ(Text(faults),
            "warning: input 'IN' of step 0 ('m0') is mandatory, but the ensemble's input 'A' is "
            "optional: requests without it fail");
  EXPECT_TRUE(StatusOf("ens", faults).ok());
}

TEST(ValidateTest, RefusesAnInputThatNoStepReads) {
  Sketch sketch = kChain;
  sketch.inputs.push_back("UNUSED");
  EXPECT_EQ(Text(Build(sketch).Faults()), "input 'UNUSED' of the ensemble is read by no step");
}

TEST(ValidateTest, RefusesATensorThatNobodyTakes) {
  Sketch sketch = kChain;
  sketch.steps[1].outputs.emplace_back("REST", "D");
  const auto faults = Build(sketch).Faults();
  EXPECT_EQ(Text(faults),
            "ensemble tensor 'D' is unused in ensemble 'ens': output 'REST' of step 1 ('m1') is "
            "neither an output of the ensemble nor an input of a step");
  EXPECT_EQ(faults[0].place, Fault::Place::kOutputMap);
  EXPECT_EQ(faults[0].step, 1);
}

TEST(ValidateTest, GathersAllFaultsIntoOneStatus) {
  Built built = Build(kChain);
  built.config.model.outputs.push_back(SpecOf("RESULT"));
  built.config.steps[0].output_map.clear();
  const Status status = StatusOf("ens", built.Faults());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(status.message(),
            "ensemble 'ens': step 0 ('m0') has no 'output_map'; input 'IN' of step 1 ('m1') reads "
            "tensor 'B', which is neither an input of the ensemble nor an output of a step; "
            "output 'RESULT' of the ensemble is produced by no step");
}

}  // namespace
}  // namespace nereid::ensemble
