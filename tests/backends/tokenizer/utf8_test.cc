// UTF-8 repair: every maximal ill-formed subpart becomes one U+FFFD, at once or in chunks.
#include "backends/tokenizer/lib/text/utf8.h"

#include <fstream>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

std::string Repair(std::string_view bytes) {
  std::string buffer;
  return std::string(Sanitize(bytes, buffer));
}

TEST(Utf8Test, ReturnsValidTextWithoutCopy) {
  const std::string text = "a\u00e9\u20ac\U0001F600 and a longer stretch of ASCII";
  std::string buffer;
  EXPECT_EQ(Sanitize(text, buffer).data(), text.data());
}

TEST(Utf8Test, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(Repair("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(Repair("\xE2\x82z"), "\uFFFDz");                  // truncated
  EXPECT_EQ(Repair("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");    // a surrogate
  EXPECT_EQ(Repair("\xF0\x9F\x98\xF0\x9F"), "\uFFFD\uFFFD");  // two truncated characters
  EXPECT_EQ(Repair("\xC0\xAF\xF5\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8Test, KeepsOnlyIncompleteCharacterAtEnd) {
  std::string out;
  EXPECT_EQ(AppendLossy("a\xE2\x82", /*final=*/false, out), 1u);
  EXPECT_EQ(AppendLossy("\xE2\x28", /*final=*/false, out), 2u);
  EXPECT_EQ(out, "a\uFFFD(");
}

TEST(Utf8Test, AgreesWithSharedTable) {
  const auto data = TestData();
  if (!data) GTEST_SKIP() << "no shared test data";
  std::ifstream file(*data / "invalid_utf8.jsonl");
  size_t checked = 0;
  for (std::string line; std::getline(file, line); ++checked) {
    const auto row = nlohmann::json::parse(line);
    std::string bytes;
    const std::string hex = row["hex"];
    for (size_t i = 0; i < hex.size(); i += 2) {
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    ASSERT_EQ(Repair(bytes), row["replace"].get<std::string>()) << hex;
    ASSERT_EQ(IsValidUtf8(bytes), row["valid"].get<bool>()) << hex;
  }
  EXPECT_GT(checked, 100u);
}

}  // namespace
}  // namespace nereid::tokenizer
