// Effects of side files: special ids, additional tokens and prefix spaces. One published family,
// which is another family's model with added tokens, is compared with the reference's ids.
#include <sys/stat.h>

#include <map>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;

class SideFilesTest : public TokenizerFolderTest {};

TEST_F(SideFilesTest, FilesNameSpecialIds) {
  Write("tokenizer.json", ByteLevelSpec().dump());
  EXPECT_EQ((*Tokenizer::Load(folder_.string()))->special_ids().eos, std::nullopt);
  Write("generation_config.json",
        R"({"eos_token_id": [7, 8], "pad_token_id": 9, "bos_token_id": null})");
  EXPECT_EQ((*Tokenizer::Load(folder_.string()))->special_ids().eos, 7);
  Write("special_tokens_map.json", R"({"eos_token": {"content": "<|end|>", "lstrip": false}})");
  Write("tokenizer_config.json", R"({"bos_token": "h", "eos_token": null})");
  const auto tokenizer = *Tokenizer::Load(folder_.string());
  EXPECT_EQ(tokenizer->special_ids().bos, 'h');
  EXPECT_EQ(tokenizer->special_ids().eos, tokenizer->TokenToId("<|end|>"));
  EXPECT_EQ(tokenizer->special_ids().pad, 9);
  EXPECT_TRUE(tokenizer->IsSpecial(*tokenizer->special_ids().eos));
  Write("tokenizer_config.json", "{");
  EXPECT_NE(LoadError(folder_.string()).find("tokenizer_config.json"), std::string::npos);
}

TEST_F(SideFilesTest, SpecialTokensMapOverridesConfigWithoutAddedTokensDecoder) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("special_tokens_map.json", R"({"eos_token": "A", "unk_token": "U"})");
  json config = {{"eos_token", "B"}, {"bos_token", "C"}};
  Write("tokenizer_config.json", config.dump());
  auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().eos, 'A');
  EXPECT_EQ(tokenizer->special_ids().bos, 'C');
  EXPECT_EQ(tokenizer->special_ids().unk, 'U');
  EXPECT_TRUE(tokenizer->IsSpecial('A'));
  EXPECT_FALSE(tokenizer->IsSpecial('B'));
  config["added_tokens_decoder"] = json::object();
  Write("tokenizer_config.json", config.dump());
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().eos, 'B');
  EXPECT_EQ(tokenizer->special_ids().unk, std::nullopt);
  EXPECT_FALSE(tokenizer->IsSpecial('A'));
  EXPECT_TRUE(tokenizer->IsSpecial('B'));
}

// The pair template has no token before the first text, but the single template has one.
TEST_F(SideFilesTest, AddsBosToPairTemplateThatStartsWithSecondText) {
  json spec = ByteLevelSpec({});
  const auto text = [](const char* id) { return json{{"Sequence", {{"id", id}, {"type_id", 0}}}}; };
  const json mark = {{"SpecialToken", {{"id", "S"}, {"type_id", 0}}}};
  spec["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {mark, text("A")}},
      {"pair", {text("B"), text("A")}},
      {"special_tokens", {{"S", {{"id", "S"}, {"ids", {'S'}}, {"tokens", {"S"}}}}}}};
  Write("tokenizer.json", spec.dump());
  Write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "B"})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ((*tokenizer->Encode("h")).front(), 'B');
}

// Expected values from transformers 4.46.
TEST_F(SideFilesTest, NullInSpecialTokensMapRemovesRole) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("special_tokens_map.json", R"({"bos_token": null, "pad_token": null})");
  Write("tokenizer_config.json", R"({"bos_token": "B", "eos_token": "E", "pad_token": "P"})");
  auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().bos, std::nullopt);
  EXPECT_EQ(tokenizer->special_ids().eos, 'E');
  EXPECT_EQ(tokenizer->special_ids().pad, std::nullopt);
  EXPECT_FALSE(tokenizer->IsSpecial('B'));
  EXPECT_FALSE(tokenizer->IsSpecial('P'));
  Write("generation_config.json", R"({"pad_token_id": 7})");  // an explicit id still counts
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().pad, 7);
}

