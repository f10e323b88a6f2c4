// One call over one HTTP/2 stream: headers, messages both ways, status. Services know it as a Call.
// What they ask for from any thread is put into an order that the loop carries out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/grpc/transport/message_reader.h"
#include "host/frontend/http/transport/event_loop.h"

struct event;

namespace nereid::rpc {

class Connection;
class SendBuffer;

// Deletes itself when the session has closed the stream and its service has finished the call.
// [loop thread, but for the Call]
class Stream final : public Call, private http::LoopTask {
 public:
  Stream(Connection& connection, int32_t id);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // ---- the session's events
  void OnHeader(std::string_view name, std::string_view value);
  void OnHeadersEnd();
  void OnData(std::string_view bytes);
  void OnRemoteEnd();
  // All is sent.
  void OnLocalEnd();
  // The session has forgotten the stream, or is about to end. May delete this.
  void OnClosed();

  // How many of the bytes that wait go into the next frame of at most `max_bytes`; or an error of
  // nghttp2. `data_flags` are NGHTTP2_DATA_FLAG_*.
  ssize_t OfferData(size_t max_bytes, uint32_t* data_flags);
  // The next `count` bytes leave.
  void TakeData(size_t count, SendBuffer& out);
  // Ends the call when its client has taken nothing of a whole answer since the last look.
  void DropIfUnread();

  int32_t id() const { return id_; }
  // Of the connection's list.
  Stream* next = nullptr;
  Stream* previous = nullptr;

  // ---- Call
  const Metadata& metadata() const override { return metadata_; }
  void Read() override;
  void Write(WireMessage message) override;
  void Finish(CallStatus status) override;
  void FinishWith(WireMessage message) override;
  void Abort() override;

 private:
  // A message with its prefix while it is sent.
  struct OutMessage {
    std::array<char, 5> prefix;
    WireMessage message;
  };
  struct Orders {
    bool wants_read = false;
    bool wants_abort = false;
    std::optional<OutMessage> message;
    std::optional<CallStatus> status;
    bool empty() const { return !wants_read && !wants_abort && !message && !status; }
  };

  ~Stream();
  void RunOnLoop() override;
  template <typename Change>
  void Order(Change change);
  void Carry(Orders orders);
  void CarryMessage(OutMessage message);
  void CarryStatus(CallStatus status);

  void SetDeadline(std::string_view timeout);
  static void OnDeadline(int fd, short what, void* self);
  void KeepMetadata(std::string_view name, std::string_view value);
  void ViewMetadata();
  void Deliver();
  void StartUnary();
  // Ends the call from this side, whatever its service thinks.
  void Reject(CallStatus status);
  void RejectHttp(std::string_view http_status);
  void DropClient();
  void TellCancel();
  void SubmitHeaders();
  void SubmitStatusOnly(const CallStatus& status);
  void SubmitTrailers();
  void SkipSentPieces();
  void CountAnswer(bool waits);
  void LogStep(const char* before, const char* between, const char* after) const;
  void End();
  OutMessage Frame(WireMessage message) const;
  void ChooseResponseEncoding();

  http::EventLoop& loop_;
  std::atomic<size_t>& num_calls_;
  Connection* connection_;  // null once closed
  const int32_t id_;

  // Headers.
  std::string path_;
  std::string metadata_text_;
  std::vector<std::array<uint32_t, 3>> metadata_marks_;  // in metadata_text_: begin, value, end
  Metadata metadata_;
  std::string accept_encoding_;
  size_t header_bytes_ = 0;
  bool is_post_ = false;
  bool is_grpc_ = false;
  bool has_unknown_encoding_ = false;
  http::Encoding encoding_ = http::Encoding::kIdentity;
  http::Encoding response_encoding_ = http::Encoding::kIdentity;
  event* deadline_event_ = nullptr;

  // The request.
  const Method* method_ = nullptr;
  std::optional<MessageReader> reader_;
  std::deque<Slice> received_;
  size_t unconsumed_bytes_ = 0;  // of the stream's window, until somebody reads
  bool is_reading_ = false;
  bool is_remote_end_ = false;

  // The service.
  CallHandler* handler_ = nullptr;
  bool is_started_ = false;
  bool is_cancel_told_ = false;
  bool is_finished_ = false;  // by the service
  bool is_rejected_ = false;  // the answer is under way without the service
  std::optional<CallStatus> forced_status_;

  // The response.
  std::deque<OutMessage> out_;
  size_t out_piece_ = 0;   // of out_.front(): 0 is the prefix
  size_t out_offset_ = 0;  // in that piece
  size_t out_bytes_ = 0;   // that wait
  bool is_write_waiting_ = false;
  bool is_whole_answer_ = false;  // of a unary call, and some of it waits
  size_t looked_bytes_ = 0;       // out_bytes_ at the last look
  bool has_headers_ = false;
  bool is_aborted_ = false;
  CallStatus status_;

  std::mutex mutex_;  // guards the two below
  Orders orders_;
  bool is_posted_ = false;
};

}  // namespace nereid::rpc
