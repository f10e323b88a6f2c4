// Tests reading a config.pbtxt: positions of errors, placeholders, derived backends and the JSON
// form.
#include "host/core/config/config_loader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/host/core/config/temp_model.h"

namespace nereid::core::config {
namespace {

using testing::Test;

std::string ErrorOf(const TempModel& model) {
  const auto config = ReadModelConfig(model.folder());
  EXPECT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArg);
  return config.status().message();
}

TEST(ConfigLoaderTest, NamesFileLineColumnAndKeyOfATypo) {
  const TempModel model("backend: \"b\"\nmax_batch_sizes: 0\n");
  EXPECT_EQ(ErrorOf(model),
            model.path() +
                "/config.pbtxt:2:1: max_batch_sizes: unknown field 'max_batch_sizes' in "
                "ModelConfig; did you mean 'max_batch_size'?");
}

TEST(ConfigLoaderTest, NamesTheKeyOfAWrongTypeInsideALaterElement) {
  const TempModel model(
      "backend: \"b\"\ninput [ { name: \"A\" data_type: TYPE_FP32 dims: [ 1 ] },\n"
      "  { name: \"B\"\n    data_type: TYPE_FP33 dims: [ 1 ] } ]\n");
  const std::string error = ErrorOf(model);
  EXPECT_NE(error.find("config.pbtxt:4:"), std::string::npos) << error;
  EXPECT_NE(error.find("input[1].data_type"), std::string::npos) << error;
  EXPECT_NE(error.find("TYPE_FP33"), std::string::npos) << error;
}

TEST(ConfigLoaderTest, NamesAnUnfilledPlaceholder) {
  const TempModel model("backend: \"b\"\nmax_batch_size: ${triton_max_batch_size}\n");
  EXPECT_EQ(ErrorOf(model), model.path() +
                                "/config.pbtxt:2:17: max_batch_size: placeholder "
                                "'${triton_max_batch_size}' was not filled in");
}

TEST(ConfigLoaderTest, ReportsEveryUnfilledPlaceholder) {
  const TempModel model(
      "instance_group [ { count: ${a} kind: KIND_CPU } ]\nmax_batch_size: ${b}\n");
  const ConfigErrors errors = CheckModelConfig(model.folder());
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].key, "instance_group[0].count");
  EXPECT_EQ(errors[1].key, "max_batch_size");
}

TEST(ConfigLoaderTest, KeepsPlaceholdersInsideStrings) {
  const TempModel model(std::string(kIo) +
                        "parameters { key: \"d\" value { string_value: \"${engine_dir}\" } }\n");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->parameters.at("d"), "${engine_dir}");
}

TEST(ConfigLoaderTest, UsesTheFirstOfSeveralOutputsWithTheSameName) {
  const TempModel model(std::string(kIo) +
                        "output [ { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] },\n"
                        "         { name: \"Y\" data_type: TYPE_INT32 dims: [ 1 ] },\n"
                        "         { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] },\n"
                        "         { name: \"Y\" data_type: TYPE_FP32 dims: [ 2 ] } ]\n");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  std::vector<std::string> names;
  for (const TensorConfig& output : config->outputs) names.push_back(output.name);
  EXPECT_EQ(std::count(names.begin(), names.end(), "X"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "Y"), 1);
  EXPECT_EQ(config->FindOutput("Y")->data_type, DataType::kInt32);
}

TEST(ConfigLoaderTest, ValidatesARepeatedOutput) {
  const TempModel model(std::string(kIo) +
                        "output [ { name: \"X\" data_type: TYPE_INT32 dims: [ 1 ] },\n"
                        "         { name: \"X\" dims: [ 1 ] },\n"
                        "         { name: \"X\" data_type: TYPE_INT32 dims: [ 0 ] } ]\n");
  const std::string error = ErrorOf(model);
  EXPECT_NE(error.find("model output 'X' must specify 'data_type' for "), std::string::npos)
      << error;
  EXPECT_NE(error.find("model output 'X' dimension must be integer >= 1"), std::string::npos)
      << error;
}

