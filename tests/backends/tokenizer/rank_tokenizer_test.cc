// Loading of tekken.json and tiktoken files: accepted contents and refusals. family_parity_test.cc
// and test_native_formats.py compare published files with the reference.
#include "backends/tokenizer/lib/load/rank_tokenizer.h"

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;

std::string Base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    }
    const size_t present = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 4; ++k) text += k <= present ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// The 256 single bytes, then `more`. Of the three special tokens the file only names the last.
json Tekken(const std::vector<std::string>& more) {
  json spec;
  spec["config"] = {{"pattern", R"(\p{L}+|[^\p{L}])"},
                    {"default_vocab_size", 3 + 256 + more.size()},
                    {"default_num_special_tokens", 3u}};
  spec["special_tokens"] = {{{"rank", 2u}, {"token_str", "<end>"}, {"is_control", true}}};
  spec["vocab"] = json::array();
  const auto add = [&](const std::string& bytes) {
    spec["vocab"].push_back({{"rank", spec["vocab"].size()}, {"token_bytes", Base64(bytes)}});
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  for (const std::string& bytes : more) add(bytes);
  return spec;
}

std::string Refusal(const json& spec) {
  const auto tokenizer = Tokenizer::FromJson(spec.dump());
  return tokenizer.ok() ? "loaded" : tokenizer.status().message();
}

TEST(TekkenTest, MergesAdjacentTokensByRank) {
  const auto tokenizer = MustLoad(Tekken({"bc", "ab", "abc", "\xC3\xA9"}));
  ASSERT_NE(tokenizer, nullptr);
  const auto byte = [](unsigned char b) { return 3 + b; };
  EXPECT_EQ(Ids(*tokenizer, "abc ab"), (std::vector<int32_t>{261, byte(' '), 260}));
  EXPECT_EQ(Ids(*tokenizer, "abcd"), (std::vector<int32_t>{261, byte('d')}));
  EXPECT_EQ(Ids(*tokenizer, "a\u00e9<end>", true), (std::vector<int32_t>{1, byte('a'), 262, 2}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, byte('a'), 262, 2}), "a\u00e9");
  EXPECT_EQ(tokenizer->special_ids().bos, 1);
}

// Expected values from tiktoken.
TEST(TekkenTest, PatternsHaveRustSemantics) {
  const auto count = [](const std::string& pattern, const std::string& text) {
    json spec = Tekken({});
    spec["config"]["pattern"] = pattern;
    const auto tokenizer = MustLoad(spec);
    return tokenizer == nullptr ? 0 : Ids(*tokenizer, text).size();
  };
  EXPECT_EQ(count(R"(\w+)", "a\u200cb \u00b2"), 5u);  // matches U+200C, but not the superscript
  EXPECT_EQ(count("a{1,2}+a", "aaaa"), 3u);
  EXPECT_EQ(count("a$|b", "a\na"), 1u);
  EXPECT_EQ(count("(?m)^a|b", "a\na"), 2u);
  EXPECT_EQ(count("[[:alpha:]]+", "\u00e9 a"), 1u);
  EXPECT_EQ(count("[a-g~~c-z]+", "abcdez"), 3u);
  EXPECT_EQ(count(R"([\w--\d]+)", "a1\u200c"), 4u);
  EXPECT_EQ(count("a(?i)b|c", "aB C"), 3u);
  EXPECT_EQ(count("[--/]", "-./"), 2u);  // leading hyphens are members
  EXPECT_EQ(count("[^--a]", "-a./b"), 3u);
  EXPECT_EQ(count("[---a--a]", "-a"), 1u);
  EXPECT_EQ(count(R"([\w[--/]])", "a-./"), 3u);
  EXPECT_EQ(count("[a--]", "a-"), 1u);
  EXPECT_EQ(count(R"([\<\b{]+)", "<{ \b"), 3u);
  EXPECT_EQ(count(R"(a\Z)", "aa\n\n"), 1u);
  EXPECT_EQ(count(R"(a\Z)", "a\nb"), 0u);
  EXPECT_EQ(count(R"(\n(?m)^|b)", "b\nb\n"), 4u);  // matches after the final newline, too
  EXPECT_EQ(count("x{,}y", "xxy"), 3u);
  EXPECT_EQ(count("x{2}{|y", "xx{y"), 4u);
  EXPECT_EQ(count("x{2}?x|x{1,2}+y", "xxxxy"), 5u);
}

