// Tests which fields a backend may complete, and the instance groups that a model gets.
#include <nlohmann/json.hpp>

#include "tests/host/core/config/temp_model.h"

namespace nereid::core::config {
namespace {

ModelConfig Read(const std::string& pbtxt) {
  const TempModel model(pbtxt);
  auto config = ReadModelConfig(model.folder());
  EXPECT_TRUE(config.ok()) << config.status().message();
  return std::move(config).value();
}

constexpr char kCompletion[] = R"({"name": "other", "backend": "other", "max_batch_size": 8,
  "input": [{"name": "I", "data_type": "TYPE_INT32", "dims": [2]}],
  "output": [{"name": "O", "data_type": "TYPE_INT32", "dims": [2]}],
  "dynamic_batching": {"max_queue_delay_microseconds": 7},
  "parameters": {"p": {"string_value": "v"}},
  "model_transaction_policy": {"decoupled": true}})";

TEST(MergeTest, MergesOnlyTensorsBatchSizeSchedulerAndDecoupled) {
  const auto merged = MergeBackendConfig(Read("backend: \"b\"\n"), kCompletion);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  const auto config = FinishConfig(*merged);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->name, "m");
  EXPECT_EQ(config->backend, "b");
  EXPECT_EQ(config->max_batch_size, 8);
  EXPECT_EQ(config->inputs.at(0).data_type, DataType::kInt32);
  EXPECT_EQ(config->dynamic_batching->max_queue_delay_us, 7u);
  EXPECT_EQ(config->dynamic_batching->preferred_batch_sizes, std::vector<int32_t>{8});
  EXPECT_TRUE(config->decoupled);
  EXPECT_TRUE(config->parameters.empty());
}

TEST(MergeTest, KeepsTheSchedulerThatTheAuthorSet) {
  const auto config = MergeBackendConfig(Read("backend: \"b\"\nmax_batch_size: 4\ndynamic_batching "
                                              "{ max_queue_delay_microseconds: 1 }\n"),
                                         kCompletion);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->dynamic_batching->max_queue_delay_us, 1u);
}

TEST(MergeTest, RejectsASchedulerOfAnotherKind) {
  const auto config = MergeBackendConfig(Read("backend: \"b\"\ndynamic_batching { }\n"),
                                         R"({"sequence_batching": {}})");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().message(),
            "scheduler: expected 'dynamic_batching', which the model has, got 'sequence_batching'");
}

TEST(MergeTest, FinishRejectsInvalidTensorsOfTheBackend) {
  const auto merged =
      MergeBackendConfig(Read("backend: \"b\"\n"), R"({"input": [{"name": "I", "dims": [0]}]})");
  ASSERT_TRUE(merged.ok());
  const std::string message = FinishConfig(*merged).status().message();
  EXPECT_NE(message.find("input[0].data_type: model input 'I' must specify 'data_type'"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("input[0].dims: model input 'I' dimension must be integer >= 1"),
            std::string::npos)
      << message;
}

TEST(InstanceTest, NamesAnOmittedGroupAfterTheModelAndAGivenOneWithItsIndex) {
  EXPECT_EQ(PrepareInstances(Read(kIo), {})->instance_groups.at(0).name, "m");
  const auto given =
      PrepareInstances(Read(std::string(kIo) +
                            "instance_group [ { count: 2 }, { name: \"x\" kind: KIND_MODEL } ]\n"),
                       {});
  ASSERT_TRUE(given.ok()) << given.status().message();
  EXPECT_EQ(given->instance_groups.at(0).name, "m_0");
  EXPECT_EQ(given->instance_groups.at(0).kind, InstanceGroup::Kind::kCpu);
  EXPECT_EQ(given->instance_groups.at(0).count, 2);
  EXPECT_EQ(given->instance_groups.at(1).name, "x");
  EXPECT_EQ(given->instance_groups.at(1).count, 1);
}

TEST(InstanceTest, UsesExistingGpusUnlessTheBackendPrefersTheCpu) {
  InstanceDefaults defaults;
  defaults.gpus = {0, 1};
  auto config = PrepareInstances(Read(kIo), defaults);
  EXPECT_EQ(config->instance_groups.at(0).kind, InstanceGroup::Kind::kGpu);
  EXPECT_EQ(config->instance_groups.at(0).gpus, (std::vector<int32_t>{0, 1}));
  defaults.preferred_groups = {{InstanceGroup::Kind::kCpu, 3, {}}};
  config = PrepareInstances(Read(kIo), defaults);
  EXPECT_EQ(config->instance_groups.at(0).kind, InstanceGroup::Kind::kCpu);
  EXPECT_EQ(config->instance_groups.at(0).count, 3);
}

TEST(InstanceTest, GivesSomeBackendsTwoCpuInstancesLikeTriton) {
  const auto count = [](const std::string& backend, const std::string& group,
                        const InstanceDefaults& defaults) {
    return PrepareInstances(Read(StrCat("backend: '", backend, "' ", group)), defaults)
        ->instance_groups.at(0)
        .count;
  };
  EXPECT_EQ(count("onnxruntime", "", {}), 2);
  EXPECT_EQ(count("tensorflow", "instance_group { kind: KIND_CPU }", {}), 2);
  EXPECT_EQ(count("onnxruntime", "instance_group { kind: KIND_CPU count: 1 }", {}), 1);
  EXPECT_EQ(count("onnxruntime", "", {{0}, {}}), 1);
  EXPECT_EQ(count("b", "", {}), 1);
  const InstanceDefaults three_on_cpu{{0}, {{InstanceGroup::Kind::kCpu, 3, {}}}};
  EXPECT_EQ(count("onnxruntime", "instance_group { kind: KIND_CPU }", three_on_cpu), 3);
  EXPECT_EQ(count("onnxruntime", "instance_group { kind: KIND_GPU }", three_on_cpu), 1);
}

TEST(InstanceTest, RejectsAGpuThatDoesNotExist) {
  const ModelConfig config =
      Read(std::string(kIo) + "instance_group [ { kind: KIND_GPU gpus: [ 7 ] } ]\n");
  const auto prepared = PrepareInstances(config, {});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(
      prepared.status().message(),
      "instance_group[0].gpus: instance group m_0 of model m specifies invalid or unsupported "
      "gpu id 7. GPUs with at least the minimum required CUDA compute compatibility are: none");
}

}  // namespace
}  // namespace nereid::core::config