TEST(ConfigLoaderTest, AddsTheLineToAnErrorFoundByValidation) {
  const TempModel model(
      "backend: \"b\"\nmax_batch_size: 4\n\ndynamic_batching {\n  preferred_batch_size: [ 8 "
      "]\n}\n");
  EXPECT_EQ(
      ErrorOf(model),
      model.path() +
          "/config.pbtxt:5:3: dynamic_batching.preferred_batch_size: "
          "dynamic batching preferred size must be <= max batch size for m, which is 4, got 8");
}

TEST(ConfigLoaderTest, RejectsANameThatDiffersFromTheFolder) {
  const TempModel model("name: \"othername\"\nbackend: \"python\"\n", "badname");
  const std::string error = ErrorOf(model);
  EXPECT_NE(
      error.find("config.pbtxt:1:1: name: expected the folder's name 'badname', got 'othername'"),
      std::string::npos)
      << error;
}

TEST(ConfigLoaderTest, DerivesTheBackendFromTheNameOfAFolderWithoutConfig) {
  const TempModel model("", "lm.cpu_reference");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "cpu_reference");
  EXPECT_EQ(config->name, "lm.cpu_reference");
}

TEST(ConfigLoaderTest, DerivesTheBackendFromAKnownModelFile) {
  const TempModel model("", "auto");
  model.Write("1/model.py", "");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "python");
  EXPECT_EQ(config->default_model_filename, "model.py");
}

TEST(ConfigLoaderTest, PrefersAKnownModelFileToTheModelName) {
  const TempModel model("", "llama-3.1-8b");
  model.Write("1/model.py", "");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "python");
  EXPECT_EQ(config->default_model_filename, "model.py");
}

TEST(ConfigLoaderTest, DerivesTheBackendFromTheTextAfterTheFirstDot) {
  const TempModel model("", "a.b.c");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "b.c");
  EXPECT_EQ(config->default_model_filename, "model.b.c");
}

TEST(ConfigLoaderTest, MapsALegacyPlatformToItsBackend) {
  const TempModel model("platform: \"onnxruntime_onnx\"\n");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "onnxruntime");
  EXPECT_EQ(config->default_model_filename, "model.onnx");
}

TEST(ConfigLoaderTest, RejectsAModelWithoutAnyBackend) {
  const TempModel model("max_batch_size: 1\n");
  EXPECT_NE(ErrorOf(model).find("Could not determine backend for model 'm'"), std::string::npos);
}

TEST(ConfigLoaderTest, PrefersTheNamedConfigFile) {
  const TempModel model("backend: \"usual\"\n");
  model.Write("configs/special.pbtxt", "backend: \"special\"\n");
  ConfigSource folder = model.folder();
  folder.config_name = "special";
  EXPECT_EQ(ReadModelConfig(folder)->backend, "special");
  folder.config_name = "absent";
  EXPECT_EQ(ReadModelConfig(folder)->backend, "usual");
}

TEST(ConfigLoaderTest, AFolderIsNotAConfigFile) {
  const TempModel model("backend: \"b\"\n");
  const std::filesystem::path file = std::filesystem::path(model.folder().path) / "config.pbtxt";
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_NE(ErrorOf(model).find("got a directory"), std::string::npos) << ErrorOf(model);
}

TEST(ConfigLoaderTest, ReadsSecondaryDevices) {
  const TempModel model(std::string(kIo) +
                        "instance_group { secondary_devices { kind: KIND_NVDLA device_id: 3 } }\n");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto& devices = config->instance_groups.at(0).secondary_devices;
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].kind, "KIND_NVDLA");
  EXPECT_EQ(devices[0].device_id, 3);
}

