// The socket's life: events in, time-outs, the ways to close.
#include "host/frontend/http/transport/connection.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/loop_connections.h"

namespace nereid::http {
namespace {
constexpr size_t kInputBytes = 16 * 1024;
constexpr int64_t kLingerSeconds = 2;
constexpr int64_t kMinBodyBytesPerSecond = 4096;
// Sent as it stands to a client that speaks HTTP to a port with TLS.
constexpr char kPlainOnTls[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 43\r\n"
    "Connection: close\r\n\r\n{\"error\":\"this port speaks TLS: use https\"}";
}  // namespace

Connection::Connection(int fd, EventLoop& loop, LoopConnections& owner, Service& service,
                       const Limits& limits)
    : loop_(loop), owner_(owner), service_(service), limits_(limits), fd_(fd) {}

Connection::~Connection() {
  for (event* event : {read_event_, hangup_event_, write_event_}) {
    if (event != nullptr) event_free(event);
  }
  if (fd_ >= 0) close(fd_);
}

Status Connection::Open(const TlsContext* tls) {
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
    NEREID_ASSIGN_OR_RETURN(tls_, TlsSession::Create(*tls, fd_));
    output_.UseTls(tls_.get());
  }
  progress_s_ = request_start_s_ = owner_.now_s();
  WatchReads(true);
  return Status::Ok();
}

void Connection::WatchReads(bool on) {
  if (watches_reads_ == on) return;
  watches_reads_ = on;
  event_add(on ? read_event_ : hangup_event_, nullptr);
  event_del(on ? hangup_event_ : read_event_);
  // What was decrypted already is not in the socket any more.
  if (on && tls_ != nullptr && tls_->has_input()) event_active(read_event_, EV_READ, 0);
}

void Connection::WatchWrites(bool on) {
  if (watches_writes_ == on) return;
  watches_writes_ = on;
  if (on) {
    event_add(write_event_, nullptr);
  } else {
    event_del(write_event_);
  }
}

void Connection::OnReadEvent(int, short what, void* self) {
  auto* connection = static_cast<Connection*>(self);
  if (connection->state_ == State::kClosed) return;
  connection->loop_.CountEvent();
  if (what & EV_CLOSED) {
    connection->OnPeerClosed();
  } else {
    connection->OnReadable();
  }
}

void Connection::OnWriteEvent(int, short, void* self) {
  auto* connection = static_cast<Connection*>(self);
  if (connection->state_ != State::kClosed) connection->OnWritable();
}

// Where the next bytes go. It has room, except for input_ while a request runs: then reading
// pauses.
ByteBuffer& Connection::ReadTarget() {
  const bool has_own_body = state_ == State::kBody && body_.capacity() != 0 && !chunks_;
  if (has_own_body) return body_;
  if (input_.capacity() == 0) input_ = ByteBuffer(kInputBytes);
  if (state_ == State::kLingering) input_.Clear();
  if (state_ == State::kHead && output_.empty() && input_.free_bytes() == 0) {
    input_.Grow(input_.capacity() * 2);
  }
  return input_;
}

void Connection::OnReadable() {
  ReadOnce();
  while (tls_ != nullptr && state_ != State::kClosed && watches_reads_ && tls_->has_input()) {
    ReadOnce();
  }
}

ssize_t Connection::Receive(char* data, size_t size) {
  return tls_ == nullptr ? recv(fd_, data, size, MSG_DONTWAIT) : tls_->Read(data, size);
}

void Connection::ReadOnce() {
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
  if (state_ != State::kLingering) progress_s_ = owner_.now_s();
  if (state_ == State::kHead || state_ == State::kBody) ProcessInput();
  if (state_ == State::kBody) loop_.ExpectInput();
}

void Connection::OnReadError() {
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

// The client sends nothing more. It is taken as gone, unless all that is left is to finish writing
// an answer.
void Connection::OnPeerClosed() {
  peer_closed_ = true;
  const bool has_answer_to_flush =
      !output_.empty() && (state_ == State::kHead || state_ == State::kFlushing);
  if (!has_answer_to_flush) {
    Close();
    return;
  }
  state_ = State::kFlushing;
  event_del(read_event_);
  event_del(hangup_event_);
}

void Connection::OnWritable() {
  if (tls_ != nullptr && tls_->wants_write()) {
    OnReadable();
    if (state_ == State::kClosed || (tls_ != nullptr && tls_->wants_write())) return;
  }
  const size_t unsent_before = output_.unsent_bytes();
  const OutputQueue::Outcome outcome = output_.Flush(fd_);
  if (output_.unsent_bytes() != unsent_before) progress_s_ = owner_.now_s();
  if (outcome == OutputQueue::Outcome::kFailed) {
    Close();
  } else if (outcome == OutputQueue::Outcome::kDrained) {
    WatchWrites(false);
    OnDrained();
  }
}

bool Connection::HasStalled(int64_t now_s) const {
  const int64_t still_s = now_s - progress_s_;
  if (state_ == State::kLingering) return still_s > kLingerSeconds;
  if (!output_.empty()) return still_s > limits_.write_timeout_s;
  if (tls_ != nullptr && !tls_->is_established()) return still_s > limits_.read_timeout_s;
  if (state_ == State::kHead && input_.empty()) return still_s > limits_.idle_timeout_s;
  if (state_ == State::kHead) return now_s - request_start_s_ > limits_.read_timeout_s;
  if (state_ == State::kBody) {
    // A trickle counts as a stall too: it would hold its buffer for hours.
    const int64_t allowed_s =
        limits_.read_timeout_s +
        static_cast<int64_t>(input_.size() + body_.size()) / kMinBodyBytesPerSecond;
    return still_s > limits_.read_timeout_s || now_s - request_start_s_ > allowed_s;
  }
  return false;  // a request that runs may run for as long as it needs
}

void Connection::OnTick(int64_t now_s) {
  if (state_ == State::kHead && input_.empty()) input_ = ByteBuffer();  // idle: give memory back
  if (HasStalled(now_s)) Close();
}

void Connection::KeepForSequences() {
  if (!std::exchange(is_kept_, true)) owner_.OnKept();
}

void Connection::GiveUpSequences() {
  if (std::exchange(is_kept_, false)) owner_.OnNotKept();
}

void Connection::BeginDrain() {
  is_draining_ = true;
  if (!is_kept_ && state_ == State::kHead && output_.empty()) Close();
}

void Connection::EndDrain() {
  GiveUpSequences();
  BeginDrain();
}

// No request may follow the one at hand.
bool Connection::IsLast() const {
  return !head_.keep_alive || (is_draining_ && !is_kept_);
}

// The last answer is out. What the client still sends is read and dropped for a moment, so that the
// kernel does not answer it with a reset, which would take the answer from the client.
void Connection::Linger() {
  if (peer_closed_) {
    Close();
    return;
  }
  state_ = State::kLingering;
  progress_s_ = owner_.now_s();
  if (tls_ != nullptr) tls_->SayGoodbye();
  shutdown(fd_, SHUT_WR);
  WatchReads(true);
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  if (state_ == State::kRunning) owner_.OnAnswer();
  GiveUpSequences();
  state_ = State::kClosed;
  for (event* event : {read_event_, hangup_event_, write_event_}) event_del(event);
  close(fd_);
  fd_ = -1;
  owner_.Remove(this);
  if (ActiveCall* call = std::exchange(call_, nullptr)) call->OnDisconnect();
}

}  // namespace nereid::http
