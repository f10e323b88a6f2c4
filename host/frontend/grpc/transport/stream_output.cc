// The response's side of a stream.
#include <event2/event.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <utility>

#include "host/frontend/grpc/transport/connection.h"
#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/send_buffer.h"
#include "host/frontend/grpc/transport/stream.h"

namespace nereid::rpc {
namespace {

constexpr size_t kMaxWaitingBytes = 64 << 10;  // of a stream; beyond it writes wait
constexpr size_t kMinBlockBytes = 4 << 10;     // shorter pieces are copied beside the frame's head

// Both outlive the header's use.
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

ssize_t OnDataWanted(nghttp2_session*, int32_t, uint8_t*, size_t length, uint32_t* data_flags,
                     nghttp2_data_source* source, void*) {
  return static_cast<Stream*>(source->ptr)->OfferData(length, data_flags);
}

}  // namespace

// ---- compression

// The level says which of the encodings that the client takes, gzip before deflate, as in gRPC.
void Stream::ChooseResponseEncoding() {
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

// [any thread] Compressed where that makes it shorter.
Stream::OutMessage Stream::Frame(WireMessage message) const {
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

// ---- orders

void Stream::Carry(Orders orders) {
  if (connection_ != nullptr) connection_->FlushSoon();
  if (orders.wants_read) {
    is_reading_ = true;
    if (connection_ == nullptr) {
      is_reading_ = false;
      if (handler_ != nullptr && !orders.status) handler_->OnReadDone(nullptr);
    } else {
      connection_->ConsumeStream(id_, std::exchange(unconsumed_bytes_, 0));
      if (!orders.status) Deliver();
    }
  }
  if (orders.wants_abort) DropClient();
  const bool has_message = orders.message.has_value();
  if (has_message) CarryMessage(std::move(*orders.message));
  if (orders.status) {
    CarryStatus(std::move(*orders.status));
  } else if (has_message && !is_write_waiting_ && handler_ != nullptr) {
    handler_->OnWriteDone();
  }
}

void Stream::CarryMessage(OutMessage message) {
  if (connection_ == nullptr || is_aborted_ || is_rejected_ || forced_status_) return;
  out_bytes_ += message.prefix.size() + message.message.size_bytes();
  out_.push_back(std::move(message));
  is_write_waiting_ = out_bytes_ > kMaxWaitingBytes;
  if (has_headers_) {
    nghttp2_session_resume_data(connection_->session(), id_);
  } else {
    SubmitHeaders();
  }
}

void Stream::CarryStatus(CallStatus status) {
  is_finished_ = true;
  is_write_waiting_ = false;
  if (connection_ == nullptr) {
    End();
    return;
  }
  if (deadline_event_ != nullptr) event_del(deadline_event_);
  if (is_aborted_) return;  // the session closes the stream
  CountAnswer(method_->unary != nullptr && out_bytes_ > 0);
  status_ = forced_status_ ? std::move(*forced_status_) : std::move(status);
  if (has_headers_) {
    nghttp2_session_resume_data(connection_->session(), id_);
  } else {
    SubmitStatusOnly(status_);
  }
}

// ---- ends that the service did not choose

void Stream::Reject(CallStatus status) {
  if (connection_ == nullptr || is_finished_ || is_rejected_ || is_aborted_ || forced_status_) {
    return;
  }
  connection_->FlushSoon();
  received_.clear();
  if (!is_started_) {
    is_rejected_ = true;
    SubmitStatusOnly(status);
  } else if (is_write_waiting_) {
    DropClient();  // a message cannot be cut short
  } else {
    forced_status_ = std::move(status);
    TellCancel();
  }
}

// Not a client of gRPC: an answer that any client of HTTP understands.
void Stream::RejectHttp(std::string_view http_status) {
  is_rejected_ = true;
  const nghttp2_nv field = Field(":status", http_status);
  nghttp2_submit_response(connection_->session(), id_, &field, 1, nullptr);
}

void Stream::DropClient() {
  if (connection_ == nullptr || is_aborted_) return;
  is_aborted_ = true;
  nghttp2_submit_rst_stream(connection_->session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_CANCEL);
  TellCancel();
}

// ---- frames

void Stream::SubmitHeaders() {
  has_headers_ = true;
  nghttp2_data_provider provider{};
  provider.source.ptr = this;
  provider.read_callback = &OnDataWanted;
  const nghttp2_nv fields[] = {
      kStatus, kContentType, kAcceptEncoding,
      ConstantField("grpc-encoding", http::EncodingName(response_encoding_))};
  const size_t num_fields = response_encoding_ == http::Encoding::kIdentity ? 3 : 4;
  nghttp2_submit_response(connection_->session(), id_, fields, num_fields, &provider);
}

void Stream::SubmitStatusOnly(const CallStatus& status) {
  has_headers_ = true;
  const std::string code = std::to_string(static_cast<int>(status.code));
  const std::string message = PercentEncode(status.message);
  const nghttp2_nv fields[] = {kStatus, kContentType, kAcceptEncoding, Field("grpc-status", code),
                               Field("grpc-message", message)};
  nghttp2_submit_response(connection_->session(), id_, fields, message.empty() ? 4 : 5, nullptr);
}

void Stream::SubmitTrailers() {
  if (status_.code == GrpcCode::kOk) {
    nghttp2_submit_trailer(connection_->session(), id_, &kGrpcOk, 1);
    return;
  }
  const std::string code = std::to_string(static_cast<int>(status_.code));
  const std::string message = PercentEncode(status_.message);
  const nghttp2_nv fields[] = {Field("grpc-status", code), Field("grpc-message", message)};
  nghttp2_submit_trailer(connection_->session(), id_, fields, message.empty() ? 1 : 2);
}

ssize_t Stream::OfferData(size_t max_bytes, uint32_t* data_flags) {
  if (is_aborted_ || (out_bytes_ == 0 && !is_finished_)) return NGHTTP2_ERR_DEFERRED;
  const size_t count = std::min(max_bytes, out_bytes_);
  *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (is_finished_ && count == out_bytes_) {
    *data_flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    SubmitTrailers();
  }
  return static_cast<ssize_t>(count);
}

void Stream::TakeData(size_t count, SendBuffer& out) {
  out_bytes_ -= count;
  if (out_bytes_ == 0) CountAnswer(false);
  while (count > 0) {
    const OutMessage& front = out_.front();
    const bool is_prefix = out_piece_ == 0;
    const Slice* const slice = is_prefix ? nullptr : &front.message.slices()[out_piece_ - 1];
    const std::string_view piece =
        is_prefix ? std::string_view(front.prefix.data(), front.prefix.size()) : slice->bytes;
    const std::string_view part = piece.substr(out_offset_, count);
    if (part.size() < kMinBlockBytes) {
      out.Append(part);
    } else {
      out.Append(part, slice->keep);
    }
    count -= part.size();
    out_offset_ += part.size();
    SkipSentPieces();
  }
  if (is_write_waiting_ && out_bytes_ <= kMaxWaitingBytes) {
    is_write_waiting_ = false;
    handler_->OnWriteDone();
  }
}

// Past what is sent, empty pieces too.
void Stream::SkipSentPieces() {
  while (!out_.empty()) {
    const OutMessage& front = out_.front();
    const auto& slices = front.message.slices();
    const size_t size_bytes =
        out_piece_ == 0 ? front.prefix.size() : slices[out_piece_ - 1].bytes.size();
    if (out_offset_ < size_bytes) return;
    out_offset_ = 0;
    if (out_piece_++ < slices.size()) continue;
    out_piece_ = 0;
    out_.pop_front();
    return;
  }
}

// ---- answers that nobody reads

void Stream::CountAnswer(bool waits) {
  if (std::exchange(is_whole_answer_, waits) == waits) return;
  connection_->CountAnswer(waits);
}

void Stream::DropIfUnread() {
  if (!is_whole_answer_) return;
  if (std::exchange(looked_bytes_, out_bytes_) == out_bytes_) DropClient();
}

void Stream::OnLocalEnd() {
  // The client need not send the rest.
  if (!is_remote_end_) {
    nghttp2_submit_rst_stream(connection_->session(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_NO_ERROR);
  }
}

}  // namespace nereid::rpc
