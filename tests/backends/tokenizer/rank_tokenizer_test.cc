// tekken.json and tiktoken files: what is read, and what is refused by name. The published files
// are compared with the reference in family_parity_test.cc and test_other_files.py.
#include "rank_tokenizer.h"

#include "test_tokenizers.h"

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

// The 256 bytes, then `more`; three special tokens of which the file names the last.
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

TEST(TekkenTest, MergesNeighboursByTheirRank) {
  const auto tokenizer = MustLoad(Tekken({"bc", "ab", "abc", "\xC3\xA9"}));
  ASSERT_NE(tokenizer, nullptr);
  const auto byte = [](unsigned char b) { return 3 + b; };
  EXPECT_EQ(Ids(*tokenizer, "abc ab"), (std::vector<int32_t>{261, byte(' '), 260}));
  EXPECT_EQ(Ids(*tokenizer, "abcd"), (std::vector<int32_t>{261, byte('d')}));
  EXPECT_EQ(Ids(*tokenizer, "a\u00e9<end>", true), (std::vector<int32_t>{1, byte('a'), 262, 2}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, byte('a'), 262, 2}), "a\u00e9");
  EXPECT_EQ(tokenizer->special_ids().bos, 1);
}

TEST(TekkenTest, TokensPastTheVocabularySizeAreLeftOut) {
  json spec = Tekken({"ab", "abc"});
  spec["config"]["default_vocab_size"] = 3 + 256 + 1;
  const auto tokenizer = MustLoad(spec);
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(Ids(*tokenizer, "abc"), (std::vector<int32_t>{259, 3 + 'c'}));
}

TEST(TekkenTest, RefusesFaultyFilesByName) {
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
  refuses(spec, "rank 8");
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

TEST(TiktokenTest, RefusesFaultyFilesByName) {
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