TEST_F(SideFilesTest, ConfigAddsAndRemovesBosAndEosOfPairs) {
  json spec = ByteLevelSpec({});
  const auto ids = [&] {
    const auto pair = (*Tokenizer::Load(folder_.string()))->EncodePair("a", "b");
    EXPECT_TRUE(pair.ok());
    return pair.ok() ? pair->ids : std::vector<int32_t>();
  };
  Write("tokenizer.json", spec.dump());
  Write("tokenizer_config.json",
        R"({"bos_token": "B", "eos_token": "E", "add_bos_token": true, "add_eos_token": true})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a', 'E', 'B', 'b', 'E'}));
  spec["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"B", 66u}}, {"sep", {"E", 69u}}};
  Write("tokenizer.json", spec.dump());
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a', 'E', 'E', 'b', 'E'}));
  Write("tokenizer_config.json", R"({"bos_token": "B", "eos_token": "E", "add_eos_token": false})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a', 'b'}));
  // BOS and EOS go outside the tokens that the template has, for single texts and for pairs.
  spec["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"B", 66u}}, {"sep", {"S", 83u}}};
  Write("tokenizer.json", spec.dump());
  Write("tokenizer_config.json", R"({"bos_token": "B", "eos_token": "E", "add_eos_token": true})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a', 'S', 'E', 'b', 'S', 'E'}));
  EXPECT_EQ(Ids(*Load(), "a", true), (std::vector<int32_t>{'B', 'a', 'S', 'E'}));
}

TEST_F(SideFilesTest, ConfigAddsAndRemovesBosAndEos) {
  json spec = ByteLevelSpec({});
  spec["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"B", 66u}}, {"sep", {"E", 69u}}};
  Write("tokenizer.json", spec.dump());
  const auto ids = [&] { return Ids(**Tokenizer::Load(folder_.string()), "a", true); };
  Write("tokenizer_config.json", R"({"bos_token": "B", "eos_token": "E"})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a', 'E'}));
  Write("tokenizer_config.json", R"({"bos_token": "B", "eos_token": "E", "add_eos_token": false})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'B', 'a'}));
  Write("tokenizer_config.json", R"({"bos_token": "C", "eos_token": "E", "add_bos_token": true})");
  EXPECT_EQ(ids(), (std::vector<int32_t>{'C', 'B', 'a', 'E'}));
}

TEST_F(SideFilesTest, ConfigAddsPrefixSpaceToByteLevel) {
  json spec = ByteLevelSpec();
  Write("tokenizer.json", spec.dump());
  EXPECT_EQ(Ids(*Load(), "hello"), (std::vector<int32_t>{259}));
  Write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_EQ(Ids(*Load(), "hello"), (std::vector<int32_t>{' ', 259}));
  EXPECT_EQ(Ids(*Load(), " hello"), (std::vector<int32_t>{' ', 259}));
  // A ByteLevel inside a sequence keeps its setting.
  spec["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {spec["pre_tokenizer"]}}};
  Write("tokenizer.json", spec.dump());
  EXPECT_EQ(Ids(*Load(), "hello"), (std::vector<int32_t>{259}));
}

TEST_F(SideFilesTest, ConfigTokensFollowTokenizerJsonTokens) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());  // id 256 is <|end|>
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "257": {"content": "<a>", "special": true}, "256": {"content": "<|end|>", "special": false},
      "258": {"content": "<b>", "rstrip": true, "normalized": false}}})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, "<a>x<b>  <|end|>"), (std::vector<int32_t>{257, 'x', 258, 256}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{257, 'x', 258, 256}), "x<b>");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
}

// Expected values from transformers 4.57 and 5.23.
TEST_F(SideFilesTest, FlagsOfConfigTokensOverride) {
  json spec = ByteLevelSpec({});
  spec["added_tokens"] = {
      {{"id", 256}, {"content", "<|end|>"}, {"special", false}, {"normalized", false}},
      {{"id", 257}, {"content", "<a>"}, {"special", true}, {"rstrip", true}},
      {{"id", 258}, {"content", "cat"}, {"single_word", true}}};
  Write("tokenizer.json", spec.dump());
  const auto expect = [&](const std::vector<int32_t>& ids, const char* text) {
    const auto tokenizer = Load();
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(Ids(*tokenizer, "x <|end|> <a> cats"), ids);
    EXPECT_EQ(tokenizer->Decode(ids), text);
  };
  expect({'x', ' ', 256, ' ', 257, 'c', 'a', 't', 's'}, "x <|end|> cats");
  // added_tokens.json has no flags and overrides none; a role makes a token special.
  Write("added_tokens.json", R"({"<|end|>": 256, "<a>": 257, "cat": 258})");
  expect({'x', ' ', 256, ' ', 257, 'c', 'a', 't', 's'}, "x <|end|> cats");
  Write("tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  expect({'x', ' ', 256, ' ', 257, 'c', 'a', 't', 's'}, "x  cats");
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {
      "256": {"content": "<|end|>", "special": true, "lstrip": true, "normalized": false},
      "257": {"content": "<a>", "special": false}, "300": {"content": "cat"}}})");
  expect({'x', 256, ' ', 257, ' ', 258, 's'}, "x  cats");
}

TEST_F(SideFilesTest, TokensWithRoleAreRecognisedAndGetIdsIfMissing) {
  Write("tokenizer.json", ByteLevelSpec({"h e"}).dump());
  Write("special_tokens_map.json", R"({"additional_special_tokens": ["he", "<none>"]})");
  Write("tokenizer_config.json", R"({"pad_token": "[PAD]"})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->model_vocab_size(), 258);  // <|end|> is the last token with an id in a file
  EXPECT_EQ(Ids(*tokenizer, "the"), (std::vector<int32_t>{'t', 256}));
  EXPECT_TRUE(tokenizer->IsSpecial(256));
  // The ids follow the vocabulary; tokens with a named role come first.
  EXPECT_EQ(Ids(*tokenizer, "x[PAD]<none>"), (std::vector<int32_t>{'x', 258, 259}));
  EXPECT_EQ(tokenizer->special_ids().pad, 258);
  EXPECT_TRUE(tokenizer->IsSpecial(259));
}

// The model has no embedding for ids after the vocabulary.
TEST_F(SideFilesTest, TokenNamedOnlyByRoleIsNeitherBosNorEos) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>",
      "pad_token": "[PAD]", "add_bos_token": true, "add_eos_token": true})");
  auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().eos, std::nullopt);
  EXPECT_EQ(tokenizer->special_ids().bos, std::nullopt);
  EXPECT_EQ(tokenizer->special_ids().pad, tokenizer->TokenToId("[PAD]"));
  EXPECT_EQ(Ids(*tokenizer, "a", true), (std::vector<int32_t>{'a'}));
  Write("generation_config.json", R"({"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 3})");
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().eos, 2);
  EXPECT_EQ(tokenizer->special_ids().bos, 1);
  EXPECT_EQ(tokenizer->special_ids().pad, 3);
  EXPECT_EQ(Ids(*tokenizer, "a", true), (std::vector<int32_t>{1, 'a', 2}));
  // A token with an id in a file can be EOS.
  Write("added_tokens.json", R"({"<|im_end|>": 257})");
  tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().eos, 257);
  EXPECT_EQ(tokenizer->special_ids().bos, 1);
}

