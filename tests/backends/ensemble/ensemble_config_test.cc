#include "backends/ensemble/ensemble_config.h"

#include <gtest/gtest.h>

namespace nereid::ensemble {
namespace {

TEST(EnsembleConfigTest, ReadsStepsMapsAndLimits) {
  const auto config = ParseEnsembleConfig(R"({"name":"e","max_batch_size":8,
      "input":[{"name":"X","data_type":"TYPE_FP32","dims":["-1",16],"optional":true}],
      "output":[{"name":"Y","data_type":"TYPE_FP32","dims":[16]}],
      "ensemble_scheduling":{"max_inflight_requests":4,"step":[{"model_name":"m",
        "model_version":"-1","input_map":{"IN":"X"},"output_map":{"OUT":"Y"}}]},
      "model_transaction_policy":{"decoupled":true}})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model.max_batch_size, 8);
  EXPECT_TRUE(config->model.decoupled);
  EXPECT_EQ(config->model.inputs[0].dims, (std::vector<int64_t>{-1, 16}));
  EXPECT_TRUE(config->model.inputs[0].optional);
  EXPECT_EQ(config->max_inflight_requests, 4u);
  ASSERT_EQ(config->steps.size(), 1u);
  EXPECT_EQ(config->steps[0].input_map[0], std::make_pair(std::string("IN"), std::string("X")));
}

// Callers of the ensemble see [2,2], its steps see [4].
TEST(EnsembleConfigTest, ReadsAnEnsemblesTensorsAsItsStepsSeeThem) {
  constexpr char kJson[] = R"({"name":"e",
      "input":[{"name":"X","data_type":"TYPE_FP32","dims":[2,2],"reshape":{"shape":["4"]}}],
      "output":[{"name":"Y","data_type":"TYPE_FP32","dims":[1],"reshape":{"shape":[]}}],
      "ensemble_scheduling":{"step":[]}})";
  const auto ensemble = ParseEnsembleConfig(kJson);
  ASSERT_TRUE(ensemble.ok()) << ensemble.status().message();
  EXPECT_EQ(ensemble->model.inputs[0].dims, std::vector<int64_t>{4});
  EXPECT_TRUE(ensemble->model.outputs[0].dims.empty());
  const auto step = ParseModelSpec(kJson);
  ASSERT_TRUE(step.ok()) << step.status().message();
  EXPECT_EQ(step->inputs[0].dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(step->outputs[0].dims, std::vector<int64_t>{1});
}

TEST(EnsembleConfigTest, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(ParseEnsembleConfig("[1]").status().code(), StatusCode::kInvalidArg);
  EXPECT_NE(ParseEnsembleConfig(R"({"name":"e"})").status().message().find("ensemble_scheduling"),
            std::string::npos);
  EXPECT_EQ(ParseModelSpec(R"({"max_batch_size":"many"})").status().message(),
            "field 'max_batch_size': expected an integer, got \"many\"");
  EXPECT_EQ(ParseEnsembleConfig(R"({"ensemble_scheduling":{"step":[{"input_map":{"IN":3}}]}})")
                .status()
                .message(),
            "field 'input_map', key 'IN': expected a string, got 3");
}

TEST(EnsembleConfigTest, SetsDecoupledAndKeepsTheRest) {
  const auto changed = WithDecoupled(R"({"name":"e","model_transaction_policy":null})", true);
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(*changed, R"({"name":"e","model_transaction_policy":{"decoupled":true}})");
}

}  // namespace
}  // namespace nereid::ensemble
