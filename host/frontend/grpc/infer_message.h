// A ModelInferRequest as received. Protobuf parses every field except raw_input_contents, whose
// bytes are referenced in the receive buffer instead of copied. Used by unary and stream inference.
// [one thread]
#pragma once

#include <string_view>
#include <vector>

#include "grpc_service.pb.h"
#include "host/frontend/grpc/call.h"
#include "nereid/status.h"

namespace nereid {

class InferMessage {
 public:
  InferMessage();
  InferMessage(const InferMessage&) = delete;
  InferMessage& operator=(const InferMessage&) = delete;

  // Called once. Keeps a reference to `bytes`. INTERNAL with gRPC's own text if they are not a
  // ModelInferRequest.
  Status Parse(const Slice& bytes);

  // Without raw_input_contents.
  const inference::ModelInferRequest& message() const { return *message_; }
  size_t raw_count() const { return raw_.size(); }
  std::string_view raw(size_t index) const { return raw_[index]; }

 private:
  bool Scan(std::vector<std::string_view>& other_fields);

  Slice bytes_;
  std::vector<std::string_view> raw_;
  alignas(8) char arena_block_[1536];
  google::protobuf::Arena arena_;
  inference::ModelInferRequest* message_;
};

}  // namespace nereid
