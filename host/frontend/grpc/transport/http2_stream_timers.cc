// Ends calls at their deadline, and those whose messages stall or whose streams are idle for too
// long.
#include <event2/event.h>

#include <chrono>
#include <utility>

#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/frontend/grpc/transport/http2_stream.h"

namespace nereid::grpc {
namespace {

// A slow trickle also counts as a stall, because it would occupy its memory for hours.
constexpr int64_t kMinBytesPerSecond = 4096;

timeval ToTimeval(std::chrono::nanoseconds duration) {
  const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(duration).count();
  return {static_cast<time_t>(microseconds / 1'000'000),
          static_cast<suseconds_t>(microseconds % 1'000'000)};
}

}  // namespace

void Http2Stream::SetDeadline(std::string_view timeout) {
  const auto duration = ParseTimeout(timeout);
  if (!duration) {
    invalid_header_ = "grpc-timeout: expected a number and one of H, M, S, m, u, n";
  }
  if (!duration || deadline_event_ != nullptr) return;
  deadline_event_ = event_new(loop_.base(), -1, 0, &OnDeadline, this);
  const timeval after = ToTimeval(*duration);
  if (deadline_event_ != nullptr) event_add(deadline_event_, &after);
}

void Http2Stream::OnDeadline(int, short, void* self) {
  static_cast<Http2Stream*>(self)->Reject({GrpcCode::kDeadlineExceeded, "Deadline Exceeded"});
}

bool Http2Stream::HasStalled(int64_t now_ms) {
  if (!is_receiving_) return false;
  if (is_started_ && !is_reading_) {  // the client may not send before the service reads
    receiving_since_ms_ = 0;
    return false;
  }
  const uint64_t before = std::exchange(received_bytes_at_check_, received_bytes_);
  if (receiving_since_ms_ == 0) {
    receiving_since_ms_ = now_ms;
    received_bytes_at_start_ = received_bytes_;
    return false;
  }
  const auto num_received = static_cast<int64_t>(received_bytes_ - received_bytes_at_start_);
  const int64_t allowed_ms =
      connection_->options().read_timeout_ms + num_received * 1000 / kMinBytesPerSecond;
  return received_bytes_ == before || now_ms - receiving_since_ms_ > allowed_ms;
}

void Http2Stream::EndStalled() {
  Reject({GrpcCode::kDeadlineExceeded, StrCat("the request stopped arriving after ",
                                              received_bytes_, " bytes (--grpc-read-timeout)")});
}

bool Http2Stream::MayBeIdle() const {
  const bool is_stream = method_ != nullptr && method_->stream != nullptr;
  return is_stream && is_started_ && !is_finished_ && !is_remote_end_ && !forced_status_;
}

bool Http2Stream::HasBeenIdle() {
  const uint64_t now = received_bytes_ + sent_bytes_;
  const bool has_moved = std::exchange(transferred_bytes_at_check_, now) != now;
  return !has_moved && out_bytes_ == 0;  // what the client does not read has a limit of its own
}

void Http2Stream::EndIdle() {
  Reject({GrpcCode::kDeadlineExceeded,
          "nothing was sent on the stream for too long (--grpc-stream-idle-timeout)"});
}

}  // namespace nereid::grpc
