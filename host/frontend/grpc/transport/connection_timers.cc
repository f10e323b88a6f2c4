// What a connection does by the clock: keep-alive, age, drain, and clients that say nothing.
#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include "host/frontend/grpc/transport/connection.h"
#include "host/frontend/grpc/transport/stream.h"

namespace nereid::rpc {
namespace {

constexpr int64_t kHandshakeMs = 20'000;  // until the client's settings
constexpr int64_t kLingerMs = 2'000;      // for the client to read the last words
constexpr int64_t kLastGoawayMs = 1'000;  // after the first, where the client answers no ping
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr uint8_t kDrainPing[8] = {'d', 'r', 'a', 'i', 'n'};

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A tenth more or less, as gRPC has it, so that not all clients come back at once.
int64_t Jitter(int64_t age_ms) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return age_ms - age_ms / 10 +
         static_cast<int64_t>(random() % static_cast<uint64_t>(age_ms / 5 + 1));
}

}  // namespace

void Connection::StartTimers() {
  opened_ms_ = quiet_since_ms_ = NowMs();
  const int64_t age_ms = shared_.options.keepalive.max_connection_age_ms;
  age_end_ms_ = age_ms > 0 ? opened_ms_ + Jitter(age_ms) : kNever;
  SetTimer(opened_ms_);
}

void Connection::OnTimerEvent(int, short, void* self) {
  static_cast<Connection*>(self)->OnTimer();
}

void Connection::OnTimer() {
  const int64_t now_ms = NowMs();
  const bool is_silent = !has_settings_ && now_ms >= opened_ms_ + kHandshakeMs;
  const bool has_lingered = is_lingering_ && now_ms >= linger_end_ms_;
  const bool is_drained = is_draining_ && now_ms >= drain_end_ms_;
  if (is_silent || has_lingered || is_drained) return Close();
  if (!is_draining_ && now_ms >= age_end_ms_) {
    BeginDrain(shared_.options.keepalive.max_connection_age_grace_ms);
  }
  if (is_draining_ && now_ms >= drain_begin_ms_ + kLastGoawayMs) SendLastGoaway();
  if (!is_lingering_) CheckKeepalive(now_ms);
  if (next_look_ms_ != 0 && now_ms >= next_look_ms_) LookAtAnswers(now_ms);
  if (!is_closed_) SetTimer(now_ms);
}

// To the next moment at which something may be due.
void Connection::SetTimer(int64_t now_ms) {
  const GrpcKeepaliveOptions& keepalive = shared_.options.keepalive;
  int64_t due_ms = ping_sent_ms_ != 0 ? ping_sent_ms_ + keepalive.timeout_ms
                                      : quiet_since_ms_ + keepalive.time_ms;
  if (!has_settings_) due_ms = std::min(due_ms, opened_ms_ + kHandshakeMs);
  if (is_lingering_) due_ms = std::min(due_ms, linger_end_ms_);
  if (next_look_ms_ != 0) due_ms = std::min(due_ms, next_look_ms_);
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

void Connection::OnRead() {
  quiet_since_ms_ = NowMs();
  ping_sent_ms_ = 0;  // it lives
}

// Asks a client that was quiet for long whether it is still there; drops the one that does not say.
void Connection::CheckKeepalive(int64_t now_ms) {
  const GrpcKeepaliveOptions& keepalive = shared_.options.keepalive;
  if (ping_sent_ms_ != 0) {
    if (now_ms >= ping_sent_ms_ + keepalive.timeout_ms) Close();
    return;
  }
  if (now_ms < quiet_since_ms_ + keepalive.time_ms) return;
  const bool may_ping = keepalive.max_pings_without_data == 0 ||
                        pings_without_data_ < keepalive.max_pings_without_data;
  if (!may_ping || (num_streams_ == 0 && !keepalive.permit_without_calls)) {
    quiet_since_ms_ = now_ms;  // to be looked at again
    return;
  }
  ++pings_without_data_;
  ping_sent_ms_ = now_ms;
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  FlushSoon();
}

void Connection::OnPing() {
  if (strikes_.OnPing(NowMs(), num_streams_ > 0)) return;
  constexpr std::string_view kReason = "too_many_pings";
  nghttp2_submit_goaway(
      session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_),
      NGHTTP2_ENHANCE_YOUR_CALM, reinterpret_cast<const uint8_t*>(kReason.data()), kReason.size());
  is_sent_away_ = true;
  FlushSoon();
}

void Connection::OnDataSent() {
  strikes_.OnDataSent();
  pings_without_data_ = 0;
}

// ---- answers that nobody reads

// Only what the client did not take at once is worth a timer.
void Connection::WatchAnswers() {
  if (is_closed_ || next_look_ms_ != 0) return;
  const int64_t now_ms = NowMs();
  next_look_ms_ = now_ms + shared_.options.write_timeout_ms;
  SetTimer(now_ms);
}

void Connection::LookAtAnswers(int64_t now_ms) {
  for (Stream* stream = first_stream_; stream != nullptr; stream = stream->next) {
    stream->DropIfUnread();
  }
  next_look_ms_ = num_unread_answers_ > 0 ? now_ms + shared_.options.write_timeout_ms : 0;
  FlushSoon();
}

// ---- end

// First a GOAWAY that forbids nothing yet, and once the client has surely read it, the last one: no
// call that was on its way is lost.
void Connection::BeginDrain(int64_t grace_ms) {
  if (is_closed_ || is_lingering_ || is_draining_) return;
  is_draining_ = true;
  drain_begin_ms_ = NowMs();
  drain_end_ms_ = grace_ms > 0 ? drain_begin_ms_ + grace_ms : kNever;
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kDrainPing);
  FlushSoon();
  SetTimer(drain_begin_ms_);
}

void Connection::OnPingAck() {
  if (is_draining_) SendLastGoaway();
}

void Connection::SendLastGoaway() {
  if (is_last_goaway_sent_) return;
  is_last_goaway_sent_ = true;
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  FlushSoon();
}

void Connection::Linger() {
  is_lingering_ = true;
  while (first_stream_ != nullptr) first_stream_->OnClosed();
  if (tls_ != nullptr) tls_->SayGoodbye();
  shutdown(fd_, SHUT_WR);
  const int64_t now_ms = NowMs();
  linger_end_ms_ = now_ms + kLingerMs;
  SetTimer(now_ms);
}

}  // namespace nereid::rpc
