#include "backends/python_like_scripted/marshal.h"

#include <gtest/gtest.h>

#include <limits>

namespace nereid::python {
namespace {

using std::string_literals::operator""s;

// The expected bytes are those of marshal.dumps(<value>, 2) in CPython 3.11.
TEST(MarshalTest, WritesTheSameBytesAsPython) {
  MarshalWriter writer;
  writer.Tuple(9);
  writer.None();
  writer.Bool(true);
  writer.Bool(false);
  writer.Int(-5);
  writer.Int(int64_t{1} << 40);
  writer.Int(-(int64_t{1} << 40));
  writer.Float(1.5);
  writer.Text("h\xc3\xa9");
  writer.Bytes("ab\0"s);
  EXPECT_EQ(
      writer.bytes(),
      "(\x09\0\0\0NTFi\xfb\xff\xff\xffl\x03\0\0\0\0\0\0\0\0\x04l\xfd\xff\xff\xff\0\0\0\0\0\x04"
      "g\0\0\0\0\0\0\xf8?u\x03\0\0\0h\xc3\xa9s\x03\0\0\0ab\0"s);
}

TEST(MarshalTest, ReadsBackEveryInt) {
  for (const int64_t value :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{1} << 31, -(int64_t{1} << 31),
        (int64_t{1} << 31) - 1, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    MarshalWriter writer;
    writer.Int(value);
    MarshalReader reader(writer.bytes());
    EXPECT_EQ(reader.Int(), value);
    EXPECT_TRUE(reader.Finish().ok());
  }
  MarshalWriter writer;
  writer.Uint(std::numeric_limits<uint64_t>::max());
  MarshalReader reader(writer.bytes());
  EXPECT_EQ(static_cast<uint64_t>(reader.Int()), std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(MarshalTest, RepairsTextThatIsNotUtf8) {
  for (const auto& [text, repaired] : {std::pair("a\xff"s, "a?"s),
                                       {"\xed\xa0\x80"s, "???"s},
                                       {"\xc0\x80"s, "??"s},
                                       {"\xf4\x90\x80\x80"s, "????"s},
                                       {"\xe2\x82"s, "??"s},
                                       {"\xf0\x9f\x98\x80"s, "\xf0\x9f\x98\x80"s}}) {
    MarshalWriter writer;
    writer.Text(text);
    MarshalReader reader(writer.bytes());
    EXPECT_EQ(reader.Text(), repaired);
  }
}

TEST(MarshalTest, RewindsAndPatchesTheCount) {
  MarshalWriter writer;
  const size_t list = writer.Mark();
  writer.Tuple(0);
  writer.Int(1);
  const size_t mark = writer.Mark();
  writer.Text("dropped");
  writer.Rewind(mark);
  writer.PatchTuple(list, 1);
  MarshalReader reader(writer.bytes());
  reader.TupleOf(1);
  EXPECT_EQ(reader.Int(), 1);
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(MarshalTest, KeepsTheFirstError) {
  for (const auto& bytes :
       {""s, "("s, "(\xff\xff\xff\x7f"s, "u\x05\0\0\0ab"s, "l\x06\0\0\0\0\0"s, "i\x01"s, "X"s,
        "l\x05\0\0\0\xff\x7f\xff\x7f\xff\x7f\xff\x7f\xff\x7f"s}) {
    MarshalReader reader(bytes);
    switch (reader.Next()) {
      case '(':
        EXPECT_EQ(reader.Tuple(), 0u);
        break;
      case 'u':
        EXPECT_EQ(reader.Text(), "");
        break;
      default:
        (void)reader.Int();
    }
    const std::string fault = reader.status().message();
    EXPECT_FALSE(fault.empty()) << testing::PrintToString(bytes);
    EXPECT_EQ(reader.Int(), 0);
    EXPECT_EQ(reader.Text(), "");
    EXPECT_EQ(reader.Next(), '\0');
    EXPECT_EQ(reader.Finish().message(), fault);
  }
}

TEST(MarshalTest, ReportsBytesAfterTheMessage) {
  const std::string bytes = "i\x01\0\0\0N"s;
  MarshalReader reader(bytes);
  EXPECT_EQ(reader.Int(), 1);
  EXPECT_EQ(reader.Finish().message(), "a message has 1 bytes more than expected");
}

}  // namespace
}  // namespace nereid::python
