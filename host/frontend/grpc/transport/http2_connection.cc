// Socket input and output of a connection.
#include "host/frontend/grpc/transport/http2_connection.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "host/frontend/grpc/transport/http2_stream.h"

namespace nereid::grpc {
namespace {

constexpr size_t kReadBytes = 128 << 10;
constexpr int kMaxReads = 4;  // per event, so that other connections are served, too
constexpr size_t kMaxQueuedFrames = 20'000;
constexpr size_t kMaxUnsentBytes = 512 << 10;  // at this size the session waits for the socket

}  // namespace

Http2Connection::Http2Connection(int fd, net::EventLoop& loop, TransportContext& context,
                                 std::function<void(Http2Connection*)> on_closed)
    : loop_(loop),
      context_(context),
      on_closed_(std::move(on_closed)),
      fd_(fd),
      client_(context.options.clients, fd),
      budget_share_(context.options.clients != nullptr ? client_.budget() : context.options.budget,
                    context.options.max_connection_memory_bytes,
                    "--grpc-max-connection-memory-size"),
      strikes_(context.options.keepalive) {}

Http2Connection::~Http2Connection() {
  for (event* event : {read_event_, write_event_, timer_event_}) {
    if (event != nullptr) event_free(event);
  }
  nghttp2_session_del(session_);
  tls_.reset();
  close(fd_);
}

Status Http2Connection::Open() {
  const int on = 1;
  // This fails on Unix domain sockets, which do not need it.
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (context_.tls != nullptr) {
    NEREID_ASSIGN_OR_RETURN(tls_, net::TlsSession::Create(*context_.tls, fd_));
  }
  session_ = NewSession(*this, context_.options);
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

void Http2Connection::OnReadEvent(int, short, void* self) {
  auto& connection = *static_cast<Http2Connection*>(self);
  connection.loop_.CountEvent();
  connection.CloseIfOutOfMemory([&] { connection.OnReadable(); });
}

// Runs `work` of an event. Without memory for its own state the connection cannot go on.
template <typename Work>
void Http2Connection::CloseIfOutOfMemory(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    Close();
  }
}

void Http2Connection::OnWriteEvent(int, short, void* self) {
  auto& connection = *static_cast<Http2Connection*>(self);
  connection.CloseIfOutOfMemory([&] {
    if (connection.tls_ != nullptr && connection.tls_->wants_write()) {
      connection.WatchWrites(false);
      connection.OnReadable();  // TLS was waiting for the socket to become writable
    }
    connection.Flush();
  });
}

// Same result as read().
ssize_t Http2Connection::Receive(char* data, size_t size) {
  if (tls_ != nullptr) return tls_->Read(data, size);
  while (true) {
    const ssize_t count = recv(fd_, data, size, MSG_DONTWAIT);
    if (count >= 0 || errno != EINTR) return count;
  }
}

void Http2Connection::OnReadable() {
  alignas(64) static thread_local char buffer[kReadBytes];
  for (int i = 0; i < kMaxReads && !is_closed_; ++i) {
    const ssize_t count = Receive(buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      FlushSoon();  // a handshake may just have completed
      if (tls_ != nullptr && tls_->wants_write()) WatchWrites(true);
      return;
    }
    if (count <= 0) return Close();
    if (is_lingering_) continue;
    OnRead();
    const ssize_t taken = nghttp2_session_mem_recv(
        session_, reinterpret_cast<const uint8_t*>(buffer), static_cast<size_t>(count));
    if (taken < 0 || HasTooManyFramesQueued()) return Close();
    FlushSoon();
    if (tls_ == nullptr && count < static_cast<ssize_t>(sizeof(buffer))) return;
  }
  // No socket event announces bytes that TLS has already buffered.
  if (!is_closed_ && tls_ != nullptr && tls_->has_input()) event_active(read_event_, EV_READ, 0);
}

// True if the client has caused more answers (to pings, settings and refused streams) than any
// honest one leaves unread.
bool Http2Connection::HasTooManyFramesQueued() const {
  const auto max_streams = static_cast<size_t>(context_.options.max_streams_per_connection);
  if (max_streams == 0) return false;
  return nghttp2_session_get_outbound_queue_size(session_) >
         std::max(kMaxQueuedFrames, 4 * max_streams);
}

void Http2Connection::OnHeadersFrame(int32_t stream_id) {
  if (stream_id % 2 == 0 || stream_ids_.Accept(stream_id)) return;
  nghttp2_session_terminate_session2(session_, nghttp2_session_get_last_proc_stream_id(session_),
                                     NGHTTP2_PROTOCOL_ERROR);
}

void Http2Connection::ContinueLater(int32_t stream_id) {
  decompressing_ids_.push_back(stream_id);
  if (!std::exchange(is_decompression_posted_, true)) loop_.Post(&decompression_task_);
}

// Runs the next step of one stream. The others of the connection wait for the loop's next turns.
void Http2Connection::ContinueDecompression() {
  is_decompression_posted_ = false;
  if (is_closed_ || is_lingering_ || decompressing_ids_.empty()) return;
  const int32_t id = decompressing_ids_.front();
  decompressing_ids_.pop_front();
  void* const stream = nghttp2_session_get_stream_user_data(session_, id);
  if (stream != nullptr) static_cast<Http2Stream*>(stream)->ContinueDecompression();
  const bool has_more = !decompressing_ids_.empty();
  if (has_more && !std::exchange(is_decompression_posted_, true)) loop_.Post(&decompression_task_);
  FlushSoon();
}

void Http2Connection::FlushSoon() {
  if (is_closed_ || std::exchange(is_flush_posted_, true)) return;
  loop_.RunAfterPosted(this);
}

void Http2Connection::RunOnLoop() {
  is_flush_posted_ = false;
  if (!is_closed_) CloseIfOutOfMemory([this] { Flush(); });
}

// Returns false if the session has failed.
bool Http2Connection::FillFromSession() {
  while (out_.unsent_bytes() < kMaxUnsentBytes) {
    const uint8_t* bytes = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &bytes);
    if (count < 0) return false;
    if (count == 0) return true;
    out_.Append({reinterpret_cast<const char*>(bytes), static_cast<size_t>(count)});
  }
  return true;
}

