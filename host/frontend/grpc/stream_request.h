// One request of a ModelStreamInfer call, and the replies that it produces.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/model_demand.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"

namespace nereid {

class StreamRequest;

// One reply: exactly one of an error, a response, or an empty final response.
struct StreamReply {
  std::shared_ptr<StreamRequest> request;
  Status error;
  InferResponse response;
  bool is_final = false;
  size_t size_bytes = 0;  // of memory that the reply keeps alive

  // The reply's own error, or that of its response.
  Status Error() const;
  WireMessage Encode() const;
};

// Receives the replies of requests; implemented by the stream. Called on backend threads.
class StreamReplySink {
 public:
  // Calls for one request never run concurrently. No reply follows a final one.
  virtual void OnReply(StreamReply reply) = 0;
  // The request ended, and there is no final reply to send.
  virtual void OnEndWithoutReply(const std::shared_ptr<StreamRequest>& request) = 0;

 protected:
  ~StreamReplySink() = default;
};

// Kept alive by its replies, the stream and the core. [loop thread until submitted, then backend
// threads]
class StreamRequest final : public InferObserver,
                            public std::enable_shared_from_this<StreamRequest> {
 public:
  explicit StreamRequest(std::shared_ptr<StreamReplySink> sink) : sink_(std::move(sink)) {}

  // The request id is available even if this fails. `budget` is that of the call.
  Status Parse(const Slice& bytes, ByteBudget* budget);
  // Requires a successful Parse.
  Status FindModel(const InferContext& context) { return context.FindModel(resources_); }
  // The model stays loaded as long as the object lives.
  void KeepLoaded(ModelDemand::Lease lease) { lease_ = std::move(lease); }
  // True if its replies must wait for those of earlier requests.
  bool is_ordered() const { return !resources_.is_decoupled; }
  bool enable_empty_final() const { return resources_.response_options.enable_empty_final; }
  // Requires a successful FindModel. If it fails, the sink receives nothing for this request.
  Status Submit(const InferContext& context, const ForwardedHeaders& headers, TracedRequest trace);
  // [any thread] Requires a successful Submit.
  void Cancel() const { (void)InferRequest::Cancel(in_flight_); }
  // [any thread] Reports whether the stream can take further replies of the request. As Cancel;
  // also allowed from the first reply on.
  void SetRoom(bool has_room) const { InferRequest::SetRoom(in_flight_, has_room); }

  bool is_parsed() const { return is_parsed_; }
  const std::string& id() const { return resources_.message.message().id(); }
  const std::string& model() const { return resources_.message.message().model_name(); }
  const RequestResources& resources() const { return resources_; }
  bool was_submitted() const { return was_submitted_; }

  // State owned by the stream and guarded by its mutex.
  struct StreamState {
    std::deque<StreamReply> queued_replies;  // waiting until earlier ordered requests have ended
    bool has_reply = false;
    bool has_ended = false;
    bool may_cancel = false;
  } stream_state;

 private:
  void OnResponse(InferResponse response, bool is_final) noexcept override;
  void OnRelease(InferRequest request) noexcept override;
  // Drops one of the core's two references: that of the final response or that of the release.
  void ReleaseCoreRef();

  RequestResources resources_;
  ModelDemand::Lease lease_;   // of a model that is loaded on demand
  TracedRequest trace_;        // null if the request is not traced
  bool has_answered_ = false;  // [backend threads; responses of one request never run concurrently]
  bool is_parsed_ = false;
  bool was_submitted_ = false;
  std::shared_ptr<StreamReplySink> sink_;
  std::atomic<int> num_core_refs_{0};
  std::shared_ptr<StreamRequest> self_;  // set while the core uses the request
  TRITONSERVER_InferenceRequest* in_flight_ = nullptr;
  std::optional<InferRequest> request_;  // set on release; kept because Cancel may still be called
};

}  // namespace nereid
