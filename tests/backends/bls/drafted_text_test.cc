#include "backends/bls/drafted_text.h"

#include <gtest/gtest.h>

namespace nereid::bls {
namespace {

TokenIds Copy(std::span<const int32_t> ids) {
  return {ids.begin(), ids.end()};
}

TEST(DraftedTextTest, AcceptedTokensAndTheTargetsOwnAreAdded) {
  DraftedText text({1, 2}, 10, 3, 0);
  EXPECT_EQ(text.NumToDraft(), 3);
  text.BeginCall(TokenIds{3, 4, 5});
  EXPECT_EQ(Copy(text.call_prompt()), (TokenIds{1, 2}));
  EXPECT_EQ(text.call_draft(), (TokenIds{3, 4, 5}));
  EXPECT_EQ(text.call_length(), 4);
  EXPECT_TRUE(text.EndCall(TokenIds{3, 4, 9, 8}));
  EXPECT_EQ(Copy(text.output()), (TokenIds{3, 4, 9, 8}));
  EXPECT_EQ(text.num_proposed(), 3);
  EXPECT_EQ(text.num_accepted(), 2);
}

TEST(DraftedTextTest, EndsAtTheLengthAndWithAShorterOutput) {
  DraftedText text({1}, 3, 8, 0);
  EXPECT_EQ(text.NumToDraft(), 2);
  text.BeginCall(TokenIds{2, 3, 4, 5});  // more than was asked for
  EXPECT_EQ(text.call_length(), 3);
  EXPECT_FALSE(text.EndCall(TokenIds{2, 3, 4}));
  DraftedText early({1}, 30, 2, 0);
  early.BeginCall(TokenIds{2, 3});
  EXPECT_FALSE(early.EndCall(TokenIds{2, 3}));
  EXPECT_EQ(early.num_accepted(), 2);
}

TEST(DraftedTextTest, OneTokenNeedsNoDraft) {
  DraftedText text({1}, 1, 4, 0);
  EXPECT_EQ(text.NumToDraft(), 0);
  text.BeginCall({});
  EXPECT_EQ(text.call_length(), 1);
  EXPECT_FALSE(text.EndCall(TokenIds{7}));
}

TEST(DraftedTextTest, TheNewestTokensAreVerifiedAgain) {
  DraftedText text({1, 2}, 20, 2, 3);
  text.BeginCall(TokenIds{3, 4});
  ASSERT_TRUE(text.EndCall(TokenIds{3, 4, 5}));
  text.BeginCall(TokenIds{6, 7});
  EXPECT_EQ(Copy(text.call_prompt()), (TokenIds{1, 2}));  // never a part of the client's prompt
  EXPECT_EQ(text.call_draft(), (TokenIds{3, 4, 5, 6, 7}));
  ASSERT_TRUE(text.EndCall(TokenIds{3, 4, 5, 6, 7, 8}));
  text.BeginCall(TokenIds{9});
  EXPECT_EQ(text.num_output_in_prompt(), 3u);
  // A stop word that began in the overlap: its tokens are not part of the output.
  EXPECT_FALSE(text.EndCall(TokenIds{6, 7}));
  EXPECT_EQ(text.ids(), (TokenIds{1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace nereid::bls
