// MessageReader returns the messages of a call, however their bytes are split.
#include "host/frontend/grpc/transport/message_reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "tests/support/sanitizer.h"

namespace nereid::grpc {
namespace {

constexpr size_t kMaxBytes = 1000;

std::string Framed(std::string_view message, bool is_compressed = false) {
  const auto prefix = MessagePrefix(is_compressed, message.size());
  return std::string(prefix.data(), prefix.size()) + std::string(message);
}

TEST(MessageReaderTest, ReadsMessagesSplitAtAnyByte) {
  const std::string bytes = Framed("first") + Framed("") + Framed(std::string(300, 'x'));
  for (size_t step = 1; step <= bytes.size(); ++step) {
    MessageReader reader(kMaxBytes, http::Encoding::kIdentity, nullptr);
    std::deque<ReceivedMessage> messages;
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_EQ(reader.Feed(std::string_view(bytes).substr(at, step), messages).code,
                GrpcCode::kOk);
    }
    ASSERT_EQ(messages.size(), 3u) << step;
    EXPECT_EQ(messages[0].bytes.bytes, "first");
    EXPECT_EQ(messages[1].bytes.bytes, "");
    EXPECT_EQ(messages[2].bytes.bytes, std::string(300, 'x'));
    EXPECT_TRUE(reader.is_at_boundary());
  }
}

TEST(MessageReaderTest, WritesThePrefixOfTheProtocol) {
  EXPECT_EQ(Framed(std::string(258, 'x')).substr(0, 5), std::string("\0\0\0\1\2", 5));
  EXPECT_EQ(Framed("x", true)[0], 1);
}

TEST(MessageReaderTest, AlignsTheEndOfMessages) {
  MessageReader reader(kMaxBytes, http::Encoding::kIdentity, nullptr);
  std::deque<ReceivedMessage> messages;
  for (const size_t size : {1u, 63u, 64u, 999u}) {
    ASSERT_EQ(reader.Feed(Framed(std::string(size, 'x')), messages).code, GrpcCode::kOk);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(messages.back().bytes.bytes.data() + size) % 64, 0u);
  }
}

TEST(MessageReaderTest, ReportsAnUnfinishedMessage) {
  for (const size_t size : {1u, 5u, 7u}) {
    MessageReader reader(kMaxBytes, http::Encoding::kIdentity, nullptr);
    std::deque<ReceivedMessage> messages;
    ASSERT_EQ(reader.Feed(Framed("abc").substr(0, size), messages).code, GrpcCode::kOk);
    EXPECT_TRUE(messages.empty());
    EXPECT_FALSE(reader.is_at_boundary());
  }
}

TEST(MessageReaderTest, RejectsAMessageAboveTheLimitFromItsPrefix) {
  MessageReader reader(kMaxBytes, http::Encoding::kIdentity, nullptr);
  std::deque<ReceivedMessage> messages;
  const CallStatus status = reader.Feed(Framed(std::string(1001, 'x')).substr(0, 5), messages);
  EXPECT_EQ(status.code, GrpcCode::kResourceExhausted);
  EXPECT_NE(status.message.find("1001"), std::string::npos);
  EXPECT_NE(status.message.find("1000"), std::string::npos);
}

TEST(MessageReaderTest, MarksCompressedMessages) {
  MessageReader reader(kMaxBytes, http::Encoding::kGzip, nullptr);
  std::deque<ReceivedMessage> messages;
  ASSERT_EQ(reader.Feed(Framed("packed", true) + Framed("plain"), messages).code, GrpcCode::kOk);
  EXPECT_TRUE(messages[0].is_compressed);
  EXPECT_EQ(messages[0].bytes.bytes, "packed");
  EXPECT_FALSE(messages[1].is_compressed);
}

TEST(MessageReaderTest, KeepsAMessageThatOutgrowsItsFirstMemory) {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += StrCat(i, ",");
  const std::string bytes = Framed(text);
  for (const size_t step : {2'999u, 100'000u}) {
    MessageReader reader(text.size(), http::Encoding::kIdentity, nullptr);
    std::deque<ReceivedMessage> messages;
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_EQ(reader.Feed(std::string_view(bytes).substr(at, step), messages).code,
                GrpcCode::kOk);
    }
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_EQ(messages[0].bytes.bytes, text);
    const char* const end = messages[0].bytes.bytes.data() + text.size();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(end) % 64, 0u);
  }
}

TEST(MessageReaderTest, CountsWhatHasArrivedAndNotWhatIsClaimed) {
  ByteBudget budget(0);
  std::deque<ReceivedMessage> messages;
  {
    MessageReader reader(size_t{1} << 31, http::Encoding::kIdentity, &budget);
    const std::string prefix("\0\x7f\xff\xff\xff", 5);
    ASSERT_EQ(reader.Feed(prefix, messages).code, GrpcCode::kOk);
    EXPECT_EQ(budget.used_bytes(), 0u);
    ASSERT_EQ(reader.Feed(std::string(100'000, 'x'), messages).code, GrpcCode::kOk);
    EXPECT_GE(budget.used_bytes(), 100'000u);
    EXPECT_LT(budget.used_bytes(), 200'000u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MessageReaderTest, KeepsTheReservationAsLongAsTheMessage) {
  ByteBudget budget(1000);
  Slice kept;
  {
    MessageReader reader(kMaxBytes, http::Encoding::kIdentity, &budget);
    std::deque<ReceivedMessage> messages;
    ASSERT_EQ(reader.Feed(Framed(std::string(600, 'x')), messages).code, GrpcCode::kOk);
    const CallStatus refused = reader.Feed(Framed(std::string(600, 'y')), messages);
    EXPECT_EQ(refused.code, GrpcCode::kUnavailable);
    EXPECT_NE(refused.message.find("600 of 1000"), std::string::npos) << refused.message;
    kept = messages[0].bytes;
  }
  EXPECT_EQ(budget.used_bytes(), 600u);
  kept = {};
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(MessageReaderTest, AllocatesNothingForAClaim) {
  if (kHasSanitizer) GTEST_SKIP();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = size_t{4} << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &lower), 0);
  std::deque<MessageReader> readers;
  std::deque<ReceivedMessage> messages;
  GrpcCode code = GrpcCode::kOk;
  for (int i = 0; i < 100 && code == GrpcCode::kOk; ++i) {
    readers.emplace_back(size_t{1} << 31, http::Encoding::kIdentity, nullptr);
    code = readers.back().Feed(std::string("\0\x7f\xff\xff\xffx", 6), messages).code;
  }
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(code, GrpcCode::kOk);
}

TEST(MessageReaderTest, RejectsUnknownCompressionFlags) {
  std::deque<ReceivedMessage> messages;
  MessageReader plain(kMaxBytes, http::Encoding::kIdentity, nullptr);
  EXPECT_EQ(plain.Feed(Framed("x", true), messages).code, GrpcCode::kInternal);
  MessageReader packed(kMaxBytes, http::Encoding::kGzip, nullptr);
  EXPECT_EQ(packed.Feed(std::string("\2\0\0\0\1x", 6), messages).code, GrpcCode::kInternal);
}

}  // namespace
}  // namespace nereid::grpc
