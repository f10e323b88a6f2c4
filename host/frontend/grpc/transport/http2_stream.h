// One call on one HTTP/2 stream: request headers, messages in both directions, final status.
// Services see it as a Call. Their requests come from any thread and are queued as actions that the
// loop thread runs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/transport/message_reader.h"
#include "net/event_loop.h"

struct event;

namespace nereid::grpc {

class Http2Connection;
class SendBuffer;

// Deletes itself once the session has closed the stream and the service has finished the call.
// [loop thread, except for the methods of Call]
class Http2Stream final : public Call, private net::LoopTask {
 public:
  Http2Stream(Http2Connection& connection, int32_t id);
  Http2Stream(const Http2Stream&) = delete;
  Http2Stream& operator=(const Http2Stream&) = delete;

  // ---- events of the session
  void OnHeader(std::string_view name, std::string_view value);
  void OnHeadersEnd();
  void OnData(std::string_view bytes);
  void OnRemoteEnd();
  // Everything has been sent.
  void OnLocalEnd();
  // The session has closed the stream or is about to be destroyed. May delete this.
  void OnClosed();

  // Returns how many queued bytes the next DATA frame contains, at most `max_bytes`, or an nghttp2
  // error code. `data_flags` are NGHTTP2_DATA_FLAG_*.
  ssize_t PrepareData(size_t max_bytes, uint32_t* data_flags);
  // Moves the next `count` queued bytes to `out`.
  void MoveDataTo(size_t count, SendBuffer& out);
  // Resets the stream if the client has read too little of a pending response since the last check,
  // which was `period_ms` ago.
  void ResetIfUnread(int64_t period_ms);
  // True if the rest of the request has not arrived, and too little of it since the last check.
  bool HasStalled(int64_t now_ms);
  void EndStalled();
  // True if the client may send messages of a stream: there may be none for a long time.
  bool MayBeIdle() const;
  // True if nothing was sent or received since the last call. Requires MayBeIdle.
  bool HasBeenIdle();
  void EndIdle();
  // True once the request's headers are complete.
  bool has_headers() const { return is_headers_end_; }
  // Runs the next step of a decompression that was interrupted to serve other connections.
  void ContinueDecompression();

  int32_t id() const { return id_; }
  // Links of the connection's list of streams.
  Http2Stream* next = nullptr;
  Http2Stream* previous = nullptr;

  // ---- Call
  const Metadata& metadata() const override { return metadata_; }
  bool IsPeerLocal() const override;
  net::EventLoop& loop() const override { return loop_; }
  ByteBudget* budget() const override;
  void Read() override;
  void Write(WireMessage message) override;
  void Finish(CallStatus status) override;
  void FinishWith(WireMessage message) override;
  void SetFull(bool is_full) override;
  void Abort() override;

 private:
  // gRPC's own limit on the size of a call's headers.
  static constexpr size_t kMaxHeaderBytes = 16384;

  // A message to send, with its 5-byte prefix.
  struct OutMessage {
    std::array<char, 5> prefix;
    WireMessage message;
  };
  struct Actions {
    bool is_read_requested = false;
    bool is_abort_requested = false;
    std::optional<bool> is_full;
    std::optional<OutMessage> message;
    std::optional<CallStatus> status;
    bool empty() const {
      return !is_read_requested && !is_abort_requested && !is_full && !message && !status;
    }
  };

  ~Http2Stream();
  void RunOnLoop() override;
  template <typename Change>
  void PostActions(Change change);
  void RunActions(Actions actions);
  void CloseForLackOfMemory(bool is_last, bool has_message);
  void QueueMessage(OutMessage message);
  void FinishWithStatus(CallStatus status);

