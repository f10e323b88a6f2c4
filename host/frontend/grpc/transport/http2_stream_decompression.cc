// Decompresses the messages of a call in steps, so that long ones do not keep the loop from others.
#include <memory>
#include <utility>

#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/frontend/grpc/transport/http2_stream.h"

namespace nereid::grpc {
namespace {

// Decompressed at once when a message has arrived; many may arrive together.
constexpr size_t kFirstStepBytes = 64 << 10;
// Decompressed later in one turn of the loop, so that it serves others every few milliseconds.
constexpr size_t kNextStepBytes = 1 << 20;

}  // namespace

// Decompresses the next message, if it is compressed. Returns false if that is not finished yet, in
// which case it continues later, or if the call was rejected.
bool Http2Stream::PrepareFront() {
  ReceivedMessage& front = received_.front();
  if (!front.is_compressed) return true;
  const GrpcOptions& options = connection_->options();
  const bool is_first = decompression_ == nullptr;
  if (is_first) {
    decompression_ = std::make_unique<http::Decompression>(
        front.bytes.bytes, options.max_message_bytes, connection_->budget());
  }
  const Result<bool> is_done = decompression_->Step(is_first ? kFirstStepBytes : kNextStepBytes);
  if (!is_done.ok()) {
    const bool is_invalid = is_done.status().code() == StatusCode::kInvalidArg;
    const GrpcCode code = decompression_->is_too_large() ? GrpcCode::kResourceExhausted
                          : is_invalid                   ? GrpcCode::kInternal
                                                         : GrpcCode::kUnavailable;
    Reject({code, StrCat("message: ", is_done.status().message())});
    return false;
  }
  if (!*is_done) {
    connection_->ContinueLater(id_);
    return false;
  }
  struct Plain {
    http::ByteBuffer bytes;
    ByteReservation reservation;
  };
  auto plain = std::make_shared<const Plain>(
      Plain{decompression_->TakeOutput(), decompression_->TakeReservation()});
  decompression_.reset();
  const std::string_view bytes = plain->bytes.view();
  front = {{bytes, std::move(plain)}, false};
  return true;
}

void Http2Stream::ContinueDecompression() {
  if (decompression_ == nullptr || is_rejected_ || is_finished_ || forced_status_) return;
  if (is_started_) {
    Deliver();
  } else if (is_remote_end_) {
    StartUnary();
  }
}

}  // namespace nereid::grpc
