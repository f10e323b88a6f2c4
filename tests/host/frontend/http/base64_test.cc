// Known answers.
#include "host/frontend/http/bodies/base64.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

TEST(Base64Test, DecodesWithAndWithoutPadding) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("Zg=="), "f");
  EXPECT_EQ(DecodeBase64("Zg"), "f");
  EXPECT_EQ(DecodeBase64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(DecodeBase64("Zm9v\r\nYg==\n"), "foob");
  EXPECT_EQ(DecodeBase64("/+8="), "\xff\xef");
}

TEST(Base64Test, RefusesWhatIsNotBase64) {
  EXPECT_FALSE(DecodeBase64("Z"));
  EXPECT_FALSE(DecodeBase64("Zm9vZ"));
  EXPECT_FALSE(DecodeBase64("Zm=v"));
}

}  // namespace
}  // namespace nereid::http
