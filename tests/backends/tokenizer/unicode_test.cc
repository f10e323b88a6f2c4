// Character classes and NFC.
#include "backends/tokenizer/lib/text/unicode.h"

#include "backends/tokenizer/lib/text/char_scan.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, out);
  return out;
}

TEST(UnicodeTest, ClassesFollowGeneralCategories) {
  const UnicodeTables& tables = UnicodeTables::Get();
  EXPECT_EQ(tables.ClassOf('A'), CharClass::kLu);
  EXPECT_EQ(tables.ClassOf(0x01C5), CharClass::kLt);
  EXPECT_EQ(tables.ClassOf(0x4E00), CharClass::kLo);
  EXPECT_EQ(tables.ClassOf(0x0301), CharClass::kMark);
  EXPECT_EQ(tables.ClassOf(0x00BD), CharClass::kNo);
  EXPECT_EQ(tables.ClassOf(0x3000), CharClass::kSpace);
  EXPECT_EQ(tables.ClassOf(0x0085), CharClass::kSpace);
  EXPECT_EQ(tables.ClassOf(0x180E), CharClass::kOther);
  EXPECT_EQ(tables.ClassOf(0x11DE0), CharClass::kNumeric17);
  EXPECT_EQ(tables.ClassOf(0x10FFFF), CharClass::kOther);
}

TEST(UnicodeTest, AsciiTableIsTheGeneralTable) {
  for (char32_t c = 0; c < 128; ++c) {
    EXPECT_EQ(kAsciiMask[c], UnicodeTables::Get().Mask(c)) << uint32_t{c};
  }
}

TEST(UnicodeTest, ComposesMarksAndHangul) {
  EXPECT_EQ(Nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(Nfc("\u212B"), "\u00C5");  // a singleton
  EXPECT_EQ(Nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(Nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(Nfc("a\u0323\u0307x"), Nfc("a\u0307\u0323x"));  // marks are sorted
  EXPECT_EQ(Nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093C");        // excluded from composition
  EXPECT_EQ(Nfc("\u0301\u0301"), "\u0301\u0301");  // nothing to compose with
}

TEST(UnicodeTest, KeepsOrderOfMarksNewerThanReference) {
  // U+1DF6 has combining class 232 since Unicode 10. The reference's older data has none, so it is
  // not sorted after U+0334.
  EXPECT_EQ(Nfc("b\u1DF6\u0334"), "b\u1DF6\u0334");
}

TEST(UnicodeTest, NfcHandlesLongRunsOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 100'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string once = Nfc(text);
  EXPECT_EQ(Nfc(once), once);
  EXPECT_EQ(once.substr(0, 3), "\u1EA1");
}

TEST(UnicodeTest, WordCharsAreThoseOfRust) {
  for (const char32_t c : {U'a', U'9', U'_', U'\u0301', U'\u200D', U'\u24B6', U'\u2160'}) {
    EXPECT_TRUE(IsWordChar(c)) << uint32_t{c};
  }
  for (const char32_t c : {U' ', U'-', U'\u00BD', U'\u20AC', U'\u2581'}) {
    EXPECT_FALSE(IsWordChar(c)) << uint32_t{c};
  }
}

}  // namespace
}  // namespace nereid::tokenizer
