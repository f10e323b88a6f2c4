// Implements ClientRequest on the C API: sends the ensemble's responses, reports its statistics and
// releases the request. Calls never overlap, except IsCancelled. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/cancellation_monitor.h"
#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

// Deletes the response factory of a decoupled ensemble's request.
struct ResponseFactoryDeleter {
  void operator()(TRITONBACKEND_ResponseFactory* factory) const;
};

class CApiClientRequest : public ClientRequest {
 public:
  // `instance` and `monitor` outlive the request. The request belongs to the caller until the
  // runner has begun.
  CApiClientRequest(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request,
                    std::shared_ptr<const Plan> plan, CancellationMonitor& monitor);
  // Call it before all other functions.
  Status Open();

  // The request's inputs in the order of Graph::inputs. They reference its buffers; null for an
  // absent input.
  Result<TensorRefs> ReadInputs();
  // Cancellation of the client's request reaches `runner` from now until Release.
  void MonitorCancellation(const std::shared_ptr<RequestRunner>& runner) {
    monitor_.Add(entry_, runner);
  }

  bool IsCancelled() override;
  void Send(const EnsembleResponse& ensemble_response, bool is_final) override;
  void SendError(const Status& error) override;
  void SendFinal() override;
  void Release() override;

 private:
  Result<TRITONBACKEND_Response*> NewResponse();
  Status Fill(TRITONBACKEND_Response* response, const EnsembleResponse& ensemble_response);
  Status AddOutput(TRITONBACKEND_Response* response, const Binding& output, const Tensor& tensor);
  Status AddSequenceParameters(TRITONBACKEND_Response* response);
  void Finish(TRITONBACKEND_Response* response, const Status& status, bool is_final);
  // `output_start_ns` 0 means an empty response that only ends the stream.
  void ReportResponse(uint64_t start_ns, uint64_t output_start_ns, const Status& status);
  void ReportRequest();
  uint64_t BatchSize() const;

  TRITONBACKEND_ModelInstance* const instance_;
  TRITONBACKEND_Request* request_;
  const std::shared_ptr<const Plan> plan_;
  CancellationMonitor& monitor_;
  CancellationMonitor::Entry entry_;
  std::unique_ptr<TRITONBACKEND_ResponseFactory, ResponseFactoryDeleter> factory_;  // if decoupled
  uint64_t start_ns_ = 0;
  uint64_t inputs_read_ns_ = 0;
  uint64_t computed_ns_ = 0;  // when the last response began to be written; 0: none yet
  uint64_t last_response_ns_ = 0;
  bool succeeded_ = true;
  bool is_closed_ = false;  // the final response was sent
};

}  // namespace nereid::ensemble
