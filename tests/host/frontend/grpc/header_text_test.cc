// Parsing and encoding of gRPC header values.
#include "host/frontend/grpc/transport/header_text.h"

#include <gtest/gtest.h>

namespace nereid::grpc {
namespace {

using namespace std::chrono_literals;

TEST(HeaderTextTest, ReadsEachUnitOfATimeout) {
  EXPECT_EQ(ParseTimeout("2H"), 2h);
  EXPECT_EQ(ParseTimeout("3M"), 3min);
  EXPECT_EQ(ParseTimeout("4S"), 4s);
  EXPECT_EQ(ParseTimeout("5m"), 5ms);
  EXPECT_EQ(ParseTimeout("6u"), 6us);
  EXPECT_EQ(ParseTimeout("00000007n"), 7ns);
}

TEST(HeaderTextTest, ClampsATimeoutBeyondTheRangeOfNanoseconds) {
  EXPECT_EQ(ParseTimeout("99999999H"), std::chrono::nanoseconds::max());
}

TEST(HeaderTextTest, AcceptsTimeoutsThatGrpcAccepts) {
  EXPECT_EQ(ParseTimeout(" 1S"), 1s);
  EXPECT_EQ(ParseTimeout("1 S"), 1s);
  EXPECT_EQ(ParseTimeout("123456789S"), 99'999'999s);
  EXPECT_EQ(ParseTimeout("99999999999999999999999n"), 99'999'999ns);
}

TEST(HeaderTextTest, RejectsInvalidTimeouts) {
  for (const char* text : {"", "S", "1", "1s", "-1S", "1.5S", "1SS", " ", " S", "0x1S"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
}

TEST(HeaderTextTest, PercentEncodesBytesThatAHeaderCannotContain) {
  EXPECT_EQ(PercentEncode("plain text, 'quoted'"), "plain text, 'quoted'");
  EXPECT_EQ(PercentEncode("100%\r\n"), "100%25%0D%0A");
  EXPECT_EQ(PercentEncode("\xc3\xa9"), "%C3%A9");
  EXPECT_EQ(PercentEncode(" a "), "%20a%20");
}

TEST(HeaderTextTest, CutsLongMessages) {
  EXPECT_LE(PercentEncode(std::string(1 << 20, '\n')).size(), 6002u);
}

TEST(HeaderTextTest, FindsANameInAList) {
  EXPECT_TRUE(ListHas("identity, deflate,gzip", "gzip"));
  EXPECT_TRUE(ListHas("gzip ", "gzip"));
  EXPECT_FALSE(ListHas("x-gzip,gzipped", "gzip"));
  EXPECT_FALSE(ListHas("", "gzip"));
}

}  // namespace
}  // namespace nereid::grpc
