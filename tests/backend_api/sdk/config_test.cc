// Tests Json, ModelConfig and ConfigDraft.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nereid/json.h"
#include "nereid/model_config.h"

namespace nereid {
namespace {

Json Parsed(std::string_view text) {
  Result<Json> json = Json::Parse(text);
  EXPECT_TRUE(json.ok()) << text << ": " << json.status().message();
  return json.ok() ? *json : Json();
}

TEST(JsonTest, ReadsEveryKind) {
  const Json json =
      Parsed(R"( {"a":[1,-2.5e1,"9007199254740993"],"b":{"c":true,"d":null},"e":""} )");
  EXPECT_EQ(json["a"].elements()[0].AsInt(), 1);
  EXPECT_EQ(json["a"].elements()[1].AsDouble(), -25);
  EXPECT_EQ(json["a"].elements()[2].AsInt(), 9007199254740993) << "64-bit numbers come as strings";
  EXPECT_TRUE(json["b"]["c"].AsBool());
  EXPECT_TRUE(json["b"]["d"].is_null());
  EXPECT_TRUE(json["no"]["such"]["path"].is_null());
  EXPECT_EQ(json["e"].AsInt(7), 7);
}

TEST(JsonTest, ReadsEscapes) {
  EXPECT_EQ(Parsed(R"("\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00")").AsString(),
            "\"\\/\b\f\n\r\t\u00e9\u20ac\U0001f600");
}

TEST(JsonTest, WritesWhatItRead) {
  const std::string text = R"({"z":[1.50,true,null,"\"\\\u0001"],"a":{}})";
  EXPECT_EQ(Parsed(text).Dump(), text);
}

TEST(JsonTest, RefusesWhatIsNoJson) {
  for (const char* text :
       {"",      " ",        "{",  "}",       "[1,]",        "{\"a\"}",     "{\"a\":}",
        "{a:1}", "\"\x01\"", "\"", "\"\\x\"", "\"\\ud800\"", "\"\\u12g4\"", "tru",
        "1 2",   "--1",      "1e", "+1",      "nan",         "[1",          "{\"a\":1,}"}) {
    EXPECT_EQ(Json::Parse(text).status().code(), StatusCode::kInvalidArg) << text;
  }
  EXPECT_EQ(Json::Parse("[1, x]").status().message(), "JSON: unexpected text at byte 4");
}

TEST(JsonTest, DepthIsBounded) {
  EXPECT_FALSE(Json::Parse(std::string(100000, '[')).ok());
  EXPECT_TRUE(Json::Parse(std::string(50, '[') + std::string(50, ']')).ok());
}

constexpr char kConfig[] = R"({
  "name":"m","max_batch_size":8,"model_transaction_policy":{"decoupled":true},
  "input":[{"name":"IN","data_type":"TYPE_STRING","dims":[-1,3],"optional":true}],
  "output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[1]}],
  "parameters":{"path":{"string_value":"/x"},"empty":{"string_value":""},
                "unfilled":{"string_value":"${engine_dir}"},"n":{"string_value":"12"},
                "f":{"string_value":"0.5"},"yes":{"string_value":"True"},"no":{"string_value":"0"}}})";

TEST(ModelConfigTest, ReadsTensorsAndPolicy) {
  const Result<ModelConfig> config = ModelConfig::Parse(kConfig);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->name(), "m");
  EXPECT_EQ(config->max_batch_size(), 8);
  EXPECT_TRUE(config->is_decoupled());
  ASSERT_EQ(config->inputs().size(), 1u);
  EXPECT_EQ(config->inputs()[0].datatype, DataType::kBytes);
  EXPECT_EQ(config->inputs()[0].dims, (std::vector<int64_t>{-1, 3}));
  EXPECT_TRUE(config->inputs()[0].is_optional);
  EXPECT_FALSE(config->outputs()[0].is_optional);
}