TEST_F(SideFilesTest, FlagsOfTokensWithRoleApply) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("tokenizer_config.json", R"({"pad_token": {"content": "pad", "single_word": true,
      "lstrip": true}})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, "pads pad"), (std::vector<int32_t>{'p', 'a', 'd', 's', 257}));
}

TEST_F(SideFilesTest, AddedTokensJsonHasNoFlags) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("added_tokens.json", R"({"<b>": 258, "<a>": 257})");
  Write("tokenizer_config.json", R"({"pad_token": "<b>"})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, "<a><b>"), (std::vector<int32_t>{257, 258}));
  EXPECT_FALSE(tokenizer->IsSpecial(257));
  EXPECT_TRUE(tokenizer->IsSpecial(258));
  EXPECT_EQ(tokenizer->special_ids().pad, 258);
}

TEST_F(SideFilesTest, LoadTimeIsLinearInAddedTokens) {
  constexpr int kTokens = 50'000;  // a quadratic implementation would take far longer
  json config, added = json::object();
  for (int i = 0; i < kTokens; ++i) {
    const std::string content = "<" + std::to_string(i) + ">";
    config["additional_special_tokens"].push_back(content);
    added[content] = 256 + i;
  }
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  Write("tokenizer_config.json", config.dump());
  Write("added_tokens.json", added.dump());
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->IsSpecial(*tokenizer->TokenToId("<49999>")));
}

