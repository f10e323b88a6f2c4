#include "backends/ensemble/capi_client_request.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "nereid/error.h"
#include "nereid/ext/response_room.h"

namespace nereid::ensemble {
namespace {

uint64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// For calls whose failure must not fail the request, such as statistics.
void LogIfError(TRITONSERVER_Error* error) {
  const Status status = ToStatus(error);
  if (status.ok()) return;
  (void)ToStatus(TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__,
                                         status.message().c_str()));
}

Result<TensorRef> ReadInput(TRITONBACKEND_Input* input) {
  const char* name = nullptr;
  TRITONSERVER_DataType data_type;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0, num_buffers = 0;
  uint64_t byte_size = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputProperties(
      input, &name, &data_type, &shape, &num_dims, &byte_size, &num_buffers)));
  auto tensor = std::make_shared<Tensor>();
  tensor->data_type = data_type;
  tensor->shape.assign({shape, num_dims});
  for (uint32_t i = 0; i < num_buffers; ++i) {
    Segment segment;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_GPU;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputBuffer(
        input, i, &segment.base, &size, &memory_type, &segment.memory_type_id)));
    segment.byte_size = size;
    segment.memory_type = memory_type;
    if (size > 0) tensor->segments.push_back(segment);
  }
  return TensorRef(std::move(tensor));
}

}  // namespace

void ResponseFactoryDeleter::operator()(TRITONBACKEND_ResponseFactory* factory) const {
  LogIfError(TRITONBACKEND_ResponseFactoryDelete(factory));
}

CApiClientRequest::CApiClientRequest(TRITONBACKEND_ModelInstance* instance,
                                     TRITONBACKEND_Request* request,
                                     std::shared_ptr<const Plan> plan, CancellationMonitor& monitor)
    : instance_(instance),
      request_(request),
      plan_(std::move(plan)),
      monitor_(monitor),
      start_ns_(NowNs()),
      last_response_ns_(start_ns_) {}

Status CApiClientRequest::Open() {
  if (!plan_->graph->decoupled) return {};
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseFactoryNew(&factory, request_)));
  factory_.reset(factory);
  // The thread that brings a response often belongs to a step that serves many requests. It must
  // not wait for one client; the decoupled steps upstream wait instead (SetRoomSource).
  if (const auto set_sender_waits = FindResponseFactorySetSenderWaits();
      set_sender_waits != nullptr) {
    return ToStatus(set_sender_waits(factory, false));
  }
  return {};
}

Result<TensorRefs> CApiClientRequest::ReadInputs() {
  const Graph& graph = *plan_->graph;
  TensorRefs inputs;
  inputs.resize(graph.inputs.size());
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputCount(request_, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TRITONBACKEND_Input* input = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputName(request_, i, &name)));
    const int position = graph.FindInput(name);
    if (position < 0) continue;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputByIndex(request_, i, &input)));
    NEREID_ASSIGN_OR_RETURN(inputs[position], ReadInput(input));
  }
  inputs_read_ns_ = NowNs();
  return inputs;
}

bool CApiClientRequest::IsCancelled() {
  bool is_cancelled = false;
  (void)ToStatus(TRITONBACKEND_RequestIsCancelled(request_, &is_cancelled));
  return is_cancelled;
}

void CApiClientRequest::Send(const EnsembleResponse& ensemble_response, bool is_final) {
  if (is_closed_) return;
  const uint64_t output_start_ns = computed_ns_ = NowNs();
  const uint64_t start_ns = std::exchange(last_response_ns_, output_start_ns);
  Result<TRITONBACKEND_Response*> response = NewResponse();
  Status status = response.status();
  if (status.ok()) status = Fill(*response, ensemble_response);
  Finish(response.ok() ? *response : nullptr, status, is_final);
  ReportResponse(start_ns, output_start_ns, status);
}

void CApiClientRequest::SendError(const Status& error) {
  if (is_closed_) return;
  Result<TRITONBACKEND_Response*> response = NewResponse();
  Finish(response.ok() ? *response : nullptr, error, true);
  const uint64_t now_ns = NowNs();
  ReportResponse(last_response_ns_, now_ns, error);
}

