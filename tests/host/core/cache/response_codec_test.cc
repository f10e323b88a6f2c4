// Encodes and decodes cached responses. The bytes come back from a plug-in, so invalid bytes must
// be refused without a crash.
#include "host/core/cache/response_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kConfig[] = R"({"backend": "b",
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]},
             {"name": "TEXT", "data_type": "TYPE_STRING", "dims": [-1]}]})";
// Offsets of fields of the first output, after the header, the name's length and the name.
constexpr size_t kDataTypeAt = 16 + 8 + 3;
constexpr size_t kDimAt = kDataTypeAt + 8 + 8;

class ResponseCodecTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(request_.Prepare().ok()); }
  void TearDown() override { request_.Release(TRITONSERVER_REQUEST_RELEASE_ALL); }

  std::unique_ptr<InferResponse> NewResponse() {
    return std::move(InferResponse::New(request_.sink())).value();
  }
  static void Fill(InferResponse& response, const char* name, DataType type,
                   std::span<const int64_t> shape, std::string_view content) {
    OutputTensor* const output = response.AddClientOutput(name, type, Shape(shape)).value();
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    std::memcpy(output->AllocateBuffer(content.size(), &memory_type, &id).value(), content.data(),
                content.size());
  }
  // Returns an encoded response with both outputs.
  std::vector<std::byte> Encoded() {
    const auto response = NewResponse();
    Fill(*response, "OUT", DataType::kFp32, std::vector<int64_t>{2}, "12345678");
    Fill(*response, "TEXT", DataType::kBytes, std::vector<int64_t>{1}, std::string(4, '\0'));
    std::vector<std::byte> bytes(EncodedSize(*response));
    EXPECT_TRUE(EncodeResponse(*response, bytes).ok());
    return bytes;
  }
  Status DecodeWith(size_t position, uint64_t value) {
    std::vector<std::byte> bytes = Encoded();
    std::memcpy(bytes.data() + position, &value, sizeof(value));
    return DecodeResponse(bytes, NewResponse().get());
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kConfig);
  TestClient client_;
  TestRequest owner_{target_, &client_, "r", {1}};
  InferRequest& request_ = owner_.request;
};

TEST_F(ResponseCodecTest, DecodesWhatWasEncoded) {
  const auto response = NewResponse();
  ASSERT_TRUE(DecodeResponse(Encoded(), response.get()).ok());
  ASSERT_EQ(response->num_outputs(), 2U);
  const OutputTensor& output = *response->output(0);
  EXPECT_EQ(output.name(), "OUT");
  EXPECT_EQ(output.data_type(), DataType::kFp32);
  EXPECT_EQ(std::memcmp(output.base(), "12345678", 8), 0);
}

TEST_F(ResponseCodecTest, RefusesUnknownDataTypes) {
  for (const uint64_t type : {uint64_t{0}, uint64_t{15}, uint64_t{1} << 32 | 11, ~uint64_t{0}}) {
    EXPECT_EQ(DecodeWith(kDataTypeAt, type).message(), "cached response: a data type is corrupt")
        << type;
  }
}

TEST_F(ResponseCodecTest, RefusesInvalidShapes) {
  EXPECT_EQ(DecodeWith(kDimAt, static_cast<uint64_t>(-2)).message(),
            "cached response: a shape is corrupt");
  EXPECT_FALSE(DecodeWith(kDimAt - 8, uint64_t{1} << 60).ok()) << "the number of dimensions";
}

TEST_F(ResponseCodecTest, RefusesEveryPrefix) {
  const std::vector<std::byte> bytes = Encoded();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeResponse(std::span(bytes).first(size), NewResponse().get()).ok()) << size;
  }
}

TEST_F(ResponseCodecTest, ReadsWithinBoundsAfterBitFlips) {
  std::mt19937 random(11);
  const std::vector<std::byte> original = Encoded();
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = original;
    for (int flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= std::byte{1} << random() % 8;
    }
    const auto response = NewResponse();
    if (!DecodeResponse(bytes, response.get()).ok()) continue;
    for (size_t k = 0; k < response->num_outputs(); ++k) {
      const OutputTensor& output = *response->output(k);
      EXPECT_NE(std::string(Name(output.data_type())), "<invalid>");
      for (const int64_t dim : output.shape()) EXPECT_GE(dim, 0);
    }
  }
}

}  // namespace
}  // namespace nereid::core
