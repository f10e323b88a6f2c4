// The request's side of a stream and its life; stream_output.cc is the other.
#include "host/frontend/grpc/transport/stream.h"

#include <event2/event.h>

#include "host/frontend/grpc/transport/connection.h"
#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/http/bodies/base64.h"
#include "host/log.h"

namespace nereid::rpc {
namespace {

// gRPC's own limit on what a client says about a call.
constexpr size_t kMaxHeaderBytes = 16384;
constexpr size_t kHeaderOverheadBytes = 32;  // as HTTP/2 counts

timeval ToTimeval(std::chrono::nanoseconds duration) {
  const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(duration).count();
  return {static_cast<time_t>(microseconds / 1'000'000),
          static_cast<suseconds_t>(microseconds % 1'000'000)};
}

}  // namespace

Stream::Stream(Connection& connection, int32_t id)
    : loop_(connection.loop()),
      num_calls_(connection.num_calls()),
      connection_(&connection),
      id_(id) {
  num_calls_.fetch_add(1, std::memory_order_relaxed);
  connection.Link(this);
}

Stream::~Stream() {
  if (deadline_event_ != nullptr) event_free(deadline_event_);
}

// ---- headers

void Stream::OnHeader(std::string_view name, std::string_view value) {
  header_bytes_ += name.size() + value.size() + kHeaderOverheadBytes;
  if (header_bytes_ > kMaxHeaderBytes || is_started_ || is_rejected_) return;
  if (name.front() == ':') {
    if (name == ":path") path_ = value;
    if (name == ":method") is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = value.starts_with("application/grpc");
  } else if (name == "grpc-encoding") {
    const auto encoding = http::ParseContentEncoding(value);
    has_unknown_encoding_ = !encoding.has_value();
    encoding_ = encoding.value_or(http::Encoding::kIdentity);
  } else if (name == "grpc-accept-encoding") {
    accept_encoding_ = value;
  } else if (name == "grpc-timeout") {
    SetDeadline(value);
  } else if (name != "te") {
    KeepMetadata(name, value);
  }
}

void Stream::KeepMetadata(std::string_view name, std::string_view value) {
  std::optional<std::string> decoded;
  if (name.ends_with("-bin")) decoded = http::DecodeBase64(value);
  const auto begin = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += name;
  const auto middle = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += decoded ? std::string_view(*decoded) : value;
  metadata_marks_.push_back({begin, middle, static_cast<uint32_t>(metadata_text_.size())});
}

void Stream::ViewMetadata() {
  const std::string_view text = metadata_text_;
  metadata_.reserve(metadata_marks_.size());
  for (const auto& [begin, middle, end] : metadata_marks_) {
    metadata_.emplace_back(text.substr(begin, middle - begin), text.substr(middle, end - middle));
  }
}

void Stream::SetDeadline(std::string_view timeout) {
  const auto duration = ParseTimeout(timeout);
  if (!duration || deadline_event_ != nullptr) return;
  deadline_event_ = event_new(loop_.base(), -1, 0, &OnDeadline, this);
  const timeval after = ToTimeval(*duration);
  if (deadline_event_ != nullptr) event_add(deadline_event_, &after);
}

void Stream::OnDeadline(int, short, void* self) {
  static_cast<Stream*>(self)->Reject({GrpcCode::kDeadlineExceeded, "Deadline Exceeded"});
}

void Stream::OnHeadersEnd() {
  if (is_started_ || is_rejected_ || reader_) return;  // a client's trailers
  if (header_bytes_ > kMaxHeaderBytes) {
    return Reject(
        {GrpcCode::kResourceExhausted, StrCat("the call's headers: expected at most ",
                                              kMaxHeaderBytes, " bytes, got ", header_bytes_)});
  }
  if (!is_grpc_) return RejectHttp("415");
  if (!is_post_) return RejectHttp("405");
  method_ = connection_->methods().Find(path_);
  if (method_ == nullptr) {
    return Reject({GrpcCode::kUnimplemented, ""});  // as gRPC has it
  }
  if (has_unknown_encoding_) {
    return Reject({GrpcCode::kUnimplemented,
                   "grpc-encoding: expected identity, deflate or gzip, got another"});
  }
  LogStep("Process for ", ", rpc_ok=1, ", " step START");
  ChooseResponseEncoding();
  ViewMetadata();
  reader_.emplace(connection_->options().max_message_bytes, encoding_);
  if (method_->stream == nullptr) return;  // starts with its message
  is_started_ = true;
  handler_ = method_->stream(*this);
}

// ---- messages

void Stream::OnData(std::string_view bytes) {
  if (!reader_ || is_rejected_ || is_finished_ || forced_status_) {
    return connection_->Consume(id_, bytes.size());
  }
  if (is_started_ && !is_reading_) {
    unconsumed_bytes_ += bytes.size();
    connection_->ConsumeConnection(bytes.size());
  } else {
    connection_->Consume(id_, bytes.size());
  }
  if (CallStatus status = reader_->Feed(bytes, received_); status.code != GrpcCode::kOk) {
    return Reject(std::move(status));
  }
  Deliver();
}

void Stream::OnRemoteEnd() {
  is_remote_end_ = true;
  if (!reader_ || is_rejected_ || is_finished_ || forced_status_) return;
  if (!reader_->is_at_boundary()) {
    return Reject({GrpcCode::kInternal, "the request ended within a message"});
  }
  if (is_started_) {
    Deliver();
  } else {
    StartUnary();
  }
}

void Stream::StartUnary() {
  if (received_.size() != 1) {
    return Reject(
        {GrpcCode::kInternal, StrCat("the request: expected one message, got ", received_.size())});
  }
  const Slice message = std::move(received_.front());
  received_.clear();
  is_started_ = true;
  handler_ = method_->unary(*this, message);
}

// To the service, if it reads.
void Stream::Deliver() {
  if (!is_reading_ || handler_ == nullptr) return;
  if (!received_.empty()) {
    is_reading_ = false;
    const Slice message = std::move(received_.front());
    received_.pop_front();
    handler_->OnReadDone(&message);
  } else if (is_remote_end_) {
    is_reading_ = false;
    handler_->OnReadDone(nullptr);
  }
}

// ---- life

void Stream::TellCancel() {
  if (handler_ == nullptr || is_finished_ || is_cancel_told_) return;
  is_cancel_told_ = true;
  handler_->OnCancel();
}

void Stream::OnClosed() {
  CountAnswer(false);
  connection_->Unlink(this);
  connection_ = nullptr;
  if (deadline_event_ != nullptr) event_del(deadline_event_);
  out_.clear();
  out_bytes_ = 0;
  if (is_started_ && !is_finished_) {
    TellCancel();
    if (is_write_waiting_) {
      is_write_waiting_ = false;
      handler_->OnWriteDone();
    }
    if (is_reading_ && handler_ != nullptr) {
      is_reading_ = false;
      handler_->OnReadDone(nullptr);
    }
    return;  // the service finishes the call
  }
  End();
}

// `between` name and number of the call. The names are those of the handlers in Triton.
void Stream::LogStep(const char* before, const char* between, const char* after) const {
  if (!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) return;
  const std::string name = path_.substr(path_.rfind('/') + 1);
  const bool is_infer = name == "ModelInfer" || name == "ModelStreamInfer";
  LogVerbose(before, name, is_infer ? "Handler" : "", between, id_, after);
}

void Stream::End() {
  if (is_started_) LogStep("Done for ", ", ", "");
  if (handler_ != nullptr) handler_->OnDone();
  num_calls_.fetch_sub(1, std::memory_order_release);
  delete this;
}

// ---- orders

template <typename Change>
void Stream::Order(Change change) {
  {
    const std::lock_guard lock(mutex_);
    change(orders_);
    if (is_posted_) return;
    is_posted_ = true;
  }
  loop_.Post(this);  // nothing of this is used afterwards
}

void Stream::Read() {
  Order([](Orders& orders) { orders.wants_read = true; });
}

void Stream::Write(WireMessage message) {
  Order([framed = Frame(std::move(message))](Orders& orders) mutable {
    orders.message = std::move(framed);
  });
}

void Stream::Finish(CallStatus status) {
  Order([&](Orders& orders) { orders.status = std::move(status); });
}

void Stream::FinishWith(WireMessage message) {
  Order([framed = Frame(std::move(message))](Orders& orders) mutable {
    orders.message = std::move(framed);
    orders.status.emplace();
  });
}

void Stream::Abort() {
  Order([](Orders& orders) { orders.wants_abort = true; });
}

void Stream::RunOnLoop() {
  while (true) {
    Orders orders;
    {
      const std::lock_guard lock(mutex_);
      if (orders_.empty()) {
        is_posted_ = false;
        return;
      }
      orders = std::move(orders_);
      orders_ = Orders();
    }
    const bool is_last = orders.status.has_value();
    Carry(std::move(orders));
    if (is_last) return;  // this may be gone
  }
}

}  // namespace nereid::rpc