void CApiClientRequest::SendFinal() {
  if (is_closed_ || factory_ == nullptr) return;
  is_closed_ = true;
  computed_ns_ = NowNs();
  LogIfError(
      TRITONBACKEND_ResponseFactorySendFlags(factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
}

void CApiClientRequest::Release() {
  monitor_.Remove(entry_);
  ReportRequest();
  factory_.reset();
  LogIfError(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_ALL));
}

Result<TRITONBACKEND_Response*> CApiClientRequest::NewResponse() {
  TRITONBACKEND_Response* response = nullptr;
  NEREID_RETURN_IF_ERROR(
      ToStatus(factory_ != nullptr ? TRITONBACKEND_ResponseNewFromFactory(&response, factory_.get())
                                   : TRITONBACKEND_ResponseNew(&response, request_)));
  return response;
}

Status CApiClientRequest::Fill(TRITONBACKEND_Response* response,
                               const EnsembleResponse& ensemble_response) {
  for (size_t i = 0; i < ensemble_response.outputs.size(); ++i) {
    if (ensemble_response.outputs[i] == nullptr) continue;
    const Binding& output = plan_->graph->outputs[plan_->outputs[i]];
    NEREID_RETURN_IF_ERROR(AddOutput(response, output, *ensemble_response.outputs[i]));
  }
  return AddSequenceParameters(response);
}

Status CApiClientRequest::AddOutput(TRITONBACKEND_Response* response, const Binding& binding,
                                    const Tensor& tensor) {
  const Shape shape = ShapeFor(binding, tensor.shape);
  TRITONBACKEND_Output* output = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseOutput(
      response, &output, binding.name.c_str(), static_cast<TRITONSERVER_DataType>(tensor.data_type),
      shape.data(), shape.size())));
  void* base = nullptr;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_OutputBuffer(output, &base, tensor.byte_size(),
                                                             &memory_type, &memory_type_id)));
  char* target = static_cast<char*>(base);
  for (const Segment& segment : tensor.segments) {
    if (memory_type == TRITONSERVER_MEMORY_GPU || segment.memory_type == TRITONSERVER_MEMORY_GPU) {
      return UnsupportedError("output '", binding.name, "': expected host memory, got GPU memory");
    }
    std::memcpy(target, segment.base, segment.byte_size);
    target += segment.byte_size;
  }
  return {};
}

// Triton adds these parameters to every response of an ensemble, too, but repeatedly.
Status CApiClientRequest::AddSequenceParameters(TRITONBACKEND_Response* response) {
  uint64_t number = 0;
  if (ToStatus(TRITONBACKEND_RequestCorrelationId(request_, &number)).ok()) {
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseSetIntParameter(
        response, "sequence_id", static_cast<int64_t>(number))));
  } else {
    const char* text = "";
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationIdString(request_, &text)));
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_ResponseSetStringParameter(response, "sequence_id", text)));
  }
  uint32_t flags = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestFlags(request_, &flags)));
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseSetBoolParameter(
      response, "sequence_start", (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0)));
  return ToStatus(TRITONBACKEND_ResponseSetBoolParameter(
      response, "sequence_end", (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) != 0));
}

// If a response could not be filled, the request ends, because the client missed a response.
void CApiClientRequest::Finish(TRITONBACKEND_Response* response, const Status& status,
                               bool is_final) {
  succeeded_ &= status.ok();
  is_closed_ = is_final || !status.ok();
  if (response == nullptr) {
    LogIfError(ToError(status));
    return;
  }
  TRITONSERVER_Error* error = ToError(status);
  LogIfError(TRITONBACKEND_ResponseSend(
      response, is_closed_ ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, error));
  TRITONSERVER_ErrorDelete(error);
}

void CApiClientRequest::ReportResponse(uint64_t start_ns, uint64_t output_start_ns,
                                       const Status& status) {
  if (factory_ == nullptr) return;
  TRITONBACKEND_ModelInstanceResponseStatistics* statistics = nullptr;
  if (Status made = ToStatus(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
      !made.ok()) {
    return;
  }
  TRITONSERVER_Error* error = ToError(status);
  LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, instance_));
  LogIfError(
      TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, factory_.get()));
  LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(statistics, start_ns));
  if (output_start_ns != 0) {
    LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(statistics,
                                                                                  output_start_ns));
  }
  LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(statistics, NowNs()));
  if (error != nullptr) {
    LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(statistics, error));
  }
  LogIfError(TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  LogIfError(TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics));
  TRITONSERVER_ErrorDelete(error);
}

// The time between reading the inputs and the last response counts as compute time. The steps' own
// statistics show what they spent on inputs and outputs.
void CApiClientRequest::ReportRequest() {
  const uint64_t end_ns = NowNs();
  const uint64_t compute_start_ns = std::max(start_ns_, inputs_read_ns_);
  const uint64_t compute_end_ns = computed_ns_ == 0 ? end_ns : computed_ns_;
  LogIfError(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request_, succeeded_, start_ns_,
                                                         compute_start_ns, compute_end_ns, end_ns));
  if (!succeeded_) return;  // Triton reports no batch for a failed request either
  LogIfError(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance_, BatchSize(), start_ns_, compute_start_ns, compute_end_ns, end_ns));
}

uint64_t CApiClientRequest::BatchSize() const {
  TRITONBACKEND_Input* input = nullptr;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0;
  const auto& inputs = plan_->graph->inputs;
  if (inputs.empty() || !inputs.front().batching) return 1;
  if (!ToStatus(TRITONBACKEND_RequestInputByIndex(request_, 0, &input)).ok()) return 1;
  if (!ToStatus(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &num_dims, nullptr,
                                              nullptr))
           .ok()) {
    return 1;
  }
  return num_dims > 0 && shape[0] > 0 ? static_cast<uint64_t>(shape[0]) : 1;
}

}  // namespace nereid::ensemble