TEST(TekkenTest, SpecialTokenMayShareContentWithOrdinaryToken) {
  json spec = Tekken({"ab"});
  spec["special_tokens"][0]["token_str"] = "ab";
  const auto tokenizer = MustLoad(spec);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(Ids(*tokenizer, "ab"), (std::vector<int32_t>{2}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{2, 259}), "ab");  // without the special token
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{2, 259}, {.skip_special_tokens = false}),
            "abab");
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  EXPECT_FALSE(tokenizer->IsSpecial(259));
}

TEST(TekkenTest, DropsTokensBeyondVocabularySize) {
  json spec = Tekken({"ab", "abc"});
  spec["config"]["default_vocab_size"] = 3 + 256 + 1;
  const auto tokenizer = MustLoad(spec);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(Ids(*tokenizer, "abc"), (std::vector<int32_t>{259, 3 + 'c'}));
}

TEST(TekkenTest, RefusesInvalidFilesByName) {
  const auto refuses = [](json spec, const std::string& name) {
    EXPECT_NE(Refusal(spec).find(name), std::string::npos) << name << ": " << Refusal(spec);
  };
  json spec = Tekken({});
  spec["vocab"][7]["token_bytes"] = "?";
  refuses(spec, "vocab[7].token_bytes");
  spec["vocab"][7]["token_bytes"] = Base64("x");
  refuses(spec, "different tokens");
  spec = Tekken({});
  spec["vocab"][7]["rank"] = 8u;
  refuses(spec, "rank 8: expected one token, got two");
  spec["vocab"][7].erase("rank");
  refuses(spec, "vocab[7].rank");
  spec = Tekken({"ab"});
  spec["vocab"][7]["token_bytes"] = Base64("zz");
  refuses(spec, "no token is the byte 7");
  spec = Tekken({});
  spec["config"]["default_num_special_tokens"] = 5000u;
  refuses(spec, "5000");
  spec = Tekken({});
  spec["config"].erase("pattern");
  refuses(spec, "config.pattern");
  spec = Tekken({});
  spec["special_tokens"][0]["rank"] = 3u;
  refuses(spec, "special_tokens.rank");
}

// Returns the ids of `names` in the published vocabulary with `num_tokens` tokens; -1: no such
// token.
std::vector<int32_t> PublishedIds(size_t num_tokens, const std::vector<std::string>& names) {
  RankTokenizerSpec ranks;
  ranks.tokens.resize(num_tokens);
  const Status status = DescribePublishedVocabulary(ranks);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(MakeRegexPattern(ranks.pattern).ok()) << ranks.pattern;
  std::vector<int32_t> ids;
  for (const std::string& name : names) {
    ids.push_back(-1);
    for (const AddedToken& token : ranks.specials) {
      if (token.content == name) ids.back() = token.id;
    }
  }
  return ids;
}

