// Tests of compressed bodies: the encodings of Triton's clients, our own output and damaged input.
// The byte strings were created with Python's zlib and gzip.
#include "host/frontend/http/bodies/compression.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

// gzip.compress(b"hello hello hello", mtime=0)
constexpr std::string_view kGzipHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x80\x88\xf9"
    "\xe5\x11\x00\x00\x00",
    28);
// zlib.compress(b"hello hello hello")
constexpr std::string_view kZlibHello(
    "\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d", 16);

Result<ByteBuffer> Decompress(std::string_view bytes, size_t max_bytes) {
  Decompression decompression(bytes, max_bytes, nullptr);
  NEREID_RETURN_IF_ERROR(decompression.Step(max_bytes + 1).status());
  return decompression.TakeOutput();
}

std::string DecompressionError(std::string_view bytes, size_t max_bytes = 100) {
  const Result<ByteBuffer> result = Decompress(bytes, max_bytes);
  return result.ok() ? "no error" : result.status().message();
}

TEST(CompressionTest, DecompressesPythonOutput) {
  for (const std::string_view bytes : {kGzipHello, kZlibHello}) {
    const Result<ByteBuffer> result = Decompress(bytes, 100);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->view(), "hello hello hello");
  }
}

TEST(CompressionTest, ReportsDamagedTruncatedAndTrailingData) {
  EXPECT_NE(DecompressionError("notgzip").find("damaged"), std::string::npos);
  EXPECT_NE(DecompressionError("").find("truncated"), std::string::npos);
  EXPECT_NE(DecompressionError(kGzipHello.substr(0, 20)).find("truncated"), std::string::npos);
  EXPECT_NE(DecompressionError(std::string(kGzipHello) + "x").find("follow"), std::string::npos);
}

TEST(CompressionTest, RejectsADecompressionBombAtTheLimit) {
  const std::string zeros(1 << 20, '\0');
  const std::string_view piece = zeros;
  const std::string bomb = Compress(Encoding::kGzip, {&piece, 1});
  ASSERT_LT(bomb.size(), 10000u);
  EXPECT_EQ(DecompressionError(bomb, 65536),
            "Decompressed data size exceeds the maximum allowed value of 65536 bytes.");
  EXPECT_EQ(DecompressionError(bomb, zeros.size()), "no error");
}

TEST(CompressionTest, DecompressesInSteps) {
  const std::string zeros(1 << 20, '\0');
  const std::string_view piece = zeros;
  const std::string packed = Compress(Encoding::kGzip, {&piece, 1});
  Decompression decompression(packed, zeros.size(), nullptr);
  for (int i = 1; i < 16; ++i) {
    const Result<bool> is_done = decompression.Step(zeros.size() / 16);
    ASSERT_TRUE(is_done.ok() && !*is_done) << i;
  }
  Result<bool> is_done = decompression.Step(zeros.size() / 16);
  if (is_done.ok() && !*is_done) is_done = decompression.Step(1);  // the end mark of the body
  ASSERT_TRUE(is_done.ok() && *is_done);
  EXPECT_EQ(decompression.TakeOutput().view(), zeros);
}

TEST(CompressionTest, TakesTheOutputFromTheBudget) {
  const std::string zeros(1 << 20, '\0');
  const std::string_view piece = zeros;
  const std::string packed = Compress(Encoding::kGzip, {&piece, 1});
  ByteBudget small(zeros.size() / 2);
  {
    Decompression decompression(packed, zeros.size(), &small);
    const Result<bool> is_done = decompression.Step(zeros.size() + 1);
    ASSERT_FALSE(is_done.ok());
    EXPECT_EQ(is_done.status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(small.used_bytes(), 0u);
  ByteBudget large(zeros.size() * 2);
  ByteReservation reservation;
  {
    Decompression decompression(packed, zeros.size(), &large);
    ASSERT_TRUE(decompression.Step(zeros.size() + 1).ok());
    reservation = decompression.TakeReservation();
  }
  EXPECT_GE(large.used_bytes(), zeros.size());
}

TEST(CompressionTest, CompressesSegmentsIntoOneBody) {
  const std::string long_piece(100000, 'a');
  const std::string_view pieces[] = {"first", "", long_piece};
  for (const Encoding encoding : {Encoding::kGzip, Encoding::kDeflate}) {
    const std::string compressed = Compress(encoding, pieces);
    const Result<ByteBuffer> result = Decompress(compressed, 200000);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->view(), "first" + long_piece);
    EXPECT_EQ(compressed.front() == '\x1f', encoding == Encoding::kGzip);
  }
}

TEST(CompressionTest, ChoosesTheEncodingWithTheHighestWeight) {
  EXPECT_EQ(ChooseEncoding(""), Encoding::kIdentity);
  EXPECT_EQ(ChooseEncoding("br, identity"), Encoding::kIdentity);
  EXPECT_EQ(ChooseEncoding("gzip"), Encoding::kGzip);
  EXPECT_EQ(ChooseEncoding("deflate, gzip"), Encoding::kDeflate);
  EXPECT_EQ(ChooseEncoding("gzip, deflate"), Encoding::kGzip);
  EXPECT_EQ(ChooseEncoding("identity, gzip;q=0.5"), Encoding::kIdentity);
  EXPECT_EQ(ChooseEncoding("gzip;q=0.2, deflate;q=0.8, br"), Encoding::kDeflate);
  EXPECT_EQ(ChooseEncoding("gzip;q=0"), Encoding::kIdentity);
  EXPECT_EQ(ChooseEncoding(" , ,;q=1,"), Encoding::kIdentity);
}

TEST(CompressionTest, ParsesContentEncoding) {
  EXPECT_EQ(ParseContentEncoding(""), Encoding::kIdentity);
  EXPECT_EQ(ParseContentEncoding("GZip"), Encoding::kGzip);
  EXPECT_EQ(ParseContentEncoding("deflate"), Encoding::kDeflate);
  EXPECT_EQ(ParseContentEncoding("br"), std::nullopt);
  EXPECT_EQ(ParseContentEncoding("gzip, gzip"), std::nullopt);
}

}  // namespace
}  // namespace nereid::http
