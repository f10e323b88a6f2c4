// Loading of tokenizer.json: accepted contents, and refusal of invalid or unsupported files by
// name.
#include <fstream>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;

std::string Refusal(const std::string& text, StatusCode code) {
  const auto tokenizer = Tokenizer::FromJson(text);
  EXPECT_FALSE(tokenizer.ok()) << text.substr(0, 200);
  if (tokenizer.ok()) return "";
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().message();
  return tokenizer.status().message();
}

void ExpectRefusal(const json& spec, StatusCode code, const std::string& name) {
  const std::string message = Refusal(spec.dump(), code);
  EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(TokenizerJsonTest, ReadsMergesInBothFormats) {
  json pairs = ByteLevelSpec({"h e", "l l"});
  pairs["model"]["merges"] = json::array({json::array({"h", "e"}), json::array({"l", "l"})});
  json lines = ByteLevelSpec({"h e", "l l"});
  lines["model"]["merges"].insert(lines["model"]["merges"].begin(), "#version: 0.2");
  EXPECT_EQ(Ids(*MustLoad(pairs), "hello"), (std::vector<int32_t>{256, 257, 'o'}));
  EXPECT_EQ(Ids(*MustLoad(lines), "hello"), (std::vector<int32_t>{256, 257, 'o'}));
}

TEST(TokenizerJsonTest, TemplatesAddTheirTokens) {
  json spec = ByteLevelSpec({});
  const auto piece = [](const char* id) -> json { return {{"SpecialToken", {{"id", id}}}}; };
  spec["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {piece("B"), {{"Sequence", {{"id", "A"}}}}, piece("E"), piece("E")}},
         {"special_tokens", {{"B", {{"ids", {300}}}}, {"E", {{"ids", {301, 302}}}}}}}}}};
  const auto tokenizer = MustLoad(spec);
  EXPECT_EQ(Ids(*tokenizer, "a", true), (std::vector<int32_t>{300, 'a', 301, 302, 301, 302}));
  EXPECT_EQ(Ids(*tokenizer, "a", false), (std::vector<int32_t>{'a'}));
  EXPECT_EQ(Ids(*tokenizer, "", true), (std::vector<int32_t>{300, 301, 302, 301, 302}));
}

TEST(TokenizerJsonTest, RefusesUnsupportedComponentsByName) {
  const auto with = [](const char* key, json value) {
    json spec = ByteLevelSpec();
    spec[key] = std::move(value);
    return spec;
  };
  const auto with_model = [](const char* key, json value) {
    json spec = ByteLevelSpec();
    spec["model"][key] = std::move(value);
    return spec;
  };
  const auto kUnsupported = StatusCode::kUnsupported;
  ExpectRefusal(with_model("type", "Bigram"), kUnsupported, "Bigram");
  ExpectRefusal(with_model("dropout", 0.1), kUnsupported, "dropout");
  ExpectRefusal(with("normalizer", {{"type", "Uppercase"}}), kUnsupported, "Uppercase");
  ExpectRefusal(with("pre_tokenizer", {{"type", "Jieba"}}), kUnsupported, "Jieba");
  ExpectRefusal(with("decoder", {{"type", "Morse"}}), kUnsupported, "Morse");
  ExpectRefusal(with("post_processor", {{"type", "Magic"}}), kUnsupported, "Magic");
  ExpectRefusal(with("version", "2.0"), kUnsupported, "2.0");
}