TEST(TiktokenTest, IdentifiesPublishedVocabulariesBySize) {
  using List = std::vector<int32_t>;
  EXPECT_EQ(PublishedIds(50256, {"<|endoftext|>"}), (List{50256}));
  EXPECT_EQ(PublishedIds(50280, {"<|endoftext|>"}), (List{50256}));
  EXPECT_EQ(PublishedIds(100256, {"<|endoftext|>", "<|fim_suffix|>", "<|endofprompt|>"}),
            (List{100257, 100260, 100276}));
  EXPECT_EQ(PublishedIds(127957, {"<|startoftext|>", "<|extra_204|>"}), (List{127958, 128166}));
  EXPECT_EQ(PublishedIds(128000, {"<|eot_id|>", "<|reserved_special_token_247|>"}),
            (List{128009, 128255}));
  EXPECT_EQ(PublishedIds(151329, {"[gMASK]", "<sop>", "<|end_of_video|>"}),
            (List{151331, 151333, 151342}));
  EXPECT_EQ(PublishedIds(151643, {"<|im_end|>", "<|extra_204|>", "<|extra_205|>"}),
            (List{151645, 151850, -1}));
  EXPECT_EQ(PublishedIds(163584, {"[EOS]", "<|reserved_token_163586|>", "[PAD]"}),
            (List{163585, 163586, 163839}));
  EXPECT_EQ(PublishedIds(199998, {"<|endoftext|>", "<|endofprompt|>"}), (List{199999, 200018}));
  EXPECT_EQ(PublishedIds(200000, {"<|eot|>", "<|finetune_right_pad|>", "<|image|>",
                                  "<|reasoning_thinking_end|>"}),
            (List{200008, 200018, 200090, 201143}));
}

std::string Letters(size_t number) {
  std::string text = "z";
  for (; number > 0; number /= 20) text += static_cast<char>('a' + number % 20);
  return text;
}

// A rank file with `count` arbitrary tokens. No token has the rank `hole`.
std::string Ranks(size_t count, size_t hole = SIZE_MAX) {
  std::string file;
  for (size_t i = 0; i < count; ++i) {
    const std::string bytes = i < 256 ? std::string(1, static_cast<char>(i)) : Letters(i);
    file += Base64(bytes) + " " + std::to_string(i + (i >= hole ? 1 : 0)) + "\n";
  }
  return file;
}

TEST(TiktokenTest, AcceptsGapInRanks) {  // p50k's end-of-text token has the id of the gap
  const auto tokenizer = Tokenizer::FromTiktoken(Ranks(50280, 50256));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(Ids(**tokenizer, "1<|endoftext|>" + Letters(50256)),
            (std::vector<int32_t>{'1', 50256, 50257}));
}

class TiktokenFolderTest : public TokenizerFolderTest {};

TEST_F(TiktokenFolderTest, ConfigRenamesReservedTokens) {
  Write("tiktoken.model", Ranks(163584));
  Write("tokenizer_config.json", R"({"eos_token": "[EOS]", "added_tokens_decoder": {
      "163586": {"content": "<|im_end|>", "special": true},
      "163606": {"content": "<think>", "special": false}}})");
  const auto tokenizer = Load();
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<int32_t> ids = {163586, 163606, 163607, 163585};
  EXPECT_EQ(Ids(*tokenizer, "<|im_end|><think><|reserved_token_163607|>[EOS]"), ids);
  EXPECT_EQ(tokenizer->Decode(ids), "<think>");
  EXPECT_EQ(tokenizer->special_ids().eos, 163585);
  EXPECT_EQ(tokenizer->vocab_size(), 163840);
}

TEST(TiktokenTest, RefusesInvalidFilesByName) {
  const auto refusal = [](const std::string& text) {
    const auto tokenizer = Tokenizer::FromTiktoken(text);
    return tokenizer.ok() ? "loaded" : tokenizer.status().message();
  };
  EXPECT_TRUE(LooksLikeTiktoken("IQ== 0\nIg== 1\n"));
  EXPECT_FALSE(LooksLikeTiktoken("{\"a\": 1}"));
  EXPECT_NE(refusal("IQ== 0\nIg== 1\n").find("a tiktoken file of 2 tokens"), std::string::npos);
  EXPECT_NE(refusal("IQ== 0\nIg==\n").find("line 2"), std::string::npos);
  EXPECT_NE(refusal("IQ== 0\nI%== 1\n").find("line 2"), std::string::npos);
  EXPECT_NE(refusal("IQ== 0\nIg== -1\n").find("line 2"), std::string::npos);
}

}  // namespace
}  // namespace nereid::tokenizer
