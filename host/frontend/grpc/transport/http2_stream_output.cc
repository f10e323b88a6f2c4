// Response side of a stream: queued messages, status, DATA frames and flow control.
#include <event2/event.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <utility>

#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/frontend/grpc/transport/http2_stream.h"
#include "host/frontend/grpc/transport/send_buffer.h"

namespace nereid::grpc {
namespace {

constexpr size_t kMaxQueuedBytes = 64 << 10;   // queued per stream; above it OnWriteDone is delayed
constexpr size_t kMinExternalBytes = 4 << 10;  // shorter parts are copied next to the frame header
constexpr int64_t kMinStreamBytesPerSecond = 4096;

// `name` and `value` must outlive the use of the header.
nghttp2_nv Field(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

nghttp2_nv ConstantField(std::string_view name, std::string_view value) {
  nghttp2_nv field = Field(name, value);
  field.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
  return field;
}

const nghttp2_nv kStatus = ConstantField(":status", "200");
const nghttp2_nv kContentType = ConstantField("content-type", "application/grpc");
const nghttp2_nv kAcceptEncoding = ConstantField("grpc-accept-encoding", "identity, deflate, gzip");
const nghttp2_nv kGrpcOk = ConstantField("grpc-status", "0");

ssize_t OnReadData(nghttp2_session*, int32_t, uint8_t*, size_t length, uint32_t* data_flags,
                   nghttp2_data_source* source, void*) {
  return static_cast<Http2Stream*>(source->ptr)->PrepareData(length, data_flags);
}

}  // namespace

// ---- compression

// The compression level selects among the encodings that the client accepts, preferring gzip as
// gRPC does.
void Http2Stream::ChooseResponseEncoding() {
  const GrpcCompression level = connection_->options().response_compression;
  if (level == GrpcCompression::kNone) return;
  const bool takes_gzip = ListHas(accept_encoding_, "gzip");
  const bool takes_deflate = ListHas(accept_encoding_, "deflate");
  if (takes_deflate && (level != GrpcCompression::kLow || !takes_gzip)) {
    response_encoding_ = http::Encoding::kDeflate;
  } else if (takes_gzip) {
    response_encoding_ = http::Encoding::kGzip;
  }
}

// [any thread] Adds the prefix, and compresses the message if that makes it shorter.
Http2Stream::OutMessage Http2Stream::Frame(WireMessage message) const {
  if (response_encoding_ != http::Encoding::kIdentity) {
    std::vector<std::string_view> pieces;
    for (const Slice& slice : message.slices()) pieces.push_back(slice.bytes);
    std::string packed = http::Compress(response_encoding_, pieces);
    if (packed.size() < message.size_bytes()) {
      const auto prefix = MessagePrefix(/*is_compressed=*/true, packed.size());
      return {prefix, WireMessage(Slice::Of(std::move(packed)))};
    }
  }
  return {MessagePrefix(/*is_compressed=*/false, message.size_bytes()), std::move(message)};
}

// ---- actions

void Http2Stream::RunActions(Actions actions) {
  if (connection_ != nullptr) connection_->FlushSoon();
  if (actions.is_read_requested) {
    is_reading_ = true;
    if (connection_ == nullptr) {
      is_reading_ = false;
      if (handler_ != nullptr && !actions.status) handler_->OnReadDone(nullptr);
    } else {
      connection_->ConsumeStream(id_, std::exchange(unconsumed_bytes_, 0));
      if (!actions.status) Deliver();
    }
  }
  if (actions.is_full && connection_ != nullptr) {
    is_full_ = *actions.is_full;
    SetResponsePending(is_full_);
  }
  if (actions.is_abort_requested) ResetStream();
  const bool has_message = actions.message.has_value();
  if (has_message) QueueMessage(std::move(*actions.message));
  if (actions.status) {
    FinishWithStatus(std::move(*actions.status));
  } else if (has_message && !is_write_pending_ && handler_ != nullptr) {
    handler_->OnWriteDone();
  }
}

void Http2Stream::QueueMessage(OutMessage message) {
  if (connection_ == nullptr || is_aborted_ || is_rejected_ || forced_status_) return;
  out_bytes_ += message.prefix.size() + message.message.size_bytes();
  out_.push_back(std::move(message));
  is_write_pending_ = out_bytes_ > kMaxQueuedBytes;
  if (has_headers_) {
    nghttp2_session_resume_data(connection_->session(), id_);
  } else {
    SubmitHeaders();
  }
}

void Http2Stream::FinishWithStatus(CallStatus status) {
  is_finished_ = true;
  is_write_pending_ = false;
  if (connection_ == nullptr) {
    FinishAndDelete();
    return;
  }
  SetReceiving(false);
  if (deadline_event_ != nullptr) event_del(deadline_event_);
  if (is_aborted_) return;  // the session will close the stream
  SetResponsePending(method_->unary != nullptr && out_bytes_ > 0);
  status_ = forced_status_ ? std::move(*forced_status_) : std::move(status);
  if (has_headers_) {
    nghttp2_session_resume_data(connection_->session(), id_);
  } else {
    SubmitStatusOnly(status_);
  }
}

// ---- ends that the service did not initiate

void Http2Stream::Reject(CallStatus status) {
  if (connection_ == nullptr || is_finished_ || is_rejected_ || is_aborted_ || forced_status_) {
    return;
  }
  connection_->FlushSoon();
  SetReceiving(false);
  decompression_.reset();
  received_.clear();
  if (!is_started_) {
    is_rejected_ = true;
    SubmitStatusOnly(status);
  } else if (is_write_pending_) {
    ResetStream();  // a message cannot be cut off in the middle
  } else {
    forced_status_ = std::move(status);
    NotifyCancel();
  }
}

// The client does not speak gRPC: answers with a plain HTTP status.
void Http2Stream::RejectHttp(std::string_view http_status) {
  SetReceiving(false);
  is_rejected_ = true;
  const nghttp2_nv field = Field(":status", http_status);
  nghttp2_submit_response(connection_->session(), id_, &field, 1, nullptr);
}

void Http2Stream::ResetStream() {
  if (connection_ == nullptr || is_aborted_) return;
  SetReceiving(false);
  is_aborted_ = true;
  nghttp2_submit_rst_stream(connection_->session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_CANCEL);
  NotifyCancel();
}

// ---- frames

void Http2Stream::SubmitHeaders() {
  has_headers_ = true;
  nghttp2_data_provider provider{};
  provider.source.ptr = this;
  provider.read_callback = &OnReadData;
  const nghttp2_nv fields[] = {
      kStatus, kContentType, kAcceptEncoding,
      ConstantField("grpc-encoding", http::EncodingName(response_encoding_))};
  const size_t num_fields = response_encoding_ == http::Encoding::kIdentity ? 3 : 4;
  nghttp2_submit_response(connection_->session(), id_, fields, num_fields, &provider);
}

void Http2Stream::SubmitStatusOnly(const CallStatus& status) {
  has_headers_ = true;
  const std::string code = std::to_string(static_cast<int>(status.code));
  const std::string message = PercentEncode(status.message);
  const nghttp2_nv fields[] = {kStatus, kContentType, kAcceptEncoding, Field("grpc-status", code),
                               Field("grpc-message", message)};
  nghttp2_submit_response(connection_->session(), id_, fields, message.empty() ? 4 : 5, nullptr);
}

void Http2Stream::SubmitTrailers() {
  if (status_.code == GrpcCode::kOk) {
    nghttp2_submit_trailer(connection_->session(), id_, &kGrpcOk, 1);
    return;
  }
  const std::string code = std::to_string(static_cast<int>(status_.code));
  const std::string message = PercentEncode(status_.message);
  const nghttp2_nv fields[] = {Field("grpc-status", code), Field("grpc-message", message)};
  nghttp2_submit_trailer(connection_->session(), id_, fields, message.empty() ? 1 : 2);
}

ssize_t Http2Stream::PrepareData(size_t max_bytes, uint32_t* data_flags) {
  if (is_aborted_ || (out_bytes_ == 0 && !is_finished_)) return NGHTTP2_ERR_DEFERRED;
  const size_t count = std::min(max_bytes, out_bytes_);
  *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (is_finished_ && count == out_bytes_) {
    *data_flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SubmitTrailers();
  }
  return static_cast<ssize_t>(count);
}

void Http2Stream::MoveDataTo(size_t count, SendBuffer& out) {
  out_bytes_ -= count;
  sent_bytes_ += count;
  if (out_bytes_ == 0 && !is_full_) SetResponsePending(false);
  while (count > 0) {
    const OutMessage& front = out_.front();
    const bool is_prefix = out_slice_ == 0;
    const Slice* const slice = is_prefix ? nullptr : &front.message.slices()[out_slice_ - 1];
    const std::string_view piece =
        is_prefix ? std::string_view(front.prefix.data(), front.prefix.size()) : slice->bytes;
    const std::string_view part = piece.substr(out_offset_, count);
    if (part.size() < kMinExternalBytes) {
      out.Append(part);
    } else {
      out.Append(part, slice->owner);
    }
    count -= part.size();
    out_offset_ += part.size();
    SkipSentSlices();
  }
  if (is_write_pending_ && out_bytes_ <= kMaxQueuedBytes) {
    is_write_pending_ = false;
    handler_->OnWriteDone();
  }
}

// Advances past slices that are completely sent, and past empty ones.
void Http2Stream::SkipSentSlices() {
  while (!out_.empty()) {
    const OutMessage& front = out_.front();
    const auto& slices = front.message.slices();
    const size_t size_bytes =
        out_slice_ == 0 ? front.prefix.size() : slices[out_slice_ - 1].bytes.size();
    if (out_offset_ < size_bytes) return;
    out_offset_ = 0;
    if (out_slice_++ < slices.size()) continue;
    out_slice_ = 0;
    out_.pop_front();
    return;
  }
}

// ---- unread responses

void Http2Stream::SetResponsePending(bool is_pending) {
  if (std::exchange(is_response_pending_, is_pending) == is_pending) return;
  is_checked_ = false;
  connection_->CountPendingResponse(is_pending);
}

// A model waits while its stream is full. A client that reads a few bytes now and then would keep
// it waiting for hours, so that it has to read at a minimum rate.
void Http2Stream::ResetIfUnread(int64_t period_ms) {
  if (!is_response_pending_) return;
  const auto enough = static_cast<uint64_t>(kMinStreamBytesPerSecond * period_ms / 1000);
  const uint64_t expected = std::min<uint64_t>(is_full_ ? enough : 1, unsent_bytes_at_check_);
  const uint64_t num_sent = sent_bytes_ - sent_bytes_at_check_;
  const bool is_too_slow = is_checked_ && num_sent < std::max<uint64_t>(expected, 1);
  is_checked_ = true;
  unsent_bytes_at_check_ = out_bytes_;
  sent_bytes_at_check_ = sent_bytes_;
  if (is_too_slow) ResetStream();
}

void Http2Stream::OnLocalEnd() {
  // Tells the client that it need not send the rest of the request.
  if (!is_remote_end_) {
    nghttp2_submit_rst_stream(connection_->session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_NO_ERROR);
  }
}

}  // namespace nereid::grpc
