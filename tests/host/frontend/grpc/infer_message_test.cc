// InferMessage reads a message as protobuf does, except for raw tensors.
#include "host/frontend/grpc/infer_message.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace nereid {
namespace {

using inference::ModelInferRequest;

ModelInferRequest Example() {
  ModelInferRequest request;
  request.set_model_name("a model whose name does not fit a small string");
  request.set_id("id");
  (*request.mutable_parameters())["key"].set_double_param(0.5);
  for (int i = 0; i < 3; ++i) {
    auto* input = request.add_inputs();
    input->set_name("INPUT" + std::to_string(i));
    input->set_datatype("FP32");
    input->add_shape(-1);
    input->add_shape(i);
    request.add_raw_input_contents(std::string(i * 7, static_cast<char>('a' + i)));
  }
  request.add_outputs()->set_name("OUTPUT0");
  return request;
}

void ExpectSame(const InferMessage& message, ModelInferRequest request) {
  ASSERT_EQ(message.raw_count(), static_cast<size_t>(request.raw_input_contents_size()));
  for (size_t i = 0; i < message.raw_count(); ++i) {
    EXPECT_EQ(message.raw(i), request.raw_input_contents(static_cast<int>(i)));
  }
  request.clear_raw_input_contents();
  EXPECT_EQ(message.message().SerializeAsString(), request.SerializeAsString());
}

TEST(InferMessageTest, ReadsAWholeMessage) {
  const ModelInferRequest request = Example();
  InferMessage message;
  ASSERT_TRUE(message.Parse(Slice::Of(request.SerializeAsString())).ok());
  ExpectSame(message, request);
}

TEST(InferMessageTest, ReferencesRawTensorsWithoutACopy) {
  const Slice bytes = Slice::Of(Example().SerializeAsString());
  InferMessage message;
  ASSERT_TRUE(message.Parse(bytes).ok());
  EXPECT_EQ(message.raw(2).data() + message.raw(2).size(), bytes.bytes.data() + bytes.bytes.size());
}

TEST(InferMessageTest, CountsTheParsedMessageInTheBudget) {
  ModelInferRequest request;
  auto* const contents = request.add_inputs()->mutable_contents();
  for (int i = 0; i < 100'000; ++i) contents->add_bytes_contents("");
  const Slice bytes = Slice::Of(request.SerializeAsString());
  ASSERT_LT(bytes.bytes.size(), 250'000u);
  ByteBudget budget(8'000'000);
  {
    InferMessage message;
    ASSERT_TRUE(message.Parse(bytes, &budget).ok());
    EXPECT_GT(budget.used_bytes(), 3'000'000u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  ByteBudget small(1'000'000);
  {
    InferMessage message;
    EXPECT_THROW((void)message.Parse(bytes, &small), std::bad_alloc);
  }
  EXPECT_EQ(small.used_bytes(), 0u);
}

TEST(InferMessageTest, ReadsAnEmptyMessage) {
  InferMessage message;
  ASSERT_TRUE(message.Parse(Slice()).ok());
  EXPECT_EQ(message.raw_count(), 0u);
  EXPECT_EQ(message.message().model_name(), "");
}

TEST(InferMessageTest, ReadsFieldsInAnyOrderAndTwice) {
  ModelInferRequest first;
  first.add_raw_input_contents("first");
  first.set_model_name("overridden");
  ModelInferRequest second;
  second.set_model_name("model");
  second.add_raw_input_contents("second");
  second.add_inputs()->set_name("INPUT0");
  const std::string bytes =
      second.SerializeAsString() + first.SerializeAsString() + second.SerializeAsString();
  ModelInferRequest merged;
  ASSERT_TRUE(merged.ParseFromString(bytes));
  InferMessage message;
  ASSERT_TRUE(message.Parse(Slice::Of(bytes)).ok());
  ExpectSame(message, merged);
}

TEST(InferMessageTest, SkipsUnknownFields) {
  const std::string unknown("\xa0\x06\x05\xaa\x06\x03xyz\xb3\x06\xb4\x06",
                            13);  // varint, bytes, group
  const ModelInferRequest request = Example();
  InferMessage message;
  ASSERT_TRUE(message.Parse(Slice::Of(unknown + request.SerializeAsString())).ok());
  EXPECT_EQ(message.message().model_name(), request.model_name());
  EXPECT_EQ(message.raw_count(), 3u);
}

TEST(InferMessageTest, RejectsWhatProtobufRejects) {
  std::mt19937 random(1);
  const std::string good = Example().SerializeAsString();
  size_t num_refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(bytes.size() - random() % 8);
    ModelInferRequest expected;
    const bool is_message = expected.ParseFromString(bytes);
    InferMessage message;
    ASSERT_EQ(message.Parse(Slice::Of(bytes)).ok(), is_message);
    if (is_message) ExpectSame(message, expected);
    num_refused += is_message ? 0 : 1;
  }
  EXPECT_GT(num_refused, 1000u);
}

TEST(InferMessageTest, ReportsGarbageAsUnparsable) {
  InferMessage message;
  const Status status = message.Parse(Slice::Of("\xff\xff\xff"));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_TRUE(status.message().starts_with("Unable to parse request"));
}

TEST(InferMessageTest, RejectsARawTensorLongerThanTheMessage) {
  for (const std::string& bytes :
       {std::string("\x3a\x05hi"), std::string("\x3a\xff\xff\xff\xff\x0fhi"),
        std::string("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")}) {
    InferMessage message;
    EXPECT_FALSE(message.Parse(Slice::Of(bytes)).ok());
  }
}

}  // namespace
}  // namespace nereid