TEST(TokenizerJsonTest, RefusesInvalidMembersByName) {
  const auto kInvalid = StatusCode::kInvalidArg;
  json spec = ByteLevelSpec();
  spec["model"]["merges"].push_back("q z");
  ExpectRefusal(spec, kInvalid, "'qz' is not in model.vocab");
  spec["model"]["merges"].back() = "one two three";
  ExpectRefusal(spec, kInvalid, "model.merges[5]");
  spec["model"]["merges"] = {{"h"}};
  ExpectRefusal(spec, kInvalid, "fewer than two");
  spec["model"]["merges"] = {{"h", "e", "l"}};
  ExpectRefusal(spec, kInvalid, "more than two");
  spec["model"]["merges"] = {3};
  ExpectRefusal(spec, kInvalid, "model.merges");
  spec["model"].erase("merges");
  ExpectRefusal(spec, kInvalid, "model.merges");
  spec = ByteLevelSpec();
  spec["model"]["vocab"]["x1"] = 4'000'000'000u;
  ExpectRefusal(spec, kInvalid, "'x1'");
  spec["model"]["vocab"]["x1"] = -1;
  ExpectRefusal(spec, kInvalid, "'x1'");
  spec["model"]["vocab"]["x1"] = {{"a", 1}};
  ExpectRefusal(spec, kInvalid, "model.vocab");
  spec = ByteLevelSpec();
  spec["model"]["unk_token"] = "nowhere";
  ExpectRefusal(spec, kInvalid, "nowhere");
  spec = ByteLevelSpec();
  spec["model"]["byte_fallback"] = "yes";
  ExpectRefusal(spec, kInvalid, "model.byte_fallback");
  spec = ByteLevelSpec();
  spec["added_tokens"] = {{{"content", 3}}};
  ExpectRefusal(spec, kInvalid, "added_tokens.content");
  spec = ByteLevelSpec();
  spec["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "B"}}}}}}};
  ExpectRefusal(spec, kInvalid, "TemplateProcessing");
}

TEST(TokenizerJsonTest, UnencodableTextIsErrorWithoutUnknownToken) {
  const json words = {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"ab", 0u}}}};
  const json pieces = json::array({json::array({"ab", -1.5}), json::array({"a", -2.5})});
  const json scored = {{"type", "Unigram"}, {"vocab", pieces}};
  for (const json& model : {words, scored}) {
    const auto loaded = Tokenizer::FromJson(json{{"model", model}}.dump());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(Ids(**loaded, "ab"), (std::vector<int32_t>{0}));
    for (const Status& status :
         {(*loaded)->Encode("x").status(), (*loaded)->EncodeDetailed("x").status()}) {
      EXPECT_NE(status.message().find("text of 1 bytes: the tokenizer has no token for a part"),
                std::string::npos)
          << status.message();
    }
  }
}

TEST(TokenizerJsonTest, RefusesInvalidDocuments) {
  for (const char* text :
       {"", "{", "[]", "null", "{} trailing", "\"a\"", "{\"model\": [1]}", "\xff{}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":[]}}", "{\"a\":1e999}"}) {
    EXPECT_FALSE(Tokenizer::FromJson(text).ok()) << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_NE(Refusal(deep, StatusCode::kInvalidArg).find("nested"), std::string::npos);
}

TEST(TokenizerJsonTest, RefusesTruncatedFiles) {
  const std::string whole = ByteLevelSpec().dump();
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_FALSE(Tokenizer::FromJson(whole.substr(0, size)).ok());
  }
}

// The ids are those of PyPI tokenizers. A text whose leading space a normalizer strips does not
// begin with its first word.
TEST(TokenizerJsonTest, MetaspaceFirstFollowsTheStartOfTheOriginalText) {
  json spec = MetaspaceSpec({"▁", "a", "▁a"}, {"▁ a"});
  spec["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
  spec["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  const auto tokenizer = MustLoad(spec);
  for (const auto& [text, ids] : {std::pair<const char*, std::vector<int32_t>>{"a a", {261, 261}},
                                  {" a a", {260, 261}},
                                  {"  a", {260}}}) {
    EXPECT_EQ(Ids(*tokenizer, text), ids) << text;
    EXPECT_EQ(tokenizer->EncodeDetailed(text, {.add_special_tokens = false})->ids, ids) << text;
  }
}

class TokenizerLoadTest : public TokenizerFolderTest {};

TEST_F(TokenizerLoadTest, NamesFilesThatWereLookedFor) {
  EXPECT_NE(LoadError(folder_.string()).find("neither tokenizer.json nor tokenizer.model"),
            std::string::npos);
  const std::string missing = (folder_ / "missing").string();
  EXPECT_NE(LoadError(missing).find(missing), std::string::npos);
  Write("tokenizer.json", "{");
  EXPECT_NE(LoadError(folder_.string()).find((folder_ / "tokenizer.json").string()),
            std::string::npos);
}

TEST(TokenizerTest, InvalidUtf8IsReplacedOrRefusedWithItsOffset) {
  const auto tokenizer = MustLoad(ByteLevelSpec({}));
  const auto replaced = tokenizer->Encode("ab\xFF\xFEz");
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(tokenizer->Decode(*replaced), "ab\uFFFD\uFFFDz");
  const auto refused = tokenizer->Encode("ab\xFF\xFEz", {.invalid_utf8 = InvalidUtf8::kRefuse});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refused.status().message(), "text of 5 bytes: not UTF-8 at byte 2");
}

}  // namespace
}  // namespace nereid::tokenizer
