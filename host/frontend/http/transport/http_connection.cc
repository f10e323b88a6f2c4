// Socket events, timeouts and closing of a connection.
#include "host/frontend/http/transport/http_connection.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "host/frontend/http/transport/loop_connections.h"
#include "net/event_loop.h"

namespace nereid::http {
namespace {
constexpr size_t kInputBytes = 16 * 1024;
constexpr int64_t kLingerSeconds = 2;
constexpr int64_t kMinBodyBytesPerSecond = 4096;
constexpr int64_t kMinStreamBytesPerSecond = 4096;
// Sent unencrypted to a client that speaks HTTP to a TLS port.
constexpr char kPlainOnTls[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 43\r\n"
    "Connection: close\r\n\r\n{\"error\":\"this port speaks TLS: use https\"}";
}  // namespace

HttpConnection::HttpConnection(int fd, net::EventLoop& loop, LoopConnections& owner,
                               HttpService& service, const HttpLimits& limits)
    : loop_(loop),
      owner_(owner),
      service_(service),
      limits_(limits),
      fd_(fd),
      client_(limits.clients, fd),
      body_reservation_(budget()) {}

HttpConnection::~HttpConnection() {
  for (event* event : {read_event_, hangup_event_, reset_event_, write_event_}) {
    if (event != nullptr) event_free(event);
  }
  if (fd_ >= 0) close(fd_);
}

Status HttpConnection::Open(const net::TlsContext* tls) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  read_event_ = event_new(loop_.base(), fd_, EV_READ | EV_PERSIST, &OnReadEvent, this);
  hangup_event_ = event_new(loop_.base(), fd_, EV_CLOSED | EV_PERSIST, &OnReadEvent, this);
  write_event_ = event_new(loop_.base(), fd_, EV_WRITE | EV_PERSIST, &OnWriteEvent, this);
  if (read_event_ == nullptr || hangup_event_ == nullptr || write_event_ == nullptr) {
    return UnavailableError("connection: cannot allocate its events");
  }
  if (tls != nullptr) {
    NEREID_ASSIGN_OR_RETURN(tls_, net::TlsSession::Create(*tls, fd_));
    output_.UseTls(tls_.get());
  }
  progress_s_ = request_start_s_ = owner_.now_s();
  WatchReads(true);
  return Status::Ok();
}

void HttpConnection::WatchReads(bool on) {
  const bool has_watched = watch_ == Watch::kReads;
  // Once the client has ended its side, kEnd would be reported again and again.
  if (on || watch_ != Watch::kReset) WatchFor(on ? Watch::kReads : Watch::kEnd);
  // Bytes that are already decrypted do not raise a socket event any more.
  if (on && !has_watched && tls_ != nullptr && tls_->has_input()) {
    event_active(read_event_, EV_READ, 0);
  }
}

event* HttpConnection::EventOf(Watch watch) {
  switch (watch) {
    case Watch::kReads:
      return read_event_;
    case Watch::kEnd:
      return hangup_event_;
    case Watch::kReset:
      return reset_event_;
    case Watch::kNothing:
      break;
  }
  return nullptr;
}

void HttpConnection::WatchFor(Watch watch) {
  if (watch_ == watch) return;
  event* const before = EventOf(watch_);
  event* const after = EventOf(watch);
  // The edge-triggered reset_event_ must not be registered together with another one. Otherwise the
  // new event is added first, so that the socket stays registered.
  const bool must_delete_first = watch == Watch::kReset || watch_ == Watch::kReset;
  watch_ = watch;
  if (must_delete_first && before != nullptr) event_del(before);
  if (after != nullptr && !(watch == Watch::kReset && watches_writes_)) event_add(after, nullptr);
  if (!must_delete_first && before != nullptr) event_del(before);
}

// A failed write also reports that the client has closed the socket, so reset_event_ is not needed
// meanwhile.
void HttpConnection::WatchWrites(bool on) {
  if (watches_writes_ == on) return;
  watches_writes_ = on;
  if (on) {
    if (watch_ == Watch::kReset) event_del(reset_event_);
    event_add(write_event_, nullptr);
  } else {
    event_del(write_event_);
    if (watch_ == Watch::kReset) event_add(reset_event_, nullptr);
  }
}

void HttpConnection::OnReadEvent(int, short what, void* self) {
  auto* connection = static_cast<HttpConnection*>(self);
  if (connection->state_ == State::kClosed) return;
  connection->loop_.CountEvent();
  connection->CloseIfOutOfMemory([&] {
    if ((what & EV_CLOSED) == 0) return connection->OnReadable();
    if (connection->state_ != State::kHead) return connection->OnPeerClosed();
    connection->WatchFor(Watch::kNothing);  // the end is read after the bytes in front of it
  });
}

// Runs `work` of an event. Without memory for its own state the connection cannot go on.
template <typename Work>
void HttpConnection::CloseIfOutOfMemory(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    Close();
  }
}

