// A ModelInferRequest as received. Protobuf parses every field except raw_input_contents, whose
// bytes are referenced in the receive buffer instead of copied. Used by unary and stream inference.
// [one thread]
#pragma once

#include <string_view>
#include <vector>

#include "base/byte_budget.h"
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
  // ModelInferRequest. A message may occupy many times its bytes once it is parsed (an empty string
  // of 2 bytes becomes 40), so that memory is counted in `budget`, which outlives this object.
  // Null: it is not counted. Throws std::bad_alloc if the memory or the budget does not suffice.
  Status Parse(const Slice& bytes, ByteBudget* budget = nullptr);

  // Size of the parsed bytes.
  size_t size_bytes() const { return bytes_.bytes.size(); }
  // The message without its raw_input_contents, which raw() returns.
  const inference::ModelInferRequest& message() const { return *message_; }
  size_t raw_count() const { return raw_.size(); }
  std::string_view raw(size_t index) const { return raw_[index]; }

 private:
  bool Scan(std::vector<std::string_view>& other_fields);

  Slice bytes_;
  ByteReservation reservation_;  // stands for the blocks of arena_
  std::vector<std::string_view> raw_;
  alignas(8) char arena_block_[1536];
  google::protobuf::Arena arena_;
  inference::ModelInferRequest* message_;
};

}  // namespace nereid