void Http2Connection::Flush() {
  WriteOut();
  if (num_pending_responses_ > 0) StartUnreadCheck();
  if (num_receiving_ > 0) StartStallCheck();
}

void Http2Connection::WriteOut() {
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
  if (!is_lingering_ && (is_closing_for_pings_ || is_over)) Linger();
}

void Http2Connection::WatchWrites(bool on) {
  if (std::exchange(is_watching_writes_, on) == on) return;
  if (on) {
    event_add(write_event_, nullptr);
  } else {
    event_del(write_event_);
  }
}

void Http2Connection::Consume(int32_t stream_id, size_t count) {
  nghttp2_session_consume(session_, stream_id, count);
}

void Http2Connection::ConsumeStream(int32_t stream_id, size_t count) {
  if (count > 0) nghttp2_session_consume_stream(session_, stream_id, count);
}

void Http2Connection::ConsumeConnection(size_t count) {
  nghttp2_session_consume_connection(session_, count);
}

void Http2Connection::Link(Http2Stream* stream) {
  stream->next = first_stream_;
  if (first_stream_ != nullptr) first_stream_->previous = stream;
  first_stream_ = stream;
  ++num_streams_;
}

void Http2Connection::Unlink(Http2Stream* stream) {
  (stream->previous == nullptr ? first_stream_ : stream->previous->next) = stream->next;
  if (stream->next != nullptr) stream->next->previous = stream->previous;
  stream->next = stream->previous = nullptr;
  --num_streams_;
}

void Http2Connection::Close() {
  if (std::exchange(is_closed_, true)) return;
  if (tls_ != nullptr) tls_->SendCloseNotify();
  for (event* event : {read_event_, write_event_, timer_event_}) {
    if (event != nullptr) event_del(event);
  }
  while (first_stream_ != nullptr) first_stream_->OnClosed();
  shutdown(fd_, SHUT_RDWR);
  on_closed_(this);
}

}  // namespace nereid::grpc
