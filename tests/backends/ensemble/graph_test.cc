#include "backends/ensemble/graph.h"

#include <gtest/gtest.h>

#include "backends/ensemble/plan.h"
#include "tests/backends/ensemble/ensemble_fixture.h"

namespace nereid::ensemble {
namespace {

TEST(GraphTest, CountsTheDecoupledStepsUpstreamWhateverTheOrderOfSteps) {
  const auto graph = Build({{"A"},
                            {"D"},
                            {{"last", {{"X", "C"}, {"Y", "A"}}, {{"OUT", "D"}}},
                             {"second*", {{"IN", "B"}}, {{"OUT", "C"}}},
                             {"first*", {{"IN", "A"}}, {{"OUT", "B"}}}}})
                         .MakeGraph();
  EXPECT_TRUE(graph->decoupled);
  EXPECT_EQ(graph->steps[0].depth, 2);
  EXPECT_EQ(graph->steps[1].depth, 1);
  EXPECT_EQ(graph->steps[2].depth, 0);
}

TEST(GraphTest, KnowsHowManyDimensionsEachSideExpects) {
  Built built = Build({{"A"}, {"B"}, {{"m", {{"IN", "A"}}, {{"OUT", "B"}}}}});
  built.config.model.max_batch_size = 4;
  const auto graph = built.MakeGraph();
  EXPECT_EQ(graph->inputs[0].rank, 2);
  EXPECT_TRUE(graph->inputs[0].batching);
  EXPECT_EQ(graph->steps[0].inputs[0].rank, 1);
  EXPECT_FALSE(graph->steps[0].inputs[0].batching);
}

TEST(PlanTest, LeavesOutStepsThatNoRequestedOutputNeeds) {
  const Plan plan =
      Build({{"A"},
             {"B", "C"},
             {{"used", {{"IN", "A"}}, {{"OUT", "B"}}}, {"unused*", {{"IN", "B"}}, {{"OUT", "C"}}}}})
          .MakePlanFor({"B"});
  EXPECT_EQ(plan.response_depth, 0);
  EXPECT_GE(plan.slot_of_step[0], 0);
  EXPECT_EQ(plan.slot_of_step[1], -1);
  EXPECT_TRUE(plan.downstream_steps[0].empty());
}

TEST(GraphTest, AddsOrDropsABatchDimensionOfOneBetweenSidesThatDifferInBatching) {
  Built built = Build(
      {{"A"},
       {"C"},
       {{"plain", {{"IN", "A"}}, {{"OUT", "B"}}}, {"batching", {{"IN", "B"}}, {{"OUT", "C"}}}}});
  built.config.model.max_batch_size = 4;
  built.models[1].max_batch_size = 4;
  const auto graph = built.MakeGraph();
  const Binding& plain = graph->steps[0].inputs[0];
  EXPECT_EQ(ShapeFor(plain, {1, 16}), (Shape{16}));
  EXPECT_EQ(ShapeFor(plain, {2, 16}), (Shape{2, 16}));
  EXPECT_EQ(ShapeFor(graph->steps[1].inputs[0], {16}), (Shape{1, 16}));
  // Both sides batch: the shape from the model is passed on unchanged.
  EXPECT_EQ(ShapeFor(graph->outputs[0], {3}), (Shape{3}));
}

}  // namespace
}  // namespace nereid::ensemble