TEST(ModelConfigTest, AnUnfilledParameterIsUnset) {
  const ModelConfig config = *ModelConfig::Parse(kConfig);
  EXPECT_EQ(config.parameters().String("path"), "/x");
  EXPECT_EQ(config.parameters().String("empty", "default"), "default");
  EXPECT_EQ(config.parameters().String("unfilled", "default"), "default");
  EXPECT_EQ(config.parameters().RequiredString("unfilled").status().message(),
            "parameter 'unfilled': expected a value, got none");
}

TEST(ModelConfigTest, ParametersAreReadAsTheTypeAskedFor) {
  const ModelConfig config = *ModelConfig::Parse(kConfig);
  EXPECT_EQ(*config.parameters().Int("n", 0), 12);
  EXPECT_EQ(*config.parameters().Int("absent", 7), 7);
  EXPECT_EQ(*config.parameters().Double("f", 0), 0.5);
  EXPECT_TRUE(*config.parameters().Bool("yes", false));
  EXPECT_FALSE(*config.parameters().Bool("no", true));
  EXPECT_EQ(config.parameters().Int("f", 0).status().message(),
            "parameter 'f': expected an integer, got '0.5'");
  EXPECT_EQ(config.parameters().Bool("path", true).status().message(),
            "parameter 'path': expected true or false, got '/x'");
}

TEST(ConfigTest, OptionsOfABackendAreTyped) {
  const Result<Json> json = Json::Parse(R"({"cmdline":{"max-words":"12","name":"${x}"}})");
  ASSERT_TRUE(json.ok());
  const ConfigParameters options = ConfigParameters::OfBackend(*json);
  EXPECT_EQ(*options.Int("max-words", 0), 12);
  EXPECT_EQ(*options.Int("absent", 7), 7);
  EXPECT_EQ(options.String("name"), "${x}");
}

TEST(ConfigDraftTest, FillsInWhatIsMissing) {
  ConfigDraft draft(
      Parsed(R"({"name":"m","input":[{"name":"A","data_type":"TYPE_FP32","dims":[]}]})"));
  EXPECT_TRUE(draft.AddInput({"A", DataType::kFp32, {4}}).ok());
  EXPECT_TRUE(draft.AddInput({"B", DataType::kBytes, {-1}, /*is_optional=*/true}).ok());
  EXPECT_TRUE(draft.AddOutput({"C", DataType::kInt32, {1}}).ok());
  draft.SetMaxBatchSize(4);
  draft.SetDynamicBatching();
  draft.SetDecoupled(true);
  EXPECT_EQ(draft.json().Dump(),
            R"({"name":"m","input":[{"name":"A","data_type":"TYPE_FP32","dims":[4]},)"
            R"({"name":"B","data_type":"TYPE_STRING","dims":[-1],"optional":true}],)"
            R"("output":[{"name":"C","data_type":"TYPE_INT32","dims":[1]}],"max_batch_size":4,)"
            R"("dynamic_batching":{},"model_transaction_policy":{"decoupled":true}})");
}

TEST(ConfigDraftTest, KeepsWhatIsConfigured) {
  ConfigDraft draft(Parsed(R"({"max_batch_size":2,"sequence_batching":{}})"));
  draft.SetMaxBatchSize(4);
  draft.SetDynamicBatching();
  EXPECT_EQ(draft.json().Dump(), R"({"max_batch_size":2,"sequence_batching":{}})");
}

TEST(ConfigDraftTest, NamesATensorThatDisagrees) {
  ConfigDraft draft(Parsed(R"({"input":[{"name":"A","data_type":"TYPE_INT32","dims":[4]}]})"));
  EXPECT_EQ(draft.AddInput({"A", DataType::kFp32, {4}}).message(),
            "input 'A': expected TYPE_FP32, config.pbtxt says TYPE_INT32");
  EXPECT_EQ(draft.AddInput({"A", DataType::kInt32, {5}}).message(),
            "input 'A': expected dims [5], config.pbtxt says [4]");
}

}  // namespace
}  // namespace nereid
