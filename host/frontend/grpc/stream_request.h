// One request of a ModelStreamInfer call, and the replies that it gives rise to.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "host/frontend/grpc/infer_context.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"

namespace nereid {

class StreamRequest;

// What is to be sent: exactly one of an error, a response, or the bare end of a request.
struct StreamReply {
  std::shared_ptr<StreamRequest> request;
  Status error;
  InferResponse response;
  bool is_final = false;
  size_t size_bytes = 0;  // of memory that it holds

  // The error that the reply carries, of its own or of its response.
  Status Error() const;
  WireMessage Encode() const;
};

// Who hears of a request's replies: the stream. Calls come from backend threads.
class StreamReplySink {
 public:
  // Of one request the calls never overlap; no reply after a final one.
  virtual void OnReply(StreamReply reply) = 0;
  // The final reply was given without anything to send.
  virtual void OnSilentEnd(const std::shared_ptr<StreamRequest>& request) = 0;

 protected:
  ~StreamReplySink() = default;
};

// Alive while a reply, the stream or the core refers to it. [loop thread until submitted, then
// backend threads]
class StreamRequest final : public InferObserver,
                            public std::enable_shared_from_this<StreamRequest> {
 public:
  explicit StreamRequest(std::shared_ptr<StreamReplySink> sink) : sink_(std::move(sink)) {}

  // Parses and looks up the model. The id is known even when it fails.
  Status Prepare(const InferContext& context, const Slice& bytes);
  // Whether its replies wait for those of earlier requests.
  bool is_ordered() const { return !parts_.is_decoupled; }
  bool wants_empty_final() const { return parts_.wishes.wants_empty_final; }
  // After a successful Prepare. When it fails nothing will be heard of the request.
  Status Submit(const InferContext& context, const ForwardedHeaders& headers, TracedRequest trace);
  // [any thread] After a successful Submit.
  void Cancel() const { (void)InferRequest::Cancel(in_flight_); }

  bool is_parsed() const { return is_parsed_; }
  const std::string& id() const { return parts_.message.message().id(); }
  const std::string& model() const { return parts_.message.message().model_name(); }
  const InferParts& parts() const { return parts_; }
  bool was_submitted() const { return was_submitted_; }

  // The stream's, guarded by its mutex.
  struct Place {
    std::deque<StreamReply> held;  // until earlier ordered requests have ended
    bool has_reply = false;
    bool has_ended = false;
    bool may_cancel = false;
  } place;

 private:
  void OnResponse(InferResponse response, bool is_final) noexcept override;
  void OnRelease(InferRequest request) noexcept override;
  // After the final response and after the release: the core is through with it.
  void Unpin();

  InferParts parts_;
  TracedRequest trace_;        // empty when the request is not traced
  bool has_answered_ = false;  // [whoever answers: responses of one request never overlap]
  bool is_parsed_ = false;
  bool was_submitted_ = false;
  std::shared_ptr<StreamReplySink> sink_;
  std::atomic<int> num_pins_{0};
  std::shared_ptr<StreamRequest> self_;  // set while the core refers to it
  TRITONSERVER_InferenceRequest* in_flight_ = nullptr;
  std::optional<InferRequest>
      request_;  // after its release; kept so that it may still be cancelled
};

}  // namespace nereid
