// Request side and lifetime of a stream. http2_stream_headers.cc reads its headers,
// http2_stream_decompression.cc decompresses its messages, http2_stream_timers.cc ends what takes
// too long, http2_stream_output.cc has the response side.
#include "host/frontend/grpc/transport/http2_stream.h"

#include <event2/event.h>

#include <new>
#include <utility>

#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/log.h"

namespace nereid::grpc {
namespace {

// Memory of a call besides its headers and messages, as it is counted in the budget.
constexpr size_t kCallBytes = 4096;

}  // namespace

Http2Stream::Http2Stream(Http2Connection& connection, int32_t id)
    : loop_(connection.loop()),
      num_calls_(connection.num_calls()),
      reservation_(connection.budget()),
      connection_(&connection),
      id_(id) {
  num_calls_.fetch_add(1, std::memory_order_relaxed);
  connection.CountStartedCall();
  connection.Link(this);
  SetReceiving(true);
}

Http2Stream::~Http2Stream() {
  if (deadline_event_ != nullptr) event_free(deadline_event_);
}

// ---- the begin of the call

void Http2Stream::OnHeadersEnd() {
  is_headers_end_ = true;
  if (is_started_ || is_rejected_ || reader_) return;  // these are trailers
  received_bytes_ = header_bytes_;
  if (header_bytes_ > kMaxHeaderBytes) {
    return Reject(
        {GrpcCode::kResourceExhausted, StrCat("the call's headers: expected at most ",
                                              kMaxHeaderBytes, " bytes, got ", header_bytes_)});
  }
  if (!reservation_.GrowTo(kCallBytes + header_bytes_)) {
    return Reject(
        {GrpcCode::kUnavailable, StrCat("the memory for requests in flight is exhausted (",
                                        connection_->budget()->tightest().flag(), ")")});
  }
  if (!is_grpc_) return RejectHttp("415");
  if (!is_post_) return RejectHttp("405");
  method_ = connection_->methods().Find(path_);
  if (method_ == nullptr) {
    return Reject({GrpcCode::kUnimplemented, ""});  // without a message, as in gRPC
  }
  if (has_unknown_encoding_) {
    return Reject({GrpcCode::kUnimplemented,
                   "grpc-encoding: expected identity, deflate or gzip, got another"});
  }
  // gRPC's C++ library ignores a malformed timeout, and closes the connection at malformed base64.
  if (!invalid_header_.empty()) return Reject({GrpcCode::kInternal, std::move(invalid_header_)});
  LogStep("Process for ", ", rpc_ok=1, ", " step START");
  ChooseResponseEncoding();
  BuildMetadataViews();
  if (method_->admit && !method_->admit(*this)) {
    is_started_ = true;  // and finished; without a reader_ its messages are dropped
    return;
  }
  reader_.emplace(connection_->options().max_message_bytes, encoding_, connection_->budget());
  if (method_->stream != nullptr) StartStream();  // a unary call starts with its message
}

void Http2Stream::StartStream() {
  SetReceiving(false);
  try {
    is_started_ = true;
    connection_->StartIdleCheck();
    handler_ = method_->stream(*this);
  } catch (const std::bad_alloc&) {
    is_started_ = false;
    Reject({GrpcCode::kUnavailable, "cannot allocate memory for the call"});
  }
}

// ---- messages

void Http2Stream::OnData(std::string_view bytes) {
  if (!reader_ || is_rejected_ || is_finished_ || forced_status_) {
    return connection_->Consume(id_, bytes.size());
  }
  if (is_started_ && !is_reading_) {
    unconsumed_bytes_ += bytes.size();
    connection_->ConsumeConnection(bytes.size());
  } else {
    connection_->Consume(id_, bytes.size());
  }
  received_bytes_ += bytes.size();
  if (CallStatus status = reader_->Feed(bytes, received_); status.code != GrpcCode::kOk) {
    return Reject(std::move(status));
  }
  if (is_started_) {
    SetReceiving(!reader_->is_at_boundary());
    Deliver();
  } else if (received_.size() > 1 || (!received_.empty() && !reader_->is_at_boundary())) {
    Reject({GrpcCode::kInternal, "the request: expected one message, got more"});
  }
}

void Http2Stream::OnRemoteEnd() {
  is_remote_end_ = true;
  SetReceiving(false);
  if (!reader_ || is_rejected_ || is_finished_ || forced_status_) return;
  if (!reader_->is_at_boundary()) {
    return Reject({GrpcCode::kInternal, "the request ended in the middle of a message"});
  }
  if (is_started_) {
    Deliver();
  } else {
    StartUnary();
  }
}

void Http2Stream::StartUnary() {
  if (received_.size() != 1) {
    return Reject(
        {GrpcCode::kInternal, StrCat("the request: expected one message, got ", received_.size())});
  }
  if (!PrepareFront()) return;
  const Slice message = std::move(received_.front().bytes);
  received_.clear();
  try {
    is_started_ = true;
    handler_ = method_->unary(*this, message);
  } catch (const std::bad_alloc&) {
    is_started_ = false;
    Reject({GrpcCode::kUnavailable,
            StrCat("cannot allocate memory for a request of ", message.bytes.size(), " bytes")});
  }
}

// Delivers the next message, or the end of the stream, if the service has requested a read.
void Http2Stream::Deliver() {
  if (!is_reading_ || handler_ == nullptr) return;
  if (!received_.empty()) {
    if (!PrepareFront()) return;
    is_reading_ = false;
    const Slice message = std::move(received_.front().bytes);
    received_.pop_front();
    handler_->OnReadDone(&message);
  } else if (is_remote_end_) {
    is_reading_ = false;
    handler_->OnReadDone(nullptr);
  }
}

// ---- lifetime

void Http2Stream::SetReceiving(bool is_receiving) {
  if (std::exchange(is_receiving_, is_receiving) == is_receiving) return;
  receiving_since_ms_ = 0;
  connection_->CountReceiving(is_receiving);
}

void Http2Stream::NotifyCancel() {
  if (handler_ == nullptr || is_finished_ || is_cancel_notified_) return;
  is_cancel_notified_ = true;
  handler_->OnCancel();
}

void Http2Stream::OnClosed() {
  SetResponsePending(false);
  SetReceiving(false);
  connection_->Unlink(this);
  connection_ = nullptr;
  if (deadline_event_ != nullptr) event_del(deadline_event_);
  out_.clear();
  out_bytes_ = 0;
  received_.clear();
  decompression_.reset();
  reader_.reset();
  if (is_started_ && !is_finished_) {
    NotifyCancel();
    if (is_write_pending_) {
      is_write_pending_ = false;
      handler_->OnWriteDone();
    }
    if (is_reading_ && handler_ != nullptr) {
      is_reading_ = false;
      handler_->OnReadDone(nullptr);
    }
    return;  // the service still has to finish the call
  }
  FinishAndDelete();
}

// Verbose log line: `before`, handler name, `between`, stream id, `after`. The names are those of
// Triton's handlers.
void Http2Stream::LogStep(const char* before, const char* between, const char* after) const {
  if (!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) return;
  const std::string name = path_.substr(path_.rfind('/') + 1);
  const bool is_infer = name == "ModelInfer" || name == "ModelStreamInfer";
  LogVerbose(before, name, is_infer ? "Handler" : "", between, id_, after);
}

void Http2Stream::FinishAndDelete() {
  if (is_started_) LogStep("Done for ", ", ", "");
  if (handler_ != nullptr) handler_->OnDone();
  num_calls_.fetch_sub(1, std::memory_order_release);
  delete this;
}

bool Http2Stream::IsPeerLocal() const {
  return connection_ != nullptr && connection_->IsPeerLocal();
}

ByteBudget* Http2Stream::budget() const {
  return connection_ == nullptr ? nullptr : connection_->budget();
}

// ---- actions

template <typename Change>
void Http2Stream::PostActions(Change change) {
  {
    const std::lock_guard lock(mutex_);
    change(actions_);
    if (is_posted_) return;
    is_posted_ = true;
  }
  loop_.Post(this);  // may delete this, so no member is used afterwards
}

void Http2Stream::Read() {
  PostActions([](Actions& actions) { actions.is_read_requested = true; });
}

void Http2Stream::Write(WireMessage message) {
  PostActions([framed = Frame(std::move(message))](Actions& actions) mutable {
    actions.message = std::move(framed);
  });
}

void Http2Stream::Finish(CallStatus status) {
  PostActions([&](Actions& actions) { actions.status = std::move(status); });
}

void Http2Stream::FinishWith(WireMessage message) {
  PostActions([framed = Frame(std::move(message))](Actions& actions) mutable {
    actions.message = std::move(framed);
    actions.status.emplace();
  });
}

void Http2Stream::SetFull(bool is_full) {
  PostActions([is_full](Actions& actions) { actions.is_full = is_full; });
}

void Http2Stream::Abort() {
  PostActions([](Actions& actions) { actions.is_abort_requested = true; });
}

// The service has requested actions that could not be taken. Its connection cannot go on.
void Http2Stream::CloseForLackOfMemory(bool is_last, bool has_message) {
  is_finished_ = is_finished_ || is_last;
  is_write_pending_ = is_write_pending_ || (has_message && !is_last);  // the service awaits its end
  if (connection_ != nullptr) connection_->Close();
}

void Http2Stream::RunOnLoop() {
  while (true) {
    Actions actions;
    {
      const std::lock_guard lock(mutex_);
      if (actions_.empty()) {
        is_posted_ = false;
        return;
      }
      actions = std::move(actions_);
      actions_ = Actions();
    }
    const bool is_last = actions.status.has_value();
    const bool has_message = actions.message.has_value();
    try {
      RunActions(std::move(actions));
    } catch (const std::bad_alloc&) {
      CloseForLackOfMemory(is_last, has_message);
    }
    if (is_last) return;  // this may have been deleted
  }
}

}  // namespace nereid::grpc
