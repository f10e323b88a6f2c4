// Tests of LlmSignature: what the metadata and the configurations of an ensemble say.
#include "host/frontend/openai/tensors/llm_signature.h"

#include <gtest/gtest.h>

#include "tests/host/frontend/openai/test_models.h"

namespace nereid::openai {
namespace {

constexpr char kMetadata[] = R"({"name":"e","platform":"ensemble",
    "inputs":[{"name":"text_input","datatype":"BYTES","shape":[-1,1]},
              {"name":"max_tokens","datatype":"INT32","shape":[-1,1]}],
    "outputs":[{"name":"text_output","datatype":"BYTES","shape":[-1]}]})";
constexpr char kConfig[] = R"({"name":"e",
    "input":[{"name":"text_input","optional":true},{"name":"max_tokens"}],
    "ensemble_scheduling":{"step":[
      {"model_name":"pre","input_map":{"QUERY":"text_input"},"output_map":{"INPUT_ID":"_ids"}},
      {"model_name":"llm","input_map":{"input_ids":"_ids"},"output_map":{"output_ids":"_out"}},
      {"model_name":"post","input_map":{"TOKENS_BATCH":"_out"},"output_map":{"OUTPUT":"text_output"}}]}})";

Result<std::string> ConfigOfDemo(const std::string& model) {
  if (model == "e") return std::string(kConfig);
  if (model == "llm") {
    return std::string(
        R"({"parameters":{"sampling_defaults":{"string_value":"generation_config"}},
            "model_transaction_policy":{"decoupled":true}})");
  }
  return NotFoundError(model);
}

TEST(LlmSignatureTest, AnEnsembleHasItsStepsAndDefaults) {
  const Result<LlmSignature> model = MakeLlmSignature(kMetadata, &ConfigOfDemo);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(model->can_complete() && !model->can_chat() && model->has_sampling_defaults);
  EXPECT_TRUE(model->is_decoupled);
  EXPECT_EQ(model->preprocessing.model, "pre");
  EXPECT_EQ(model->preprocessing.inputs.at("text_input"), "QUERY");
  EXPECT_EQ(model->postprocessing.model, "post");
  EXPECT_EQ(model->postprocessing.outputs.at("text_output"), "OUTPUT");
  EXPECT_TRUE(model->FindInput("text_input")->is_optional);
  EXPECT_FALSE(model->FindInput("max_tokens")->is_optional);
}

TEST(LlmSignatureTest, TheEngineMayLowerTheLengthOfASequence) {
  const auto length = [](const std::string& own, const std::string& of_engine) {
    const auto config_of = [&](const std::string& name) -> Result<std::string> {
      if (name == "e") {
        const std::string config = kConfig;
        return StrCat(config.substr(0, config.rfind('}')),
                      R"(,"parameters":{"max_model_len":{"string_value":")", own, R"("}}})");
      }
      return StrCat(R"({"parameters":{"max_seq_len":{"string_value":")", of_engine, R"("}}})");
    };
    return MakeLlmSignature(kMetadata, config_of).value().max_model_len;
  };
  EXPECT_EQ(length("1024", ""), 1024);
  EXPECT_EQ(length("1024", "32"), 32);
  EXPECT_EQ(length("1024", "4096"), 1024);
  EXPECT_EQ(length("", "32"), 0) << "the model may allow less";
  EXPECT_EQ(length("many", "x"), 0);
}

TEST(LlmSignatureTest, WhatAModelRecommendsReplacesTheDefaultsOfItsEngine) {
  const auto model_with = [](const std::string& parameters) {
    const Result<LlmSignature> model =
        MakeLlmSignature(kMetadata, [&](const std::string& name) -> Result<std::string> {
          if (name != "e") return ConfigOfDemo(name);
          const std::string config = kConfig;
          return StrCat(config.substr(0, config.rfind('}')), ",\"parameters\":{", parameters, "}}");
        });
    EXPECT_TRUE(model.ok());
    return *model;
  };
  const LlmSignature model = model_with(
      R"("default_temperature":{"string_value":"0.6"},"default_top_p":{"string_value":""},
         "default_top_k":{"string_value":"many"})");
  EXPECT_FALSE(model.has_sampling_defaults);
  EXPECT_EQ(model.Recommended("temperature"), 0.6);
  EXPECT_EQ(model.Recommended("top_p"), std::nullopt);
  EXPECT_EQ(model.Recommended("top_k"), std::nullopt);
  EXPECT_FALSE(model_with(R"("default_temperature":{"string_value":""})").has_sampling_defaults);
  EXPECT_TRUE(model_with("").has_sampling_defaults);
}

TEST(LlmSignatureTest, AModelHasTheAdaptersOfItsEngine) {
  const auto model =
      MakeLlmSignature(kMetadata, [](const std::string& name) -> Result<std::string> {
        if (name != "llm") return ConfigOfDemo(name);
        return std::string(
            R"({"parameters":{"lora_adapters":{"string_value":"a=/x/a, b-1=y,\n,c=z=1"}}})");
      });
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->adapters, (std::vector<std::string>{"a", "b-1", "c"}));
  EXPECT_EQ(model->name, "e");
  EXPECT_EQ(model->model, "e");
}

TEST(LlmSignatureTest, AModelWithoutTextIsNoLanguageModel) {
  const LlmSignature model =
      MakeModel({{"INPUT", "FP32", "[4]"}}, {{"text_output", "BYTES", "[1]"}});
  EXPECT_FALSE(model.is_language_model());
  EXPECT_FALSE(MakeModel({{"text_input", "BYTES", "[1]"}}, {}).is_language_model());
}

TEST(LlmSignatureTest, AConfigurationOfAnyFormIsReadWithoutFault) {
  for (const char* const config :
       {R"({"input":5})", R"({"input":[3]})", R"({"ensemble_scheduling":{"step":7}})",
        R"({"ensemble_scheduling":{"step":[{"input_map":[]}]}})", R"({"parameters":[1]})"}) {
    (void)MakeLlmSignature(kMetadata, [&](const std::string&) { return std::string(config); });
  }
  EXPECT_FALSE(MakeLlmSignature(kMetadata, [](const std::string&) {
                 return Result<std::string>(InternalError("x"));
               }).ok());
}

}  // namespace
}  // namespace nereid::openai
