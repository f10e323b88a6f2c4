// One request in the hands of a model: carries responses from the backend's thread to the
// connection's loop, and the client's departure the other way. It owns all input memory and deletes
// itself when the last response was dealt with and the model gave the request back, whichever comes
// last.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/inline_vector.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/bodies/orca.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/tracing/tracer.h"
#include "nereid/server.h"

namespace nereid::http {

class ModelCall : public InferObserver, public LoopTask, public ActiveCall {
 public:
  // `body` and `inputs` are what the request's tensors lie in.
  ModelCall(KServeContext& context, Connection& connection, Body body, InputTensors inputs);

  // [loop thread] Before Launch: the answer is to tell how loaded the model is.
  void TellLoad(OrcaFormat format) { orca_ = format; }
  // [loop thread] Gives `request` to the model. On an error there was no call, and the connection
  // is still to be answered.
  static Status Launch(std::unique_ptr<ModelCall> call, InferRequest request, TracedRequest trace);

  virtual ~ModelCall();

 protected:
  // [loop thread] While there is a client: each response, then the end. After the end, or once
  // LeaveClient was called, nothing more comes.
  virtual void OnModelResponse(InferResponse response) = 0;
  virtual void OnModelEnd() = 0;

  // [loop thread] Null once the client is gone or answered.
  Connection* connection() { return connection_; }
  // [loop thread] The client has its answer; what else the model says is dropped.
  void LeaveClient() { connection_ = nullptr; }
  // [loop thread] Header lines that the request asked for.
  std::string ExtraHeaders() const;
  // [loop thread] Asks the model to stop.
  void Cancel();
  // [loop thread] Whether the memory that the request shares was there to the end.
  Status CheckShared();
  // Outputs that go into shared memory; null for none. Constant.
  virtual std::vector<SharedOutput>* shared_outputs() { return nullptr; }

 private:
  struct Event {
    InferResponse response;
    bool is_final;
  };
  using Events = InlineVector<Event, 1>;
  enum : unsigned { kReleased = 1, kLoopIsDone = 2 };

  void OnResponse(InferResponse response, bool is_final) noexcept final;
  void OnRelease(InferRequest request) noexcept final;
  void RunOnLoop() final;
  void OnDisconnect() final;
  void SetStage(unsigned stage);
  void EndSharedUse();

  KServeContext& context_;
  EventLoop& loop_;
  Connection* connection_;                           // loop thread
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid as long as this object
  const Body body_;
  InputTensors inputs_;
  OrcaFormat orca_ = OrcaFormat::kNone;
  TracedRequest trace_;   // empty when the request is not traced
  InferRequest request_;  // after the release
  std::atomic<unsigned> stage_{0};

  std::mutex events_mutex_;  // guards the two below
  Events events_;
  bool is_posted_ = false;
};

}  // namespace nereid::http