TEST(ConfigLoaderTest, ReadsAnOverrideInJson) {
  const TempModel model("backend: \"file\"\n");
  ConfigSource folder = model.folder();
  folder.config_override = R"({"backend": "json", "maxBatchSize": "3", "input":
      [{"name": "I", "data_type": "TYPE_FP32", "dims": ["-1", 2]}]})";
  const auto config = ReadModelConfig(folder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->backend, "json");
  EXPECT_EQ(config->max_batch_size, 3);
  EXPECT_EQ(config->inputs.at(0).dims, (std::vector<int64_t>{-1, 2}));
}

TEST(ConfigLoaderTest, NamesErrorsInAnOverride) {
  const TempModel model("");
  const auto error = [&](const std::string& json) {
    ConfigSource folder = model.folder();
    folder.config_override = json;
    return ReadModelConfig(folder).status().message();
  };
  EXPECT_EQ(error("{bad"), "Invalid config override: line 1: not valid JSON at byte 2");
  EXPECT_EQ(error(R"({"zzz": 1})"),
            "Invalid config override: zzz: unknown field 'zzz' in ModelConfig");
  EXPECT_EQ(error(R"({"backend": "b", "input": [{"name": 3}]})"),
            "Invalid config override: input[0].name: expected a string, got 3");
  EXPECT_EQ(error(R"({"backend": "b", "max_batch_size": 3000000000})"),
            "Invalid config override: max_batch_size: expected a 32-bit integer, got 3000000000");
  EXPECT_EQ(error(R"({"backend": "b", "dynamic_batching": {}, "sequence_batching": {}})"),
            "Invalid config override: sequence_batching: only one of the fields of "
            "'scheduling_choice' may be set");
  EXPECT_EQ(error("[1]"), "Invalid config override: expected an object, got [1]");
  EXPECT_EQ(error("{\"max_batch_size\":\n1e999}"),
            "Invalid config override: line 2: not valid JSON at byte 24");
}

