// Messages of a stream that do not contain a model's response.
#include <gtest/gtest.h>

#include "grpc_service.pb.h"
#include "host/frontend/grpc/infer_response_encoder.h"

namespace nereid {
namespace {

inference::ModelStreamInferResponse Decode(const WireMessage& bytes) {
  std::string text;
  for (const Slice& slice : bytes.slices()) text += slice.bytes;
  inference::ModelStreamInferResponse message;
  EXPECT_TRUE(message.ParseFromString(text));
  return message;
}

TEST(StreamMessageTest, EmptyFinalNamesModelAndRequest) {
  const auto message = Decode(EncodeEmptyFinal("model", "id"));
  EXPECT_EQ(message.infer_response().model_name(), "model");
  EXPECT_EQ(message.infer_response().id(), "id");
  EXPECT_TRUE(message.infer_response().parameters().at("triton_final_response").bool_param());
}

TEST(StreamMessageTest, ErrorBeforeTheModelCarriesOnlyTheId) {
  const auto message = Decode(EncodeStreamError(NotFoundError("no"), "", "id", true));
  EXPECT_EQ(message.error_message(), "no");
  EXPECT_EQ(message.infer_response().id(), "id");
  EXPECT_TRUE(message.infer_response().parameters().empty());
}

TEST(StreamMessageTest, ErrorOfTheModelTellsWhetherMoreComes) {
  const auto message = Decode(EncodeStreamError(InternalError("no"), "model", "id", false));
  EXPECT_EQ(message.infer_response().model_name(), "model");
  EXPECT_FALSE(message.infer_response().parameters().at("triton_final_response").bool_param());
}

TEST(StreamMessageTest, ErrorTextIsMadeValidUtf8) {
  const auto message = Decode(EncodeStreamError(InternalError("bad \xff byte"), "", "", true));
  EXPECT_EQ(message.error_message(), "bad ? byte");
}

}  // namespace
}  // namespace nereid
