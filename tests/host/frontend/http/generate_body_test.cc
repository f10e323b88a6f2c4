// Tests of ParseGenerateBody: members of the flat object become tensors and parameters.
#include "host/frontend/http/bodies/generate_body.h"

#include <gtest/gtest.h>

#include <map>

#include "backends/llm_tables/engine_tensors.h"
#include "host/frontend/http/bodies/generate_members.h"

namespace nereid::http {
namespace {

ModelSignature Model() {
  Result<ModelSignature> model = ParseModelSignature(
      R"({"name":"m","versions":["1"],"inputs":[
          {"name":"text_input","datatype":"BYTES","shape":[-1,1]},
          {"name":"max_tokens","datatype":"INT32","shape":[-1,1]},
          {"name":"ids","datatype":"INT32","shape":[1,-1]},
          {"name":"image","datatype":"FP32","shape":[-1,2,2]},
          {"name":"stream","datatype":"BOOL","shape":[1]}],"outputs":[]})");
  EXPECT_TRUE(model.ok());
  return *model;
}

Status ParseGenerateBody(std::string_view json, GenerateBody& body) {
  return ParseGenerateBody(json, Model(), 64, body);
}

std::string GenerateBodyError(std::string_view json) {
  GenerateBody body;
  const Status status = ParseGenerateBody(json, body);
  return status.ok() ? "no error" : status.message();
}

TEST(GenerateBodyTest, MembersThatNameInputsBecomeTensors) {
  GenerateBody body;
  const Status status =
      ParseGenerateBody(R"({"text_input":"hi","max_tokens":5,"ids":[1,2,3],"stream":true})", body);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(body.inputs.size(), 4u);
  EXPECT_EQ(body.inputs[0].shape, (InlineVector<int64_t, 6>{1, 1}));
  EXPECT_EQ(body.inputs[0].bytes(), std::string_view("\2\0\0\0hi", 6));
  EXPECT_EQ(body.inputs[2].shape, (InlineVector<int64_t, 6>{1, 3}));
  EXPECT_EQ(body.inputs[3].shape, (InlineVector<int64_t, 6>{1}));
}

TEST(GenerateBodyTest, MisspeltInputsOfALanguageModelAreRefused) {
  EXPECT_EQ(GenerateBodyError(R"({"text_input":"hi","max_token":5})"),
            "unknown member 'max_token'; did you mean 'max_tokens'?");
  EXPECT_EQ(GenerateBodyError(R"({"parameters":{"max_token":[5]}})"),
            "unknown member 'max_token'; did you mean 'max_tokens'?");
  GenerateBody body;
  EXPECT_TRUE(ParseGenerateBody(R"({"max_token":5})", ModelSignature(), 64, body).ok());
}

TEST(GenerateBodyTest, MembersThatNoLanguageModelReadsAreNoted) {
  GenerateBody body;
  ASSERT_TRUE(ParseGenerateBody(R"({"text_input":"hi","id":"7","custom_option":5,
                        "parameters":{"max_tokens":5,"timeout":9,"other":true}})",
                                body)
                  .ok());
  EXPECT_EQ(body.unknown_members, (std::vector<std::string>{"custom_option", "other"}));
  GenerateBody image;
  ASSERT_TRUE(ParseGenerateBody(R"({"custom_option":5})", ModelSignature(), 64, image).ok());
  EXPECT_TRUE(image.unknown_members.empty()) << "other models may read parameters";
}

TEST(GenerateBodyTest, TheEngineAndItsPreprocessingAreLanguageModels) {
  ModelSignature engine;
  for (const char* name : {"input_ids", "request_output_len", "temperature"}) {
    engine.inputs.push_back({name, TRITONSERVER_TYPE_FP32, {1}});
  }
  GenerateBody body;
  EXPECT_EQ(ParseGenerateBody(R"({"temprature":1})", engine, 64, body).message(),
            "unknown member 'temprature'; did you mean 'temperature'?");
  ModelSignature preprocessing;
  for (const char* name : {"QUERY", "REQUEST_OUTPUT_LEN"}) {
    preprocessing.inputs.push_back({name, TRITONSERVER_TYPE_FP32, {1}});
  }
  EXPECT_TRUE(IsLanguageModel(preprocessing));
}

TEST(GenerateBodyTest, MembersThatAskForAMissingFeatureAreRefused) {
  EXPECT_EQ(GenerateBodyError(R"({"text_input":"hi","mrope_position_deltas":3})"),
            "member 'mrope_position_deltas': this feature is not supported (multimodal rotary "
            "positions)");
  EXPECT_EQ(GenerateBodyError(R"({"text_input":"hi","skip_cross_attn_blocks":true})"),
            "member 'skip_cross_attn_blocks': this feature is not supported (cross attention)");
  EXPECT_EQ(GenerateBodyError(R"({"text_input":"hi","skip_cross_attn_blocks":false})"), "no error");
}

TEST(GenerateBodyTest, TheMissingFeaturesAreThoseOfTheEnginesTable) {
  std::map<std::string_view, std::string_view> of_table, here;
  for (const llm::EngineInput& input : llm::EngineInputs()) {
    const bool is_missing = input.rule == llm::InputRule::kRefuseNonEmpty ||
                            input.rule == llm::InputRule::kRefuseTrue ||
                            input.rule == llm::InputRule::kRefuseNonZero;
    if (is_missing) of_table[input.name] = input.about;
  }
  for (const MissingFeature& missing : MissingFeatures()) here[missing.member] = missing.feature;
  EXPECT_EQ(here, of_table);
}

