// Request side and lifetime of a stream; http2_stream_output.cc has the response side.
#include "host/frontend/grpc/transport/http2_stream.h"

#include <event2/event.h>

#include <new>
#include <utility>

#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/frontend/http/bodies/base64.h"
#include "host/log.h"

namespace nereid::grpc {
namespace {

// gRPC's own limit on the size of a call's headers.
constexpr size_t kMaxHeaderBytes = 16384;
// Per header, as HTTP/2 defines the size of a header list.
constexpr size_t kHeaderOverheadBytes = 32;
// Memory of a call besides its headers and messages, as it is counted in the budget.
constexpr size_t kCallBytes = 4096;
// Decompressed at once when a message has arrived; many may arrive together.
constexpr size_t kFirstStepBytes = 64 << 10;
// Decompressed later in one turn of the loop, so that it serves others every few milliseconds.
constexpr size_t kNextStepBytes = 1 << 20;
// A slow trickle also counts as a stall, because it would occupy its memory for hours.
constexpr int64_t kMinBytesPerSecond = 4096;

timeval ToTimeval(std::chrono::nanoseconds duration) {
  const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(duration).count();
  return {static_cast<time_t>(microseconds / 1'000'000),
          static_cast<suseconds_t>(microseconds % 1'000'000)};
}

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

// ---- headers

void Http2Stream::OnHeader(std::string_view name, std::string_view value) {
  header_bytes_ += name.size() + value.size() + kHeaderOverheadBytes;
  if (header_bytes_ > kMaxHeaderBytes || is_started_ || is_rejected_) return;
  if (name.front() == ':') {
    if (name == ":path") path_ = value;
    if (name == ":method") is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = StartsWithIgnoringCase(value, "application/grpc");
  } else if (name == "grpc-encoding") {
    const auto encoding = http::ParseContentEncoding(value);
    has_unknown_encoding_ = !encoding.has_value();
    encoding_ = encoding.value_or(http::Encoding::kIdentity);
  } else if (name == "grpc-accept-encoding") {
    accept_encoding_ = value;
  } else if (name == "grpc-timeout") {
    SetDeadline(value);
  } else if (name != "te") {
    StoreMetadata(name, value);
  }
}

void Http2Stream::StoreMetadata(std::string_view name, std::string_view value) {
  if (name.ends_with("-bin")) {
    StoreBinaryMetadata(name, value);
  } else {
    AppendMetadata(name, value);
  }
}

// `value` is one or more values in base64, separated by commas, as if each were a header.
void Http2Stream::StoreBinaryMetadata(std::string_view name, std::string_view value) {
  while (true) {
    const size_t comma = value.find(',');
    const auto decoded = http::DecodeBase64(TrimSpaces(value.substr(0, comma)));
    if (!decoded) {
      invalid_header_ = StrCat("header '", name, "': expected bytes in base64");
      return;
    }
    AppendMetadata(name, *decoded);
    if (comma == std::string_view::npos) return;
    value.remove_prefix(comma + 1);
  }
}

void Http2Stream::AppendMetadata(std::string_view name, std::string_view value) {
  const auto begin = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += name;
  const auto middle = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += value;
  metadata_offsets_.push_back({begin, middle, static_cast<uint32_t>(metadata_text_.size())});
}

void Http2Stream::BuildMetadataViews() {
  const std::string_view text = metadata_text_;
  metadata_.reserve(metadata_offsets_.size());
  for (const auto& [begin, middle, end] : metadata_offsets_) {
    metadata_.emplace_back(text.substr(begin, middle - begin), text.substr(middle, end - middle));
  }
}

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

// ---- stalls

void Http2Stream::SetReceiving(bool is_receiving) {
  if (std::exchange(is_receiving_, is_receiving) == is_receiving) return;
  receiving_since_ms_ = 0;
  connection_->CountReceiving(is_receiving);
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

// ---- lifetime

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
