// Tests of ChunkedDecoder with input split into parts of every size.
#include "host/frontend/http/transport/chunked_decoder.h"

#include <gtest/gtest.h>

#include "nereid/status.h"

namespace nereid::http {
namespace {

using State = ChunkedDecoder::State;

struct Decoded {
  State state;
  std::string body;
  size_t consumed;
};

Decoded Decode(std::string_view text, size_t piece_bytes, size_t max_body_bytes = 1000) {
  ChunkedDecoder decoder(max_body_bytes);
  ByteBuffer body;
  size_t consumed = 0;
  while (consumed < text.size() && decoder.state() < State::kDone) {
    const size_t count = decoder.Consume(text.substr(consumed, piece_bytes), body);
    if (count == 0) break;
    consumed += count;
  }
  return {decoder.state(), std::string(body.view()), consumed};
}

TEST(ChunkedDecoderTest, JoinsChunksSplitAnywhere) {
  const std::string text = "3\r\nabc\r\n0A;ext=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Decoded decoded = Decode(text, piece);
    EXPECT_EQ(decoded.state, State::kDone);
    EXPECT_EQ(decoded.body, "abc0123456789");
    EXPECT_EQ(decoded.consumed, text.size() - 4) << piece;
  }
}

TEST(ChunkedDecoderTest, RejectsMalformedChunks) {
  for (const char* text : {"x\r\n", "\r\n", "-1\r\n", "3\nabc\r\n", "3\r\nabcd\r\n0\r\n\r\n",
                           "ffffffffffffffffff\r\n", "3 3\r\nabc"}) {
    EXPECT_EQ(Decode(text, 100).state, State::kMalformed) << text;
  }
  EXPECT_EQ(Decode(std::string(1000, '0'), 7).state, State::kMalformed);
}

TEST(ChunkedDecoderTest, RejectsControlCharactersInExtensions) {
  for (const char* text :
       {"3;a\rb\r\nabc\r\n0\r\n\r\n", "3\r;a\r\nabc", "3;\x01\r\nabc", "0;\r\r\n\r\n"}) {
    EXPECT_EQ(Decode(text, 100).state, State::kMalformed) << text;
  }
  EXPECT_EQ(Decode("3;\ta=\"b\"\r\nabc\r\n0\r\n\r\n", 100).state, State::kDone);
}

TEST(ChunkedDecoderTest, RejectsTrailersThatAreNoHeaderLines) {
  for (const char* trailer :
       {"nonsense", ": value", "na me: value", "name: va\rlue", " folded: x", "name\x01: x"}) {
    EXPECT_EQ(Decode(StrCat("0\r\n", trailer, "\r\n\r\n"), 100).state, State::kMalformed)
        << trailer;
  }
  EXPECT_EQ(Decode("0\r\nname: value\r\nempty:\r\n\r\n", 100).state, State::kDone);
}

TEST(ChunkedDecoderTest, TakesAnyNumberOfChunks) {
  constexpr int kNumChunks = 200'000;
  std::string text;
  for (int i = 0; i < kNumChunks; ++i) text += "1\r\nx\r\n";
  const Decoded decoded = Decode(text + "0\r\n\r\n", 16'000, kNumChunks);
  EXPECT_EQ(decoded.state, State::kDone);
  EXPECT_EQ(decoded.body.size(), static_cast<size_t>(kNumChunks));
}

TEST(ChunkedDecoderTest, RejectsBodiesBeyondTheLimit) {
  EXPECT_EQ(Decode("b\r\n", 100, 10).state, State::kTooLarge);
  EXPECT_EQ(Decode("5\r\nabcde\r\n6\r\n", 100, 10).state, State::kTooLarge);
  EXPECT_EQ(Decode("5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n", 100, 10).state, State::kDone);
  EXPECT_EQ(Decode("ffffffffffffffff\r\n", 100, 10).state, State::kTooLarge);
}

TEST(ChunkedDecoderTest, RejectsEndlessTrailers) {
  std::string text = "0\r\n";
  for (int i = 0; i < 1000; ++i) text += "Trailer: 0123456789\r\n";
  EXPECT_EQ(Decode(text, 64).state, State::kMalformed);
}

}  // namespace
}  // namespace nereid::http
