// The seam between the services and what carries their calls: bytes of messages, the call as a
// service sees it, and what it hears of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {

// Bytes that several may share; never changed once others see them.
struct Slice {
  std::string_view bytes;
  std::shared_ptr<const void> keep;  // owns `bytes`

  static Slice Of(std::string text);
};

// A message to be sent, in pieces that are sent from where they lie.
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

// gRPC's codes, by their numbers on the wire.
enum class GrpcCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

// How a call ends.
struct CallStatus {
  GrpcCode code = GrpcCode::kOk;
  std::string message = {};
};

// The code by its name, the message as it is.
CallStatus ToCallStatus(const Status& status);

// Name and value of each header that the client may choose; names are in lower case, values of
// "-bin" headers are decoded.
using Metadata = std::vector<std::pair<std::string_view, std::string_view>>;

// One call, as its service sees it. Alive until it is finished and its handler's OnDone has
// returned. [any thread]
class Call {
 public:
  // Immutable.
  virtual const Metadata& metadata() const = 0;
  // The first value of `name`, null where there is none.
  const std::string_view* FindMetadata(std::string_view name) const;

  // Streams. One of each may be under way; the handler hears of its end.
  virtual void Read() = 0;
  virtual void Write(WireMessage message) = 0;

  // The end, exactly once, after which nothing of the call may be used but in OnDone. Not before a
  // write under way is done. A message that is given leaves before the status.
  virtual void Finish(CallStatus status) = 0;
  virtual void FinishWith(WireMessage message) = 0;

  // Gives the client up: the handler hears OnCancel, and of a write's end.
  virtual void Abort() = 0;

 protected:
  ~Call() = default;
};

// Who serves a call. [loop thread of the call; the methods never overlap]
class CallHandler {
 public:
  // `message` is null when the client sends no more.
  virtual void OnReadDone(const Slice* message);
  virtual void OnWriteDone() {}
  // The client left or its deadline passed: the handler should come to an end, which is Finish
  // still. Once at most, never after Finish was heard of.
  virtual void OnCancel() {}
  // Nothing of the call is used any more; the last that the handler hears.
  virtual void OnDone() {}

 protected:
  ~CallHandler() = default;
};

inline void CallHandler::OnReadDone(const Slice*) {}

}  // namespace nereid