// Something has changed since the client ended its side: it may have closed the socket.
void HttpConnection::OnResetEvent(int fd, short, void* self) {
  auto* connection = static_cast<HttpConnection*>(self);
  int error = 0;
  socklen_t size = sizeof(error);
  if (connection->state_ == State::kClosed) return;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) connection->Close();
}

void HttpConnection::OnWriteEvent(int, short, void* self) {
  auto* connection = static_cast<HttpConnection*>(self);
  if (connection->state_ == State::kClosed) return;
  connection->CloseIfOutOfMemory([&] { connection->OnWritable(); });
}

// Returns the buffer for the next bytes. It has free space, except for input_ while a request runs:
// reading pauses then.
ByteBuffer& HttpConnection::ReadTarget() {
  const bool has_own_body = state_ == State::kBody && body_.capacity() != 0 && !chunks_;
  if (has_own_body) return body_;
  if (input_.capacity() == 0) input_ = ByteBuffer(kInputBytes);
  if (state_ == State::kLingering) input_.Clear();
  if (state_ == State::kHead && output_.empty() && input_.free_bytes() == 0) {
    input_.Grow(input_.capacity() * 2);
  }
  return input_;
}

void HttpConnection::OnReadable() {
  ReadOnce();
  while (tls_ != nullptr && state_ != State::kClosed && watch_ == Watch::kReads &&
         tls_->has_input()) {
    ReadOnce();
  }
}

ssize_t HttpConnection::Receive(char* data, size_t size) {
  return tls_ == nullptr ? recv(fd_, data, size, MSG_DONTWAIT) : tls_->Read(data, size);
}

void HttpConnection::ReadOnce() {
  ByteBuffer& target = ReadTarget();
  if (target.free_bytes() == 0) {
    WatchReads(false);
    return;
  }
  const ssize_t count = Receive(target.tail(), target.free_bytes());
  if (count < 0) {
    OnReadError();
    return;
  }
  if (count == 0) {
    OnPeerClosed();
    return;
  }
  if (state_ == State::kHead && target.empty()) request_start_s_ = owner_.now_s();
  target.AddFilled(count);
  received_bytes_ += static_cast<uint64_t>(count);
  if (state_ != State::kLingering) progress_s_ = owner_.now_s();
  if (state_ == State::kHead || state_ == State::kBody) ProcessInput();
  if (state_ == State::kBody) loop_.ExpectInput();
}

void HttpConnection::OnReadError() {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    if (tls_ != nullptr && tls_->wants_write()) WatchWrites(true);
    return;
  }
  if (tls_ == nullptr || !tls_->got_plain_http()) {
    Close();
    return;
  }
  [[maybe_unused]] const ssize_t sent =
      send(fd_, kPlainOnTls, sizeof(kPlainOnTls) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  output_.UseTls(nullptr);
  tls_.reset();
  Linger();
}

// The client sends no more bytes. It counts as disconnected, unless a whole request is running or
// only the rest of a response remains to be written.
void HttpConnection::OnPeerClosed() {
  if (state_ == State::kRunning) return OnRequestEnded();
  peer_closed_ = true;
  const bool has_answer_to_flush =
      !output_.empty() && (state_ == State::kHead || state_ == State::kFlushing);
  if (!has_answer_to_flush) {
    Close();
    return;
  }
  state_ = State::kFlushing;
  WatchFor(Watch::kNothing);
}

// The client has ended its side during a request. It may still wait for the response, or it may
// have closed the socket, which is cancellation. An interim response, which every client of
// HTTP/1.1 skips (RFC 9110, 15.2), distinguishes the two: a closed socket answers it with a reset.
// The parts of a streamed response do the same.
void HttpConnection::OnRequestEnded() {
  if (watch_ == Watch::kReset) return;
  if (reset_event_ == nullptr) {
    reset_event_ = event_new(loop_.base(), fd_, EV_READ | EV_ET | EV_PERSIST, &OnResetEvent, this);
  }
  if (reset_event_ == nullptr) return Close();
  WatchFor(Watch::kReset);
  if (head_.is_http10 || is_stream_) return;
  const OutputSegment interim{"HTTP/1.1 100 Continue\r\n\r\n"};
  WriteOut({&interim, 1}, nullptr);
}

