// The socket: bytes to the session and from it.
#include "host/frontend/grpc/transport/connection.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "host/frontend/grpc/transport/session_events.h"
#include "host/frontend/grpc/transport/stream.h"

namespace nereid::rpc {
namespace {

constexpr size_t kReadBytes = 128 << 10;
constexpr int kMaxReads = 4;  // at a time, so that other connections have their turn
constexpr size_t kMaxUnsentBytes = 512 << 10;  // then the session waits for the socket

}  // namespace

Connection::Connection(int fd, http::EventLoop& loop, Shared& shared,
                       std::function<void(Connection*)> on_closed)
    : loop_(loop),
      shared_(shared),
      on_closed_(std::move(on_closed)),
      fd_(fd),
      strikes_(shared.options.keepalive) {}

Connection::~Connection() {
  for (event* event : {read_event_, write_event_, timer_event_}) {
    if (event != nullptr) event_free(event);
  }
  nghttp2_session_del(session_);
  tls_.reset();
  close(fd_);
}

Status Connection::Open() {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails on unix sockets, rightly
  if (shared_.tls != nullptr) {
    NEREID_ASSIGN_OR_RETURN(tls_, http::TlsSession::Create(*shared_.tls, fd_));
  }
  session_ = NewSession(*this, shared_.options);
  read_event_ = event_new(loop_.base(), fd_, EV_READ | EV_PERSIST, &OnReadEvent, this);
  write_event_ = event_new(loop_.base(), fd_, EV_WRITE | EV_PERSIST, &OnWriteEvent, this);
  timer_event_ = event_new(loop_.base(), -1, 0, &OnTimerEvent, this);
  if (session_ == nullptr || read_event_ == nullptr || write_event_ == nullptr ||
      timer_event_ == nullptr || event_add(read_event_, nullptr) != 0) {
    return UnavailableError("connection: cannot allocate its session");
  }
  StartTimers();
  FlushSoon();
  return {};
}

void Connection::OnReadEvent(int, short, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  connection.loop_.CountEvent();
  connection.OnReadable();
}

void Connection::OnWriteEvent(int, short, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  if (connection.tls_ != nullptr && connection.tls_->wants_write()) {
    connection.WatchWrites(false);
    connection.OnReadable();  // TLS goes on where it waited
  }
  connection.Flush();
}

// As read().
ssize_t Connection::Receive(char* data, size_t size) {
  if (tls_ != nullptr) return tls_->Read(data, size);
  while (true) {
    const ssize_t count = recv(fd_, data, size, MSG_DONTWAIT);
    if (count >= 0 || errno != EINTR) return count;
  }
}

void Connection::OnReadable() {
  alignas(64) static thread_local char buffer[kReadBytes];
  for (int i = 0; i < kMaxReads && !is_closed_; ++i) {
    const ssize_t count = Receive(buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      FlushSoon();  // a handshake may just have ended
      if (tls_ != nullptr && tls_->wants_write()) WatchWrites(true);
      return;
    }
    if (count <= 0) return Close();
    if (is_lingering_) continue;
    OnRead();
    const ssize_t taken = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const uint8_t*>(buffer), static_cast<size_t>(count));
    if (taken < 0) return Close();
    FlushSoon();
    if (tls_ == nullptr && count < static_cast<ssize_t>(sizeof(buffer))) return;
  }
  // What TLS holds already is announced by no event.
  if (!is_closed_ && tls_ != nullptr && tls_->has_input()) event_active(read_event_, EV_READ, 0);
}

void Connection::FlushSoon() {
  if (is_closed_ || std::exchange(is_flush_posted_, true)) return;
  loop_.RunAfterPosted(this);
}

void Connection::RunOnLoop() {
  is_flush_posted_ = false;
  if (!is_closed_) Flush();
}

// False: the session is broken.
bool Connection::FillFromSession() {
  while (out_.unsent_bytes() < kMaxUnsentBytes) {
    const uint8_t* bytes = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &bytes);
    if (count < 0) return false;
    if (count == 0) return true;
    out_.Append({reinterpret_cast<const char*>(bytes), static_cast<size_t>(count)});
  }
  return true;
}

void Connection::Flush() {
  WriteOut();
  if (num_unread_answers_ > 0) WatchAnswers();
}

void Connection::WriteOut() {
  if (is_closed_ || (tls_ != nullptr && !tls_->is_established())) return;
  while (true) {
    if (!is_lingering_ && !FillFromSession()) return Close();
    if (out_.empty()) break;
    const auto outcome = out_.Flush(fd_, tls_.get());
    if (outcome == SendBuffer::Outcome::kFailed) return Close();
    if (outcome == SendBuffer::Outcome::kBlocked) return WatchWrites(true);
  }
  WatchWrites(false);
  const bool is_over =
      nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  if (!is_lingering_ && (is_sent_away_ || is_over)) Linger();
}

void Connection::WatchWrites(bool on) {
  if (std::exchange(watches_writes_, on) == on) return;
  if (on) {
    event_add(write_event_, nullptr);
  } else {
    event_del(write_event_);
  }
}

void Connection::Consume(int32_t stream_id, size_t count) {
  nghttp2_session_consume(session_, stream_id, count);
}

void Connection::ConsumeStream(int32_t stream_id, size_t count) {
  if (count > 0) nghttp2_session_consume_stream(session_, stream_id, count);
}

void Connection::ConsumeConnection(size_t count) {
  nghttp2_session_consume_connection(session_, count);
}

void Connection::Link(Stream* stream) {
  stream->next = first_stream_;
  if (first_stream_ != nullptr) first_stream_->previous = stream;
  first_stream_ = stream;
  ++num_streams_;
}

void Connection::Unlink(Stream* stream) {
  (stream->previous == nullptr ? first_stream_ : stream->previous->next) = stream->next;
  if (stream->next != nullptr) stream->next->previous = stream->previous;
  stream->next = stream->previous = nullptr;
  --num_streams_;
}

void Connection::Close() {
  if (std::exchange(is_closed_, true)) return;
  if (tls_ != nullptr) tls_->SayGoodbye();
  for (event* event : {read_event_, write_event_, timer_event_}) {
    if (event != nullptr) event_del(event);
  }
  while (first_stream_ != nullptr) first_stream_->OnClosed();
  shutdown(fd_, SHUT_RDWR);
  on_closed_(this);
}

}  // namespace nereid::rpc
