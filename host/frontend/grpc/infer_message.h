// One ModelInferRequest off the wire. Protobuf parses all of it but the raw tensors: these stay
// where the socket put them and are referenced. Used by unary and stream inference. [one thread]
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <span>
#include <string_view>
#include <vector>

#include "grpc_service.pb.h"
#include "nereid/status.h"

namespace nereid {

// One entry of raw_input_contents: pieces in order, as they lie in the receive buffers.
struct RawContents {
  std::span<const std::string_view> pieces;
  size_t size_bytes;
};

class InferMessage {
 public:
  InferMessage();
  InferMessage(const InferMessage&) = delete;
  InferMessage& operator=(const InferMessage&) = delete;

  // Once. Shares `buffer`'s memory: it may be cleared afterwards. INTERNAL, as gRPC has it, for
  // bytes that are no ModelInferRequest.
  Status Parse(const grpc::ByteBuffer& buffer);

  // Without raw_input_contents.
  const inference::ModelInferRequest& message() const { return *message_; }
  size_t raw_count() const { return raw_.size(); }
  RawContents raw(size_t index) const;

 private:
  struct RawEntry {
    size_t first_piece;
    size_t piece_count;
    size_t size_bytes;
  };

  bool Scan(std::vector<std::string_view>& other_fields);

  std::vector<grpc::Slice> slices_;
  std::vector<std::string_view> spans_;  // of slices_
  std::vector<std::string_view> pieces_;
  std::vector<RawEntry> raw_;
  alignas(8) char arena_block_[1536];
  google::protobuf::Arena arena_;
  inference::ModelInferRequest* message_;
};

}  // namespace nereid
