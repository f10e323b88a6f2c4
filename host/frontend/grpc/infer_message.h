// One ModelInferRequest off the wire. Protobuf parses all of it but the raw tensors: these stay
// where the socket put them and are referenced. Used by unary and stream inference. [one thread]
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

  // Once. Shares the memory of `bytes`. INTERNAL, as gRPC has it, for bytes that are no
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
