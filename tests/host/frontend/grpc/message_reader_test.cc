// MessageReader returns the messages of a call, however their bytes are split.
#include "host/frontend/grpc/transport/message_reader.h"

#include <gtest/gtest.h>

#include <string>

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
    MessageReader reader(kMaxBytes, http::Encoding::kIdentity);
    std::deque<Slice> messages;
    for (size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_EQ(reader.Feed(std::string_view(bytes).substr(at, step), messages).code,
                GrpcCode::kOk);
    }
    ASSERT_EQ(messages.size(), 3u) << step;
    EXPECT_EQ(messages[0].bytes, "first");
    EXPECT_EQ(messages[1].bytes, "");
    EXPECT_EQ(messages[2].bytes, std::string(300, 'x'));
    EXPECT_TRUE(reader.is_at_boundary());
  }
}

TEST(MessageReaderTest, WritesThePrefixOfTheProtocol) {
  EXPECT_EQ(Framed(std::string(258, 'x')).substr(0, 5), std::string("\0\0\0\1\2", 5));
  EXPECT_EQ(Framed("x", true)[0], 1);
}

TEST(MessageReaderTest, AlignsTheEndOfMessages) {
  MessageReader reader(kMaxBytes, http::Encoding::kIdentity);
  std::deque<Slice> messages;
  for (const size_t size : {1u, 63u, 64u, 999u}) {
    ASSERT_EQ(reader.Feed(Framed(std::string(size, 'x')), messages).code, GrpcCode::kOk);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(messages.back().bytes.data() + size) % 64, 0u);
  }
}

TEST(MessageReaderTest, ReportsAnUnfinishedMessage) {
  for (const size_t size : {1u, 5u, 7u}) {
    MessageReader reader(kMaxBytes, http::Encoding::kIdentity);
    std::deque<Slice> messages;
    ASSERT_EQ(reader.Feed(Framed("abc").substr(0, size), messages).code, GrpcCode::kOk);
    EXPECT_TRUE(messages.empty());
    EXPECT_FALSE(reader.is_at_boundary());
  }
}

TEST(MessageReaderTest, RejectsAMessageAboveTheLimitFromItsPrefix) {
  MessageReader reader(kMaxBytes, http::Encoding::kIdentity);
  std::deque<Slice> messages;
  const CallStatus status = reader.Feed(Framed(std::string(1001, 'x')).substr(0, 5), messages);
  EXPECT_EQ(status.code, GrpcCode::kResourceExhausted);
  EXPECT_NE(status.message.find("1001"), std::string::npos);
  EXPECT_NE(status.message.find("1000"), std::string::npos);
}

TEST(MessageReaderTest, DecompressesMessages) {
  for (const http::Encoding encoding : {http::Encoding::kGzip, http::Encoding::kDeflate}) {
    const std::string text(900, 'x');
    const std::string_view piece = text;
    const std::string packed = http::Compress(encoding, {&piece, 1});
    MessageReader reader(kMaxBytes, encoding);
    std::deque<Slice> messages;
    ASSERT_EQ(reader.Feed(Framed(packed, true) + Framed("plain"), messages).code, GrpcCode::kOk);
    EXPECT_EQ(messages[0].bytes, text);
    EXPECT_EQ(messages[1].bytes, "plain");
  }
}

TEST(MessageReaderTest, RejectsCompressedMessagesThatAreTooLargeOrInvalid) {
  const std::string text(kMaxBytes + 1, 'x');
  const std::string_view piece = text;
  const std::string bomb = http::Compress(http::Encoding::kGzip, {&piece, 1});
  for (const std::string& packed : {bomb, std::string("not gzip"), bomb.substr(0, 10)}) {
    MessageReader reader(kMaxBytes, http::Encoding::kGzip);
    std::deque<Slice> messages;
    EXPECT_NE(reader.Feed(Framed(packed, true), messages).code, GrpcCode::kOk);
    EXPECT_TRUE(messages.empty());
  }
}

TEST(MessageReaderTest, RejectsUnknownCompressionFlags) {
  std::deque<Slice> messages;
  MessageReader plain(kMaxBytes, http::Encoding::kIdentity);
  EXPECT_EQ(plain.Feed(Framed("x", true), messages).code, GrpcCode::kInternal);
  MessageReader packed(kMaxBytes, http::Encoding::kGzip);
  EXPECT_EQ(packed.Feed(std::string("\2\0\0\0\1x", 6), messages).code, GrpcCode::kInternal);
}

}  // namespace
}  // namespace nereid::grpc
