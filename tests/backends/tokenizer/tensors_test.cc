// The parts of the backend that need no host: word lists, streamed decoding, configurations.
#include <random>

#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/tensor_specs.h"
#include "backends/tokenizer/word_lists.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

TEST(WordListsTest, ContainIdsAndEndOffsets) {
  const auto tokenizer = MustLoad(ByteLevelSpec());
  const auto list = MakeWordLists(*tokenizer, {{"hello", "ab", ""}, {"c"}});
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->width, 3);
  const std::vector<int32_t> expected = {259, 'a', 'b', 1, 3, -1, 'c', 0, 0, 1, -1, -1};
  EXPECT_EQ(list->values, expected);
}

TEST(WordListsTest, EmptyWordsAreSkipped) {
  const auto tokenizer = MustLoad(ByteLevelSpec());
  const auto list = MakeWordLists(*tokenizer, {{""}});
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->values, (std::vector<int32_t>{0, -1}));
}

// Decodes `ids` in random chunks. Each call receives only the last `memory` preceding ids.
std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, size_t memory,
                   std::mt19937& random) {
  std::string text;
  for (size_t at = 0, cut; at <= ids.size(); at = cut) {
    cut = std::min(ids.size(), at + random() % 4);
    const size_t prior = std::min(at, memory);
    const bool is_last = cut == ids.size();
    const std::string piece = DecodeChunk(tokenizer, {}, std::span(ids).subspan(at - prior, prior),
                                          std::span(ids).subspan(at, cut - at), is_last);
    EXPECT_TRUE(IsValidUtf8(piece));
    text += piece;
    if (is_last) break;
  }
  return text;
}

TEST(DecodeChunkTest, ChunksOfStreamEqualWholeDecode) {
  const auto byte_level = MustLoad(ByteLevelSpec());
  const auto fallback = MustLoad(MetaspaceSpec({"▁", "a", "▁a"}, {"▁ a"}));
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids, byte_ids;
    for (size_t n = random() % 40; n > 0; --n) {
      ids.push_back(random() % 3 == 0 ? 'a' + static_cast<int>(random() % 26)
                                      : 0x80 + static_cast<int>(random() % 0x80));
      // Runs of byte tokens that are shorter than `memory`, with special tokens among them.
      byte_ids.push_back(byte_ids.size() % 15 == 14 || random() % 4 == 0
                             ? 259 + static_cast<int>(random() % 3)
                         : random() % 8 == 0 ? 1
                                             : 3 + static_cast<int>(random() % 256));
    }
    ASSERT_EQ(Stream(*byte_level, ids, kMaxPendingIds, random), byte_level->Decode(ids));
    ASSERT_EQ(Stream(*fallback, byte_ids, kMaxPendingIds, random), fallback->Decode(byte_ids));
  }
}

TEST(DecodeChunkTest, LongRunsOfValidBytesAreComplete) {
  const auto tokenizer = MustLoad(MetaspaceSpec({"▁", "a"}, {}));
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (size_t n = 20 + random() % 30; n > 0; --n)
      text += std::vector<std::string>{"x", "\u00e9", "\u4e2d", "\U0001F600"}[random() % 4];
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(3 + static_cast<unsigned char>(c));
    ASSERT_EQ(Stream(*tokenizer, ids, kMaxPendingIds, random), text);
  }
}

TEST(DecodeChunkTest, OnlyFirstSpaceOfStreamIsStripped) {
  const auto tokenizer = MustLoad(MetaspaceSpec({"▁a"}, {}));
  const std::vector<int32_t> word = {259}, none;
  EXPECT_EQ(DecodeChunk(*tokenizer, {}, none, word, false), "a");
  EXPECT_EQ(DecodeChunk(*tokenizer, {}, word, word, false), " a");
  EXPECT_EQ(DecodeChunk(*tokenizer, {}, std::vector<int32_t>(16, 259), word, false), " a");
}

ModelConfig Config(const char* text) {
  auto config = ModelConfig::Parse(text);
  EXPECT_TRUE(config.ok());
  return *config;
}

TEST(TensorSpecsTest, ModeIsParameterOrFollowsFromInputs) {
  EXPECT_EQ(*ReadMode(Config(R"({"parameters":{"mode":{"string_value":"postprocessing"}}})")),
            BackendMode::kPostprocessing);
  EXPECT_EQ(
      *ReadMode(Config(R"({"input":[{"name":"QUERY","data_type":"TYPE_STRING","dims":[1]}]})")),
      BackendMode::kPreprocessing);
  EXPECT_EQ(*ReadMode(Config(
                R"({"input":[{"name":"TOKENS_BATCH","data_type":"TYPE_INT32","dims":[-1,-1]}]})")),
            BackendMode::kPostprocessing);
  const auto wrong = ReadMode(Config(R"({"parameters":{"mode":{"string_value":"both"}}})"));
  EXPECT_NE(wrong.status().message().find("'both'"), std::string::npos);
  EXPECT_FALSE(ReadMode(Config("{}")).ok());
}

TEST(TensorSpecsTest, EmptyConfigurationIsCompletedAndPasses) {
  for (const BackendMode mode : {BackendMode::kPreprocessing, BackendMode::kPostprocessing}) {
    ConfigDraft draft(Config("{}").json());
    ASSERT_TRUE(CompleteTensors(mode, draft).ok());
    const ModelConfig complete = Config(draft.json().Dump().c_str());
    EXPECT_TRUE(CheckTensors(mode, complete).ok());
    EXPECT_GE(complete.inputs().size(), 6u);
    EXPECT_EQ(complete.inputs()[0].is_optional, mode == BackendMode::kPreprocessing);
    EXPECT_FALSE(complete.inputs()[1].is_optional);
    EXPECT_TRUE(complete.inputs()[2].is_optional);
  }
}

TEST(TensorSpecsTest, NamesWrongTensor) {
  const auto fault = [](BackendMode mode, const char* text) {
    return CheckTensors(mode, Config(text)).message();
  };
  EXPECT_NE(fault(BackendMode::kPreprocessing,
                  R"({"input":[{"name":"QUERYY","data_type":"TYPE_STRING","dims":[1]}]})")
                .find("'QUERYY'"),
            std::string::npos);
  EXPECT_NE(fault(BackendMode::kPreprocessing,
                  R"({"input":[{"name":"QUERY","data_type":"TYPE_INT32","dims":[1]}]})")
                .find("TYPE_INT32"),
            std::string::npos);
  EXPECT_NE(fault(BackendMode::kPostprocessing,
                  R"({"input":[{"name":"SEQUENCE_LENGTH","data_type":"TYPE_INT32","dims":[-1]}]})")
                .find("'TOKENS_BATCH'"),
            std::string::npos);
  EXPECT_NE(fault(BackendMode::kPostprocessing,
                  R"({"output":[{"name":"TEXT","data_type":"TYPE_STRING","dims":[-1]}]})")
                .find("'TEXT'"),
            std::string::npos);
}

// The templates of release 0.5 declare no lengths.
TEST(TensorSpecsTest, PostprocessingWithoutLengthsPasses) {
  const ModelConfig config =
      Config(R"({"input":[{"name":"TOKENS_BATCH","data_type":"TYPE_INT32","dims":[-1,-1]}]})");
  EXPECT_TRUE(CheckTensors(BackendMode::kPostprocessing, config).ok());
}

}  // namespace
}  // namespace nereid::tokenizer
