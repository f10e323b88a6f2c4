// Interface between the gRPC services and the HTTP/2 transport: message bytes, a call as its
// service sees it, and the handler through which the service receives the call's events.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_budget.h"
#include "nereid/status.h"

namespace nereid {

namespace net {
class EventLoop;
}

// Immutable bytes with shared ownership.
struct Slice {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // owns `bytes`

  static Slice Of(std::string text);
};

// A message to send, as a list of slices that are sent without being copied together.
class WireMessage {
 public:
  WireMessage() = default;
  explicit WireMessage(Slice slice) { Append(std::move(slice)); }
  void Append(Slice slice) {
    size_bytes_ += slice.bytes.size();
    slices_.push_back(std::move(slice));
  }
  const std::vector<Slice>& slices() const { return slices_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<Slice> slices_;
  size_t size_bytes_ = 0;
};

// gRPC status codes with their numbers on the wire.
enum class GrpcCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kUnauthenticated = 16,
};

// Final status of a call.
struct CallStatus {
  GrpcCode code = GrpcCode::kOk;
  std::string message = {};
};

// Maps the code to the gRPC code of the same meaning; the message is copied unchanged.
CallStatus ToCallStatus(const Status& status);

// Request headers other than HTTP/2 pseudo-headers and those that gRPC itself defines: (name,
// value). Names are in lower case; values of "-bin" headers are decoded from base64.
using Metadata = std::vector<std::pair<std::string_view, std::string_view>>;

// One call, as its service sees it. Valid until it is finished and its handler's OnDone has
// returned. [any thread]
class Call {
 public:
  // Immutable.
  virtual const Metadata& metadata() const = 0;
  // The first value of header `name`; null if there is none.
  const std::string_view* FindMetadata(std::string_view name) const;
  // [loop thread] True if the client's socket is on this machine; false if it is closed.
  virtual bool IsPeerLocal() const = 0;
  // The loop on whose thread the handler gets its events. It outlives the call.
  virtual net::EventLoop& loop() const = 0;
  // [loop thread] Counts the memory of the client's requests. May be null: it is not limited.
  virtual ByteBudget* budget() const = 0;

  // For streaming calls. At most one read and one write may be pending; the handler is notified
  // when each completes.
  virtual void Read() = 0;
  virtual void Write(WireMessage message) = 0;

  // Ends the call. Called exactly once, and not while a write is pending. Afterwards the call may
  // be used only within OnDone. A message passed to FinishWith is sent before the status. Write and
  // FinishWith do nothing if they throw std::bad_alloc; Finish and Abort do not throw.
  virtual void Finish(CallStatus status) = 0;
  virtual void FinishWith(WireMessage message) = 0;

  // For streaming calls: says whether the service holds back messages until the client has read
  // more. While it does, the stream is reset if the client reads nothing for the write timeout.
  virtual void SetFull(bool is_full) = 0;

  // Resets the stream. The handler receives OnCancel, and OnWriteDone if a write is pending.
  virtual void Abort() = 0;

 protected:
  ~Call() = default;
};

// Receives the events of one call. [loop thread of the call; the methods never run concurrently]
class CallHandler {
 public:
  // `message` is null if the client has closed its side of the stream.
  virtual void OnReadDone(const Slice* message);
  virtual void OnWriteDone() {}
  // The client cancelled, disconnected or exceeded its deadline. The handler must still call Finish
  // soon. Called at most once, and never after the transport has processed Finish.
  virtual void OnCancel() {}
  // The call is over and is no longer used. This is the last event.
  virtual void OnDone() {}

 protected:
  ~CallHandler() = default;
};

inline void CallHandler::OnReadDone(const Slice*) {}

// How calls of one method start.
struct Method {
  // [loop thread] Called when the headers are complete, before any message is kept. Returns false
  // after it has finished a call that is not permitted. Empty: every call is permitted.
  std::function<bool(Call& call)> admit = nullptr;
  // [loop thread] Returns the call's handler; null if `unary` has already finished the call.
  // Exactly one of the two is set: a unary call starts with its only message, a stream when its
  // headers are complete.
  std::function<CallHandler*(Call& call, const Slice& message)> unary;
  std::function<CallHandler*(Call& call)> stream;
};

// The endpoint's methods by path. Filled before the endpoint listens, then immutable. [any thread]
class MethodTable {
 public:
  // `path` is "/package.Service/Method".
  void Add(std::string path, Method method) {
    methods_.insert_or_assign(std::move(path), std::move(method));
  }
  // Null if there is no such method.
  const Method* Find(std::string_view path) const {
    const auto found = methods_.find(path);
    return found == methods_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace nereid