TEST(ConfigLoaderTest, RefusesAnOverrideThatIsNestedTooDeep) {
  const TempModel model("");
  ConfigSource folder = model.folder();
  folder.config_override = StrCat(R"({"backend": "b", "input": )", std::string(40'000, '['),
                                  std::string(40'000, ']'), "}");
  EXPECT_EQ(ReadModelConfig(folder).status().message(),
            "Invalid config override: line 1: 'input' is nested 40001 levels deep, limit 64");
}

TEST(ConfigLoaderTest, NamesTheFirstOfManyWrongFieldsInAnOverride) {
  const TempModel model("");
  ConfigSource folder = model.folder();
  std::string json = "{";
  for (int i = 0; i < 200'000; ++i) json += StrCat(i == 0 ? "" : ",", "\"key", i, "\":0");
  folder.config_override = json + "}";
  const std::string message = ReadModelConfig(folder).status().message();
  EXPECT_NE(message.find("key7: unknown field 'key7' in ModelConfig"), std::string::npos);
  EXPECT_EQ(message.find("key8:"), std::string::npos);
  EXPECT_NE(message.find("; and 199992 more errors"), std::string::npos);
  EXPECT_LT(message.size(), 1000U);
}

TEST(ConfigLoaderTest, ReadsAnOverrideWithManyParameters) {
  const TempModel model("");
  ConfigSource folder = model.folder();
  std::string json = R"({"backend": "b", "parameters": {)";
  for (int i = 0; i < 100'000; ++i) {
    json += StrCat(i == 0 ? "" : ",", "\"key", i, R"(":{"string_value":"x"})");
  }
  folder.config_override = json + "}}";
  const auto config = ReadModelConfig(folder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->parameters.size(), 100'000U);
}

TEST(ConfigLoaderTest, RefusesNegativeCounts) {
  const auto message = [](const std::string& text) {
    return ReadModelConfig(TempModel("backend: 'b' " + text).folder()).status().message();
  };
  EXPECT_NE(message("instance_group { count: -5 }")
                .find(":1:31: instance_group[0].count: expected 0 or more for m, got -5"),
            std::string::npos)
      << message("instance_group { count: -5 }");
  for (const auto& [text, key] : {
           std::pair{"instance_group { gpus: [-1] }", "instance_group[0].gpus"},
           {"instance_group { secondary_devices { device_id: -1 } }",
            "instance_group[0].secondary_devices"},
           {"sequence_batching { oldest { max_candidate_sequences: -1 } }",
            "sequence_batching.oldest.max_candidate_sequences"},
           {"max_batch_size: -1", "max_batch_size"},
       }) {
    EXPECT_NE(message(text).find(key), std::string::npos) << text << ": " << message(text);
  }
}

TEST(ConfigLoaderTest, RefusesAModelFileOutsideOfTheVersionsFolder) {
  for (const char* name : {"/tmp/model.py", "../2/model.py", "a/../../b"}) {
    const std::string message =
        ReadModelConfig(
            TempModel(StrCat("backend: 'b' default_model_filename: '", name, "'")).folder())
            .status()
            .message();
    EXPECT_NE(message.find(StrCat("default_model_filename: expected a path inside of the version's "
                                  "folder, got '",
                                  name, "'")),
              std::string::npos)
        << message;
  }
  EXPECT_TRUE(
      ReadModelConfig(TempModel("backend: 'b' default_model_filename: 'a/b..c'").folder()).ok());
}

TEST(ConfigLoaderTest, RefusesAConfigurationThatIsNoRegularFile) {
  const TempModel model("");
  const std::string path = model.folder().path + "/config.pbtxt";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadModelConfig(model.folder()).status().message(),
            "cannot read '" + path + "': expected a regular file, got a FIFO");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(ReadModelConfig(model.folder()).status().message(),
            "cannot read '" + path + "': expected a regular file, got a device");
}

// Accepts the same spellings of booleans, numbers and enum values as protobuf's JSON parser.
TEST(ConfigLoaderTest, ReadsScalarsOfAnOverrideAsProtobufDoes) {
  const TempModel model("");
  ConfigSource folder = model.folder();
  folder.config_override = R"({"backend": "b", "max_batch_size": "+4",
    "input": [{"name": "A", "data_type": "11", "dims": ["+3"]},
              {"name": "B", "data_type": "type-fp32", "dims": [1]}],
    "optimization": {"eager_batching": "True", "cuda": {"graphs": "1", "busy_wait_events": "no"}}})";
  const auto config = ReadModelConfig(folder);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto json = nlohmann::json::parse(JsonText(*config));
  EXPECT_EQ(json["max_batch_size"], 4);
  EXPECT_EQ(json["input"][0]["data_type"], "TYPE_FP32");
  EXPECT_EQ(json["input"][0]["dims"], nlohmann::json({3}));
  EXPECT_EQ(json["input"][1]["data_type"], "TYPE_FP32");
  EXPECT_EQ(json["optimization"]["eager_batching"], true);
  EXPECT_EQ(json["optimization"]["cuda"]["graphs"], true);
  EXPECT_EQ(json["optimization"]["cuda"]["busy_wait_events"], false);
  for (const char* wrong : {"++4", "+-4", "+", "maybe"}) {
    folder.config_override = std::string(R"({"backend": "b", "max_batch_size": ")") + wrong + "\"}";
    EXPECT_FALSE(ReadModelConfig(folder).ok()) << wrong;
  }
}

// The expected numbers are those of Triton 2.51 at /v2/models/<model>/config.
TEST(ConfigLoaderTest, WritesFractionsWithTheSameDigitsAsTriton) {
  const TempModel model(std::string(kIo) +
                        "max_batch_size: 4 sequence_batching { direct { minimum_slot_utilization: "
                        "0.3333333333 } control_input { name: 'S' control { kind: "
                        "CONTROL_SEQUENCE_START fp32_false_true: [ 0.1, 1e-8 ] } } }");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto batching = nlohmann::json::parse(JsonText(*config))["sequence_batching"];
  EXPECT_EQ(batching["direct"]["minimum_slot_utilization"], 0.333333343);
  EXPECT_EQ(batching["control_input"][0]["control"][0]["fp32_false_true"],
            nlohmann::json({0.1, 1e-8}));
}

TEST(ConfigLoaderTest, ReadsControlValuesThatAreStringsInJson) {
  const TempModel model(std::string(kIo) +
                        "max_batch_size: 4 sequence_batching { control_input { name: 'S' control { "
                        "kind: CONTROL_SEQUENCE_START fp32_false_true: [ -inf, nan ] } } }");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  const std::vector<float>& values =
      config->sequence_batching->control_inputs.at(0).controls.at(0).fp32_false_true;
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(values[1]));
}

TEST(ConfigLoaderTest, AnEmptyVersionPolicyMeansAllVersions) {
  const auto kind_of = [](const std::string& text) {
    const TempModel model(kIo + text);
    return ReadModelConfig(model.folder()).value().version_policy.kind;
  };
  EXPECT_EQ(kind_of("version_policy { }"), VersionPolicy::Kind::kAll);
  EXPECT_EQ(kind_of("version_policy { all { } }"), VersionPolicy::Kind::kAll);
  EXPECT_EQ(kind_of("version_policy { latest { num_versions: 2 } }"), VersionPolicy::Kind::kLatest);
  EXPECT_EQ(kind_of(""), VersionPolicy::Kind::kLatest);
  const TempModel model(std::string(kIo) + "version_policy { }");
  const auto json = nlohmann::json::parse(JsonText(ReadModelConfig(model.folder()).value()));
  EXPECT_EQ(json["version_policy"], nlohmann::json::object());
}

TEST(ConfigLoaderTest, SurvivesHostileText) {
  for (const std::string& text :
       {std::string("{"), std::string("}"), std::string("input ["), std::string(100000, '{'),
        std::string("name: \"a"), std::string("\xff\xfe\x00 name", 8), std::string("input: $")}) {
    const TempModel model(text);
    EXPECT_FALSE(ReadModelConfig(model.folder()).ok());
  }
}

TEST(ConfigLoaderTest, WritesEveryFieldToTheJson) {
  const TempModel model(std::string(kIo) + R"(
optimization { graph { level: 1 } priority: PRIORITY_MAX cuda { graphs: true graph_spec {
  batch_size: 2 input { key: "I" value { dim: [ 9223372036854775807 ] } } } }
  execution_accelerators { gpu_execution_accelerator { name: "tensorrt" parameters { key: "a" value: "b" } } } }
cc_model_filenames { key: "9.0" value: "f" }
metric_tags { key: "t" value: "v" }
batch_input { kind: BATCH_ITEM_SHAPE target_name: "T" data_type: TYPE_INT64 source_input: "I" }
model_metrics { metric_control { metric_identifier { family: "f" } histogram_options { buckets: [ 0.1, 2 ] } } }
)");
  const auto config = ReadModelConfig(model.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto json = nlohmann::json::parse(JsonText(*config));
  EXPECT_EQ(json["optimization"]["cuda"]["graph_spec"][0]["input"]["I"]["dim"][0],
            "9223372036854775807");
  EXPECT_EQ(json["optimization"]["priority"], "PRIORITY_MAX");
  EXPECT_EQ(json["optimization"]["execution_accelerators"]["gpu_execution_accelerator"][0]
                ["parameters"]["a"],
            "b");
  EXPECT_EQ(json["batch_input"][0]["kind"], "BATCH_ITEM_SHAPE");
  EXPECT_EQ(json["cc_model_filenames"]["9.0"], "f");
  EXPECT_EQ(json["model_metrics"]["metric_control"][0]["histogram_options"]["buckets"],
            nlohmann::json({0.1, 2}));
  EXPECT_EQ(config->metric_tags.at("t"), "v");
  EXPECT_EQ(config->metric_overrides.at(0).buckets, (std::vector<double>{0.1, 2}));
}

}  // namespace
}  // namespace nereid::core::config