  void SetDeadline(std::string_view timeout);
  static void OnDeadline(int fd, short what, void* self);
  void StoreMetadata(std::string_view name, std::string_view value);
  void StoreBinaryMetadata(std::string_view name, std::string_view value);
  void AppendMetadata(std::string_view name, std::string_view value);
  void BuildMetadataViews();
  void Deliver();
  bool PrepareFront();
  void StartUnary();
  void StartStream();
  void SetReceiving(bool is_receiving);
  // Ends the call with `status` without waiting for its service.
  void Reject(CallStatus status);
  void RejectHttp(std::string_view http_status);
  void ResetStream();
  void NotifyCancel();
  void SubmitHeaders();
  void SubmitStatusOnly(const CallStatus& status);
  void SubmitTrailers();
  void SkipSentSlices();
  void SetResponsePending(bool is_pending);
  void LogStep(const char* before, const char* between, const char* after) const;
  void FinishAndDelete();
  OutMessage Frame(WireMessage message) const;
  void ChooseResponseEncoding();

  net::EventLoop& loop_;
  std::atomic<size_t>& num_calls_;
  ByteReservation reservation_;  // stands for this object and the headers
  Http2Connection* connection_;  // null once the stream is closed
  const int32_t id_;

  // Headers.
  std::string path_;
  std::string metadata_text_;
  // Offsets in metadata_text_: name, value, end.
  std::vector<std::array<uint32_t, 3>> metadata_offsets_;
  Metadata metadata_;
  std::string accept_encoding_;
  size_t header_bytes_ = 0;
  bool is_post_ = false;
  bool is_grpc_ = false;
  bool has_unknown_encoding_ = false;
  std::string invalid_header_;  // what is wrong with a header; empty: nothing
  bool is_headers_end_ = false;
  http::Encoding encoding_ = http::Encoding::kIdentity;
  http::Encoding response_encoding_ = http::Encoding::kIdentity;
  event* deadline_event_ = nullptr;

  // The request.
  const Method* method_ = nullptr;
  std::optional<MessageReader> reader_;
  std::deque<ReceivedMessage> received_;
  std::unique_ptr<http::Decompression> decompression_;  // of received_.front(); null: not begun
  bool is_receiving_ =
      false;  // the rest of the headers, of a message or of a unary call is missing
  uint64_t received_bytes_ = 0;                         // headers and messages
  uint64_t received_bytes_at_check_ = 0;                // received_bytes_ at the last check
  uint64_t received_bytes_at_start_ = 0;                // received_bytes_ at the first check
  std::optional<uint64_t> transferred_bytes_at_check_;  // by HasBeenIdle, in both directions
  int64_t receiving_since_ms_ = 0;  // time of the first check; 0: there was none
  size_t unconsumed_bytes_ = 0;     // of the stream's window, until the service reads
  bool is_reading_ = false;
  bool is_remote_end_ = false;

  // The service.
  CallHandler* handler_ = nullptr;
  bool is_started_ = false;
  bool is_cancel_notified_ = false;
  bool is_finished_ = false;  // the service has called Finish
  bool is_rejected_ = false;  // a status is being sent without the service
  std::optional<CallStatus> forced_status_;

  // The response.
  std::deque<OutMessage> out_;
  size_t out_slice_ = 0;   // part of out_.front() being sent: 0 is the prefix, n is slice n - 1
  size_t out_offset_ = 0;  // sent bytes of that part
  size_t out_bytes_ = 0;   // queued bytes of all messages
  bool is_write_pending_ = false;
  uint64_t sent_bytes_ = 0;
  // A unary response is not yet completely sent, or the service holds back messages of a stream.
  bool is_response_pending_ = false;
  bool is_full_ = false;     // as SetFull says
  bool is_checked_ = false;  // the pending response was checked before, with the next two values
  size_t unsent_bytes_at_check_ = 0;  // out_bytes_
  uint64_t sent_bytes_at_check_ = 0;
  bool has_headers_ = false;
  bool is_aborted_ = false;
  CallStatus status_;

  std::mutex mutex_;  // guards the two below
  Actions actions_;
  bool is_posted_ = false;
};

}  // namespace nereid::grpc
