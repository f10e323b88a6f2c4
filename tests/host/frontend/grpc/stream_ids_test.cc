// Stream ids that a client skipped must not be used later.
#include "host/frontend/grpc/transport/stream_ids.h"

#include <gtest/gtest.h>

namespace nereid::grpc {
namespace {

TEST(StreamIdsTest, AcceptsIncreasingIdsAndFramesOfOpenedStreams) {
  StreamIds ids;
  for (const int32_t id : {1, 3, 3, 1, 9, 3, 9, 11}) EXPECT_TRUE(ids.Accept(id)) << id;
}

TEST(StreamIdsTest, RefusesSkippedIds) {
  StreamIds ids;
  ASSERT_TRUE(ids.Accept(5));
  EXPECT_FALSE(ids.Accept(1));
  EXPECT_FALSE(ids.Accept(3));
  EXPECT_TRUE(ids.Accept(5));
  ASSERT_TRUE(ids.Accept(7));
  ASSERT_TRUE(ids.Accept(2'147'483'647));
  EXPECT_FALSE(ids.Accept(2'147'483'645));
  EXPECT_FALSE(ids.Accept(9));
  EXPECT_TRUE(ids.Accept(7));
}

TEST(StreamIdsTest, KeepsTheNewestGaps) {
  StreamIds ids;
  for (int32_t id = 1; id < 1000; id += 4) ASSERT_TRUE(ids.Accept(id));
  EXPECT_FALSE(ids.Accept(995));
  EXPECT_TRUE(ids.Accept(3));  // forgotten
}

}  // namespace
}  // namespace nereid::grpc