TEST(GenerateBodyTest, TheInnermostVariableDimensionFollowsFromTheElementCount) {
  GenerateBody body;
  ASSERT_TRUE(
      ParseGenerateBody(R"({"image":[1,2,3,4,5,6,7,8],"text_input":["a","b"]})", body).ok());
  EXPECT_EQ(body.inputs[0].shape, (InlineVector<int64_t, 6>{2, 2, 2}));
  EXPECT_EQ(body.inputs[1].shape, (InlineVector<int64_t, 6>{2, 1}));
}

TEST(GenerateBodyTest, ElementsMustFillTheShape) {
  EXPECT_EQ(GenerateBodyError(R"({"image":[1,2,3]})"),
            "The schema can not convert input 'image' to tensor with proper shape");
  EXPECT_EQ(GenerateBodyError(R"({"stream":[true,false]})"),
            "The schema can not convert input 'stream' to tensor with proper shape");
}

TEST(GenerateBodyTest, NestedArraysMustNotAddElements) {
  GenerateBody body;
  ASSERT_TRUE(ParseGenerateBody(R"({"ids":[[1],[2],3],"text_input":[["a"]]})", body).ok());
  EXPECT_EQ(body.inputs[0].shape, (InlineVector<int64_t, 6>{1, 3}));
  EXPECT_EQ(body.inputs[1].shape, (InlineVector<int64_t, 6>{1, 1}));
  for (const char* json : {R"({"ids":[[1,2,3]]})", R"({"ids":[[]]})", R"({"ids":[[1,2],[3]]})"}) {
    EXPECT_EQ(GenerateBodyError(json),
              "input 'ids': Shape does not match true shape of 'data' field");
  }
}

TEST(GenerateBodyTest, OtherMembersBecomeParameters) {
  GenerateBody body;
  ASSERT_TRUE(ParseGenerateBody(
                  R"({"a":"x","b":-2,"c":0.5,"d":true,"parameters":{"e":1,"priority":3}})", body)
                  .ok());
  ASSERT_EQ(body.options.parameters.size(), 5u);
  EXPECT_EQ(body.options.parameters[4].name, "e");
  EXPECT_EQ(body.options.priority, 3u);
}

TEST(GenerateBodyTest, NestedParametersMayNameInputs) {
  GenerateBody body;
  ASSERT_TRUE(
      ParseGenerateBody(
          R"({"text_input":"hi","parameters":{"max_tokens":5,"stream":true,"seed":1}})", body)
          .ok());
  ASSERT_EQ(body.inputs.size(), 3u);
  EXPECT_EQ(body.inputs[1].name, "max_tokens");
  EXPECT_EQ(body.inputs[1].shape, (InlineVector<int64_t, 6>{1, 1}));
  ASSERT_EQ(body.options.parameters.size(), 1u);
  EXPECT_EQ(body.options.parameters[0].name, "seed");
}

TEST(GenerateBodyTest, TheIdBecomesTheRequestId) {
  GenerateBody body;
  ASSERT_TRUE(ParseGenerateBody(R"({"id":"g1"})", body).ok());
  EXPECT_EQ(body.options.id, "g1");
}

TEST(GenerateBodyTest, AnInputMayBeNamedIdButNotParameters) {
  const Result<ModelSignature> model = ParseModelSignature(
      R"({"inputs":[{"name":"id","datatype":"BYTES","shape":[1]},
                    {"name":"parameters","datatype":"BYTES","shape":[1]}]})");
  ASSERT_TRUE(model.ok());
  GenerateBody body;
  ASSERT_TRUE(ParseGenerateBody(R"({"id":"g1"})", *model, 64, body).ok());
  EXPECT_EQ(body.options.id, "g1");
  ASSERT_EQ(body.inputs.size(), 1u);
  EXPECT_EQ(body.inputs[0].bytes(), std::string_view("\2\0\0\0g1", 6));
  EXPECT_TRUE(body.options.parameters.empty());
  GenerateBody refused;
  EXPECT_EQ(ParseGenerateBody(R"({"parameters":"x"})", *model, 64, refused).message(),
            "Keyword 'parameters' for nested schema also given as input tensor name");
}

TEST(GenerateBodyTest, RejectsInvalidBodiesAndNamesTheMember) {
  EXPECT_EQ(GenerateBodyError(R"({"max_tokens":"five"})"),
            "input 'max_tokens': invalid JSON at byte 14: expected a number, got a string");
  EXPECT_EQ(GenerateBodyError(R"({"foo":[1]})"),
            "parameter 'foo' has invalid type. It should be either 'int', 'bool', or 'string'.");
  EXPECT_EQ(GenerateBodyError(R"({"parameters":{"foo":null}})"),
            "Converting keyword: 'parameters': parameter 'foo' has invalid type. It should be "
            "either 'int', 'bool', or 'string'.");
  for (const char* json :
       {"", "[]", "{", R"({"text_input":null})", R"({"foo":{}})", R"({"foo":null})", R"({"id":7})",
        R"({"max_tokens":3000000000})", R"({"max_tokens":1.5})",
        R"({"text_input":"a","text_input":"b"})", R"({"text_input":"a"} x)"}) {
    EXPECT_NE(GenerateBodyError(json), "no error") << json;
  }
}

}  // namespace
}  // namespace nereid::http
