// ClientRequest on the C API: writes the ensemble's responses, reports its statistics and gives the
// request back. Calls never overlap, except IsCancelled. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/cancel_watch.h"
#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

// Deletes the handle that a decoupled ensemble answers through.
struct FactoryDeleter {
  void operator()(TRITONBACKEND_ResponseFactory* factory) const;
};

class CoreClient : public ClientRequest {
 public:
  // `instance` and `watch` outlive the request, which stays the caller's until it has begun to run.
  CoreClient(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
             std::shared_ptr<const Plan> plan, CancelWatch& watch);
  // First of all.
  Status Open();

  // The request's inputs by Graph::inputs, referencing its buffers; null where it has none.
  Result<TensorRefs> ReadInputs();
  // Cancellation reaches `runner` from now on, until Release.
  void Watch(const std::shared_ptr<Runner>& runner) { watch_.Watch(entry_, runner); }

  bool IsCancelled() override;
  void Send(const Emission& emission, bool is_final) override;
  void SendError(const Status& error) override;
  void SendFinal() override;
  void Release() override;

 private:
  Result<TRITONBACKEND_Response*> NewResponse();
  Status Fill(TRITONBACKEND_Response* response, const Emission& emission);
  Status AddOutput(TRITONBACKEND_Response* response, const Binding& output, const Tensor& tensor);
  Status AddSequenceParameters(TRITONBACKEND_Response* response);
  void Finish(TRITONBACKEND_Response* response, const Status& status, bool is_final);
  // `output_start_ns` 0: an empty response, the end alone.
  void ReportResponse(uint64_t start_ns, uint64_t output_start_ns, const Status& status);
  void ReportRequest();
  uint64_t BatchSize() const;

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* request_;
  const std::shared_ptr<const Plan> plan_;
  CancelWatch& watch_;
  CancelWatch::Entry entry_;
  std::unique_ptr<TRITONBACKEND_ResponseFactory, FactoryDeleter> factory_;  // when decoupled
  uint64_t start_ns_ = 0;
  uint64_t inputs_read_ns_ = 0;
  uint64_t computed_ns_ = 0;  // when the last response began to be written; 0: none was
  uint64_t last_response_ns_ = 0;
  bool succeeded_ = true;
  bool is_closed_ = false;  // the final answer went out
};

}  // namespace nereid::ensemble
