// Timers of a connection: keep-alive, maximum age, drain, handshake timeout and unread responses.
#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>
#include <utility>

#include "host/frontend/grpc/transport/http2_connection.h"
#include "host/frontend/grpc/transport/http2_stream.h"

namespace nereid::grpc {
namespace {

constexpr int64_t kHandshakeMs = 20'000;  // for the client's SETTINGS frame
constexpr int64_t kLingerMs = 2'000;      // for the client to read the last bytes
constexpr int64_t kLastGoawayMs = 1'000;  // after the first GOAWAY, if the client answers no ping
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr uint8_t kDrainPing[8] = {'d', 'r', 'a', 'i', 'n'};

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The age plus or minus a tenth, as in gRPC, so that clients do not all reconnect at once.
int64_t Jitter(int64_t age_ms) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return age_ms - age_ms / 10 +
         static_cast<int64_t>(random() % static_cast<uint64_t>(age_ms / 5 + 1));
}

}  // namespace

void Http2Connection::StartTimers() {
  opened_ms_ = idle_since_ms_ = NowMs();
  const int64_t age_ms = context_.options.keepalive.max_connection_age_ms;
  age_end_ms_ = age_ms > 0 ? opened_ms_ + Jitter(age_ms) : kNever;
  SetTimer(opened_ms_);
}

void Http2Connection::OnTimerEvent(int, short, void* self) {
  static_cast<Http2Connection*>(self)->OnTimer();
}

void Http2Connection::OnTimer() {
  const int64_t now_ms = NowMs();
  const bool is_silent = !has_settings_ && now_ms >= opened_ms_ + kHandshakeMs;
  const bool has_lingered = is_lingering_ && now_ms >= linger_end_ms_;
  const bool is_drained = is_draining_ && now_ms >= drain_end_ms_;
  if (is_silent || has_lingered || is_drained) return Close();
  if (!is_draining_ && now_ms >= age_end_ms_) {
    BeginDrain(context_.options.keepalive.max_connection_age_grace_ms);
  }
  if (is_draining_ && now_ms >= drain_begin_ms_ + kLastGoawayMs) SendLastGoaway();
  if (!is_lingering_) CheckKeepalive(now_ms);
  if (next_unread_check_ms_ != 0 && now_ms >= next_unread_check_ms_) CheckUnreadResponses(now_ms);
  if (!is_closed_ && next_stall_check_ms_ != 0 && now_ms >= next_stall_check_ms_) {
    CheckStalledRequests(now_ms);
  }
  if (!is_closed_ && next_idle_check_ms_ != 0 && now_ms >= next_idle_check_ms_) {
    CheckIdleStreams(now_ms);
  }
  if (!is_closed_) SetTimer(now_ms);
}

// Sets the timer to the next time at which something may be due.
void Http2Connection::SetTimer(int64_t now_ms) {
  const GrpcKeepaliveOptions& keepalive = context_.options.keepalive;
  int64_t due_ms = ping_sent_ms_ != 0 ? ping_sent_ms_ + keepalive.timeout_ms
                                      : idle_since_ms_ + keepalive.time_ms;
  if (!has_settings_) due_ms = std::min(due_ms, opened_ms_ + kHandshakeMs);
  if (is_lingering_) due_ms = std::min(due_ms, linger_end_ms_);
  if (next_unread_check_ms_ != 0) due_ms = std::min(due_ms, next_unread_check_ms_);
  if (next_stall_check_ms_ != 0) due_ms = std::min(due_ms, next_stall_check_ms_);
  if (next_idle_check_ms_ != 0) due_ms = std::min(due_ms, next_idle_check_ms_);
  if (is_draining_) {
    due_ms = std::min(due_ms, drain_end_ms_);
    if (!is_last_goaway_sent_) due_ms = std::min(due_ms, drain_begin_ms_ + kLastGoawayMs);
  } else {
    due_ms = std::min(due_ms, age_end_ms_);
  }
  const int64_t wait_ms = std::clamp<int64_t>(due_ms - now_ms, 1, 86'400'000);
  const timeval wait{static_cast<time_t>(wait_ms / 1000),
                     static_cast<suseconds_t>(wait_ms % 1000 * 1000)};
  event_add(timer_event_, &wait);
}

// ---- keep-alive

void Http2Connection::OnRead() {
  idle_since_ms_ = NowMs();
  ping_sent_ms_ = 0;  // the client is alive
}

// Pings a client that has been idle for the keep-alive time. Closes the connection if the ping is
// not answered in time.
void Http2Connection::CheckKeepalive(int64_t now_ms) {
  const GrpcKeepaliveOptions& keepalive = context_.options.keepalive;
  if (ping_sent_ms_ != 0) {
    if (now_ms >= ping_sent_ms_ + keepalive.timeout_ms) Close();
    return;
  }
  if (now_ms < idle_since_ms_ + keepalive.time_ms) return;
  const bool may_ping = keepalive.max_pings_without_data == 0 ||
                        pings_without_data_ < keepalive.max_pings_without_data;
  if (!may_ping || (num_streams_ == 0 && !keepalive.permit_without_calls)) {
    idle_since_ms_ = now_ms;  // checked again after the keep-alive time
    return;
  }
  ++pings_without_data_;
  ping_sent_ms_ = now_ms;
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  FlushSoon();
}