TEST_F(SideFilesTest, RefusesInvalidFieldsByName) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  const auto refuses = [&](const char* file, const std::string& text, const char* name) {
    Write(file, text);
    const std::string message = LoadError(folder_.string());
    EXPECT_NE(message.find(name), std::string::npos) << message;
    std::filesystem::remove(folder_ / file);
  };
  refuses("added_tokens.json", R"({"<a>": -1})", "added_tokens.json['<a>']");
  refuses("added_tokens.json", R"({"<a>": 4294967297})", "below 2097152, got 4294967297");
  refuses("tokenizer_config.json", R"({"added_tokens_decoder": []})", "added_tokens_decoder");
  refuses("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "'x'");
  refuses("tokenizer_config.json", R"({"added_tokens_decoder": {"-5": {"content": "a"}}})", "'-5'");
  refuses("tokenizer_config.json", R"({"added_tokens_decoder": {"7": "a"}})",
          "added_tokens_decoder.7.content");
  refuses("tokenizer_config.json", R"({"added_tokens_decoder": {"9999999999": {"content": "a"}}})",
          "'9999999999'");
  refuses("tokenizer_config.json", R"({"add_prefix_space": 1})", "add_prefix_space");
  refuses("tokenizer_config.json",
          R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}",
          "'a' is nested 101 levels deep, limit 64");
}

TEST_F(SideFilesTest, RefusesFilesThatAreNotRegular) {
  for (const char* file : {"tokenizer_config.json", "tokenizer.json"}) {
    Write("tokenizer.json", ByteLevelSpec({}).dump());
    std::filesystem::remove(folder_ / file);
    ASSERT_EQ(::mkfifo((folder_ / file).c_str(), 0600), 0);
    EXPECT_NE(LoadError(folder_.string()).find("expected a regular file, got a FIFO"),
              std::string::npos)
        << LoadError(folder_.string());
    std::filesystem::remove(folder_ / file);
  }
}

// Phi-3 is Llama 2's SentencePiece model with additional tokens.
TEST_F(SideFilesTest, SentencePieceModelWithConfigTokensMatchesReference) {
  const auto data = TestData();
  if (!data) GTEST_SKIP() << "no shared test data";
  std::filesystem::create_symlink(*data / "tokenizers/llama2/tokenizer.model",
                                  folder_ / "tokenizer.model");
  json decoder;
  std::ifstream file(*data / "tokenizers/phi3/tokenizer.json");
  const json phi3 = json::parse(file);
  for (const json& token : phi3["added_tokens"]) {
    decoder[std::to_string(token["id"].get<int>())] = token;
  }
  Write("tokenizer_config.json",
        json{{"added_tokens_decoder", decoder}, {"pad_token", "<|endoftext|>"}}.dump());
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->special_ids().pad, 32000);
  std::map<int, std::vector<int32_t>> expected;
  std::ifstream answers(*data / "expected/phi3.jsonl"), corpus(*data / "tokenizer_corpus.jsonl");
  for (std::string line; std::getline(answers, line);) {
    const json row = json::parse(line);
    expected[row["id"]] = row["ids"].get<std::vector<int32_t>>();
  }
  ASSERT_GT(expected.size(), 100u);
  for (std::string line; std::getline(corpus, line);) {
    const json row = json::parse(line);
    const std::string text = row["text"];
    ASSERT_EQ(Ids(*tokenizer, text), expected.at(row["id"])) << text;
  }
}

}  // namespace
}  // namespace nereid::tokenizer
