// Masks of published tokenizers (NEREID_TEST_DATA) against the definition: a token is allowed
// exactly if its bytes, one by one, continue the text. The bytes of tokens are compared with the
// texts that the reference library decodes.
#include <fstream>
#include <random>

#include "tests/backends/llm_core/grammar/small_vocabulary.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::llm::grammar {
namespace {

struct Place {
  const char* form;  // of the guide
  const char* guide;
  const char* text;
};

// Inside of characters, between terminals, where text is forced, and where many tokens are allowed.
constexpr Place kPlaces[] = {
    {"json", R"({"type":"object","properties":{"größe":{"type":"integer"}}})", ""},
    {"json", R"({"type":"object","properties":{"größe":{"type":"integer"}}})", "{\"gr\xc3"},
    {"json", R"({"type":"object","properties":{"größe":{"type":"integer"}}})", "{\"größe\": 1"},
    {"json", R"({"type":"array","items":{"type":"string","maxLength":6}})", "[\"ab"},
    {"json", R"({"type":"array","items":{"type":"string","maxLength":6}})", "[\"a\xf0\x9f"},
    {"json", R"({"type":"array","items":{"type":"string","maxLength":6}})", "[\"a\", \"\\u00e9"},
    {"json", R"({"enum":["日本語","日本","🎉 x",-1.5,{"a b":[" "]}]})", "\"\xe6\x97"},
    {"json", R"({"enum":["日本語","日本","🎉 x",-1.5,{"a b":[" "]}]})", "{ \"a b\" :"},
    {"json", "{}", "{\"a\":[{}, true, "},
    {"regex", R"(( ?[a-zé]+)*\n\n?[^\x00-\x7F]{1,2}</s>)", ""},
    {"regex", R"(( ?[a-zé]+)*\n\n?[^\x00-\x7F]{1,2}</s>)", "le caf\xc3"},
    {"regex", R"(( ?[a-zé]+)*\n\n?[^\x00-\x7F]{1,2}</s>)", " the\n"},
};

Result<std::shared_ptr<const Grammar>> CompilePlace(const Place& place,
                                                    std::shared_ptr<const Vocabulary> vocabulary) {
  return place.form[0] == 'j' ? Grammar::FromJsonSchema(place.guide, std::move(vocabulary))
                              : Grammar::FromRegex(place.guide, std::move(vocabulary));
}

class TokenizerFamilyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    data_ = tokenizer::TestData();
    if (!data_) GTEST_SKIP() << "no shared test data";
    const auto tokenizer = tokenizer::Tokenizer::Load(
        (*data_ / "tokenizers" / GetParam() / "tokenizer.json").string());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *tokenizer;
    end_id_ = tokenizer_->special_ids().eos.value_or(0);
    const auto vocabulary = Vocabulary::Make(*tokenizer_, {end_id_});
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status().message();
    vocabulary_ = *vocabulary;
  }

  std::optional<std::filesystem::path> data_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  int32_t end_id_ = 0;
};

TEST_P(TokenizerFamilyTest, TheBytesOfTokensAreTheTextThatTheReferenceDecodes) {
  std::ifstream rows(*data_ / "expected_decode" / (std::string(GetParam()) + ".jsonl"));
  size_t num_compared = 0;
  for (std::string line; std::getline(rows, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    std::string bytes;
    bool has_special = false;
    for (const auto& id : row["ids"]) {
      const std::string_view token = vocabulary_->token(id.get<int32_t>());
      has_special |= token.empty();
      bytes += token;
    }
    const std::string text = row["text"];
    if (has_special || !tokenizer::IsValidUtf8(bytes) ||
        tokenizer_->Decode(row["ids"].get<std::vector<int32_t>>()) != text)
      continue;
    ++num_compared;
    EXPECT_TRUE(bytes == text || bytes == " " + text) << row;
  }
  EXPECT_GT(num_compared, 100u);
}

TEST_P(TokenizerFamilyTest, AMaskAllowsExactlyTheTokensWhoseBytesContinueTheText) {
  const size_t num_tried = kHasSanitizer ? size_t{500} : vocabulary_->size();
  std::mt19937 random(5);
  std::vector<uint32_t> mask(vocabulary_->num_mask_words()), walked = mask;
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(std::string(place.guide) + " after " + place.text);
    const auto grammar = CompilePlace(place, vocabulary_),
               by_bytes = CompilePlace(place, BytesAnd({}));
    ASSERT_TRUE(grammar.ok() && by_bytes.ok());
    Matcher matcher(*grammar), oracle(*by_bytes);
    for (const char c : std::string_view(place.text)) {
      ASSERT_TRUE(matcher.Accept({&c, 1}) && oracle.Accept({&c, 1}));
    }
    matcher.ComputeMask(mask);
    matcher.ComputeMaskByWalk(walked);
    EXPECT_EQ(mask, walked);
    EXPECT_EQ(MaskHas(mask, end_id_), oracle.CanEnd());
    const bool tries_all = num_tried >= vocabulary_->size();
    for (size_t i = 0; i < std::min(num_tried, vocabulary_->size()); ++i) {
      const auto id = static_cast<int32_t>(tries_all ? i : random() % vocabulary_->size());
      if (id == end_id_) continue;
      const std::string_view bytes = vocabulary_->token(id);
      size_t num = 0;
      while (num < bytes.size() && oracle.Accept(bytes.substr(num, 1))) ++num;
      oracle.Rollback(num);
      ASSERT_EQ(MaskHas(mask, id), !bytes.empty() && num == bytes.size()) << id << ": " << bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerFamilyTest,
                         ::testing::Values("deepseek", "deepseek-coder", "gpt-neox", "gpt2",
                                           "llama2", "llama3", "mistral-tekken", "mistral-v1",
                                           "mistral-v3", "phi3", "qwen2", "qwen2.5", "qwen3",
                                           "starcoder", "t5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

}  // namespace
}  // namespace nereid::llm::grammar
