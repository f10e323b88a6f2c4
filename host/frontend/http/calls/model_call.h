// One inference request in flight. It passes responses from the backend's thread to the
// connection's loop, and a client's disconnect from the loop to the model. It owns all input
// memory. It deletes itself after the last response was handled and the model released the request,
// whichever is later.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/inline_vector.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/bodies/orca.h"
#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/tracing/tracer.h"
#include "nereid/server.h"
#include "net/event_loop.h"

namespace nereid::http {

class ModelCall : public InferObserver, public net::LoopTask, public InFlightCall {
 public:
  // `body` and `inputs` own the memory of the request's tensors.
  ModelCall(KServeContext& context, HttpConnection& connection, RequestBody&& body,
            InputTensors&& inputs);

  // [loop thread] Call before Launch: the response will carry load metrics in `format`.
  void ReportLoadMetrics(OrcaFormat format) { orca_ = format; }
  // [loop thread] Starts `request`. On an error no call was started, and the connection must still
  // be answered.
  static Status Launch(std::unique_ptr<ModelCall> call, InferRequest request, TracedRequest trace);
  // [loop thread] The same for one of several calls that answer a request together. The caller
  // begins the connection's call, and passes its events (InFlightCall) on to this one until
  // OnModelEnd or DetachClient.
  static Status LaunchPart(std::unique_ptr<ModelCall> call, InferRequest request,
                           TracedRequest trace);

  virtual ~ModelCall();

 protected:
  // [loop thread] Called while the client is connected: for each response, then at the end. Nothing
  // follows the end or a call of DetachClient.
  virtual void OnModelResponse(InferResponse response) = 0;
  virtual void OnModelEnd() = 0;

  // [loop thread] Null after the client has disconnected or was answered.
  HttpConnection* connection() { return connection_; }
  // [loop thread] The client has its response. Further responses of the model are dropped.
  void DetachClient() {
    connection_ = nullptr;
    drops_responses_.store(true, std::memory_order_relaxed);
  }
  // [loop thread] Ends the request of a client for whose response there is no memory. Nothing of it
  // runs any more.
  virtual void AnswerMemoryFailure(HttpConnection& connection) { connection.FailForMemory(this); }
  // [loop thread] Returns header lines that the request asked for.
  std::string ExtraHeaders() const;
  // [loop thread] Cancels the request.
  void Cancel();
  // [loop thread] Returns an error if a shared-memory region of the request did not stay intact to
  // the end.
  Status CheckSharedMemory();
  // Outputs in shared memory; null if there are none. The result never changes.
  virtual std::vector<SharedOutput>* shared_outputs() { return nullptr; }

 private:
  struct Event {
    InferResponse response;
    size_t size_bytes;  // counted in queued_bytes_
  };
  using Events = InlineVector<Event, 1>;
  enum : unsigned { kRequestReleased = 1, kResponsesHandled = 2 };

  void OnResponse(InferResponse response, bool is_final) noexcept final;
  void OnRelease(InferRequest request) noexcept final;
  void RunOnLoop() final;
  void OnDisconnect() final;
  void OnOutputSent(size_t unsent_bytes) final;
  void Queue(InferResponse response, size_t size_bytes);
  // Runs `work`, which answers the client. If memory is exhausted, the call ends for the client.
  template <typename Work>
  void AnswerOrFail(const Work& work);
  void FailForMemory();
  void UpdateRoom();
  void AddStage(unsigned stage);
  void ReleaseSharedMemory();

  KServeContext& context_;
  net::EventLoop& loop_;
  HttpConnection* connection_;                       // used only on the loop thread
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid as long as this object
  const RequestBody body_;
  InputTensors inputs_;
  OrcaFormat orca_ = OrcaFormat::kNone;
  TracedRequest trace_;   // null if the request is not traced
  InferRequest request_;  // set when the model releases the request
  std::atomic<unsigned> stage_{0};

  // Back-pressure of a stream: while responses of more than max_unsent_bytes_ wait for the client,
  // the model has to wait before it sends more.
  const size_t max_unsent_bytes_;
  std::atomic<size_t> queued_bytes_{0};  // of responses that the loop has not handled
  std::atomic<size_t> unsent_bytes_{0};  // that the connection has not sent
  std::atomic<bool> drops_responses_{false};
  std::atomic<bool> has_room_{true};  // as reported; written under events_mutex_

  std::mutex events_mutex_;  // guards the members below
  Events events_;
  bool has_ended_ = false;          // the final response has arrived
  bool has_lost_response_ = false;  // there was no memory to queue one
  bool is_posted_ = false;
};

// [loop thread] Decides whether the request is traced. Returns null if it is not.
TracedRequest SampleTrace(const KServeContext& context, const HttpConnection& connection,
                          const RequestHead& head, const RequestedModel& model);

}  // namespace nereid::http