void Http2Connection::OnPing() {
  if (strikes_.OnPing(NowMs(), num_streams_ > 0)) return;
  constexpr std::string_view kReason = "too_many_pings";
  nghttp2_submit_goaway(
      session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
      NGHTTP2_ENHANCE_YOUR_CALM, reinterpret_cast<const uint8_t*>(kReason.data()), kReason.size());
  is_closing_for_pings_ = true;
  FlushSoon();
}

void Http2Connection::OnDataSent() {
  strikes_.OnDataSent();
  pings_without_data_ = 0;
}

// ---- unread responses

// Schedules the first check. Runs only if a response could not be sent at once.
void Http2Connection::StartUnreadCheck() {
  if (is_closed_ || next_unread_check_ms_ != 0) return;
  const int64_t now_ms = NowMs();
  next_unread_check_ms_ = now_ms + context_.options.write_timeout_ms;
  SetTimer(now_ms);
}

void Http2Connection::CheckUnreadResponses(int64_t now_ms) {
  // A connection from which the client reads nothing cannot even send the resets of its streams.
  const uint64_t num_sent = std::exchange(sent_bytes_at_check_, out_.num_sent_bytes());
  const bool was_blocked = std::exchange(is_blocked_at_check_, !out_.empty());
  if (was_blocked && !out_.empty() && num_sent == out_.num_sent_bytes()) return Close();
  for (Http2Stream* stream = first_stream_; stream != nullptr; stream = stream->next) {
    stream->ResetIfUnread(context_.options.write_timeout_ms);
  }
  next_unread_check_ms_ =
      num_pending_responses_ > 0 ? now_ms + context_.options.write_timeout_ms : 0;
  FlushSoon();
}

// ---- requests that stop arriving

// Schedules the first check. Runs only if a request has not arrived as a whole.
void Http2Connection::StartStallCheck() {
  if (is_closed_ || next_stall_check_ms_ != 0) return;
  const int64_t now_ms = NowMs();
  next_stall_check_ms_ = now_ms + context_.options.read_timeout_ms;
  SetTimer(now_ms);
}

void Http2Connection::CheckStalledRequests(int64_t now_ms) {
  bool has_stalled_headers = false;
  for (Http2Stream* stream = first_stream_; stream != nullptr; stream = stream->next) {
    if (!stream->HasStalled(now_ms)) continue;
    has_stalled_headers = has_stalled_headers || !stream->has_headers();
    stream->EndStalled();
  }
  next_stall_check_ms_ = num_receiving_ > 0 ? now_ms + context_.options.read_timeout_ms : 0;
  if (has_stalled_headers) return Close();  // no other frame may come between the parts of headers
  FlushSoon();
}

// ---- streams on which nothing is sent

void Http2Connection::StartIdleCheck() {
  const int64_t timeout_ms = context_.options.stream_idle_timeout_ms;
  if (is_closed_ || timeout_ms == 0 || next_idle_check_ms_ != 0) return;
  const int64_t now_ms = NowMs();
  next_idle_check_ms_ = now_ms + timeout_ms;
  SetTimer(now_ms);
}

void Http2Connection::CheckIdleStreams(int64_t now_ms) {
  bool may_be_idle = false;
  for (Http2Stream* stream = first_stream_; stream != nullptr; stream = stream->next) {
    if (!stream->MayBeIdle()) continue;
    may_be_idle = true;
    if (stream->HasBeenIdle()) stream->EndIdle();
  }
  next_idle_check_ms_ = may_be_idle ? now_ms + context_.options.stream_idle_timeout_ms : 0;
  FlushSoon();
}

// ---- shutdown

// Sends a first GOAWAY that still permits new streams, and the final one after the client has
// answered a ping. Thus no call that the client has already sent is lost.
void Http2Connection::BeginDrain(int64_t grace_ms) {
  if (is_closed_ || is_lingering_ || is_draining_) return;
  is_draining_ = true;
  drain_begin_ms_ = NowMs();
  drain_end_ms_ = grace_ms > 0 ? drain_begin_ms_ + grace_ms : kNever;
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kDrainPing);
  FlushSoon();
  SetTimer(drain_begin_ms_);
}

void Http2Connection::OnPingAck() {
  if (is_draining_) SendLastGoaway();
}

void Http2Connection::SendLastGoaway() {
  if (is_last_goaway_sent_) return;
  is_last_goaway_sent_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  FlushSoon();
}

void Http2Connection::Linger() {
  is_lingering_ = true;
  while (first_stream_ != nullptr) first_stream_->OnClosed();
  if (tls_ != nullptr) tls_->SendCloseNotify();
  shutdown(fd_, SHUT_WR);
  const int64_t now_ms = NowMs();
  linger_end_ms_ = now_ms + kLingerMs;
  SetTimer(now_ms);
}

}  // namespace nereid::grpc