void HttpConnection::OnWritable() {
  if (tls_ != nullptr && tls_->wants_write()) {
    OnReadable();
    if (state_ == State::kClosed || (tls_ != nullptr && tls_->wants_write())) return;
  }
  const size_t unsent_before = output_.unsent_bytes();
  const OutputQueue::Outcome outcome = output_.Flush(fd_);
  if (output_.unsent_bytes() != unsent_before) {
    progress_s_ = owner_.now_s();
    if (call_ != nullptr) call_->OnOutputSent(output_.unsent_bytes());
  }
  if (outcome == OutputQueue::Outcome::kFailed) {
    Close();
  } else if (outcome == OutputQueue::Outcome::kDrained) {
    WatchWrites(false);
    OnOutputFlushed();
  }
}

bool HttpConnection::HasStalled(int64_t now_s) const {
  const int64_t still_s = now_s - progress_s_;
  if (state_ == State::kLingering) return still_s > kLingerSeconds;
  if (!output_.empty()) return still_s > limits_.write_timeout_s;
  if (tls_ != nullptr && !tls_->is_established()) return still_s > limits_.read_timeout_s;
  if (state_ == State::kHead && input_.empty()) return still_s > limits_.idle_timeout_s;
  if (state_ == State::kHead) return now_s - request_start_s_ > limits_.read_timeout_s;
  if (state_ == State::kBody) {
    // A slow trickle also counts as a stall, because it would occupy its buffer for hours.
    const int64_t allowed_s =
        limits_.read_timeout_s + static_cast<int64_t>(received_bytes_) / kMinBodyBytesPerSecond;
    return still_s > limits_.read_timeout_s || now_s - request_start_s_ > allowed_s;
  }
  return false;  // a running request has no time limit here
}

void HttpConnection::BeginWritePeriod(int64_t now_s) {
  write_period_s_ = now_s;
  write_period_unsent_ = output_.unsent_bytes();
  write_period_sent_ = output_.num_delayed_sent();
}

// A client that reads a few bytes now and then would keep the sender of its stream waiting for
// hours.
bool HttpConnection::ReadsTooSlowly(int64_t now_s) {
  if (state_ != State::kRunning || output_.empty()) return false;
  if (now_s - write_period_s_ <= limits_.write_timeout_s) return false;
  const uint64_t num_sent = output_.num_delayed_sent() - write_period_sent_;
  const auto enough = static_cast<uint64_t>(kMinStreamBytesPerSecond * limits_.write_timeout_s);
  const bool is_too_slow = num_sent < std::min<uint64_t>(enough, write_period_unsent_);
  BeginWritePeriod(now_s);
  return is_too_slow;
}

void HttpConnection::OnTick(int64_t now_s) {
  if (state_ == State::kHead && input_.empty()) input_ = ByteBuffer();  // idle: free the memory
  if (HasStalled(now_s) || ReadsTooSlowly(now_s)) return Close();
  if (state_ == State::kRunning && call_ != nullptr) call_->OnSecond();
}

void HttpConnection::KeepOpenForSequences() {
  if (!std::exchange(is_kept_open_, true)) owner_.OnKeptOpen();
}

void HttpConnection::StopKeepingOpen() {
  if (std::exchange(is_kept_open_, false)) owner_.OnNotKeptOpen();
}

void HttpConnection::BeginDrain() {
  is_draining_ = true;
  if (!is_kept_open_ && state_ == State::kHead && output_.empty()) Close();
}

void HttpConnection::EndDrain() {
  StopKeepingOpen();
  BeginDrain();
}

// True if no request may follow the current one.
bool HttpConnection::IsLast() const {
  return !head_.keep_alive || (is_draining_ && !is_kept_open_);
}

// Called after the last response was sent. The client's remaining bytes are read and dropped for a
// moment. Otherwise the kernel would answer them with a reset, which could discard the response.
void HttpConnection::Linger() {
  if (peer_closed_) {
    Close();
    return;
  }
  state_ = State::kLingering;
  progress_s_ = owner_.now_s();
  if (tls_ != nullptr) tls_->SendCloseNotify();
  shutdown(fd_, SHUT_WR);
  WatchReads(true);
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kRunning) owner_.OnRequestEnd();
  StopKeepingOpen();
  state_ = State::kClosed;
  for (event* event : {read_event_, hangup_event_, reset_event_, write_event_}) {
    if (event != nullptr) event_del(event);
  }
  close(fd_);
  fd_ = -1;
  owner_.Remove(this);
  kept_.reset();
  if (InFlightCall* call = std::exchange(call_, nullptr)) call->OnDisconnect();
  notes_.reset();
}

}  // namespace nereid::http
