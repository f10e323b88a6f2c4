/// \file
/// Answers one request: owns the C request, sends its responses, reports the statistics, and
/// releases the request after the last response. It may be moved to any thread and used long after
/// Execute returned. A sender that is destroyed unfinished sends an error, so that the client does
/// not wait forever. [any thread; one object, one thread at a time]
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/ext/response_room.h"
#include "nereid/handles.h"
#include "nereid/log.h"
#include "nereid/model_context.h"
#include "nereid/response.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

/// The clock of all statistics: steady, in nanoseconds.
inline uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

/// Timestamps of one call of Execute: its start, the end of reading inputs, the end of computing.
/// All requests of the call share the object. When the last of them is answered, the destructor
/// reports the batch to the host's statistics. [any thread]
class ExecutionStatistics {
 public:
  /// `instance` outlives the requests.
  ExecutionStatistics(const InstanceContext& instance, uint64_t batch_size)
      : instance_(instance), batch_size_(batch_size), start_ns_(NowNs()) {}
  ExecutionStatistics(const ExecutionStatistics&) = delete;
  ExecutionStatistics& operator=(const ExecutionStatistics&) = delete;

  /// If the host refuses the statistics, they are dropped; no request fails because of it.
  ~ExecutionStatistics() {
    if (start_ns() == 0) return;
    const uint64_t end_ns = NowNs();
    (void)ToStatus(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance_.handle(), batch_size_, start_ns_, compute_start_ns(end_ns),
        compute_end_ns(end_ns), end_ns));
  }

  /// The execution of a request that a worker received ahead of time starts now.
  void MarkStarted() { start_ns_ = NowNs(); }
  /// The request was answered without being executed: the batch is not reported.
  void MarkNotExecuted() { start_ns_ = 0; }
  void MarkInputsRead() { inputs_read_ns_ = NowNs(); }
  void MarkComputed() { computed_ns_ = NowNs(); }

  /// 0 if the batch was never executed.
  uint64_t start_ns() const { return start_ns_.load(); }
  /// Both return values that satisfy start <= compute start <= compute end <= `end_ns`, even if
  /// marks are missing or set concurrently for another request.
  uint64_t compute_start_ns(uint64_t end_ns) const {
    return std::min(std::max(start_ns(), inputs_read_ns_.load()), end_ns);
  }
  uint64_t compute_end_ns(uint64_t end_ns) const {
    const uint64_t computed_ns = computed_ns_.load();
    return computed_ns == 0 ? end_ns : std::clamp(computed_ns, compute_start_ns(end_ns), end_ns);
  }

 private:
  const InstanceContext& instance_;
  const uint64_t batch_size_;
  std::atomic<uint64_t> start_ns_;
  std::atomic<uint64_t> inputs_read_ns_{0};
  std::atomic<uint64_t> computed_ns_{0};  ///< 0: not marked; computing then ends with the response
};

class ResponseSender {
 public:
  /// Takes the request over from the host. `instance` outlives the request.
  ResponseSender(TRITONBACKEND_Request* request, const InstanceContext& instance,
                 std::shared_ptr<ExecutionStatistics> execution)
      : request_(request),
        instance_(&instance),
        is_finished_(false),
        last_response_ns_(execution->start_ns()),
        execution_(std::move(execution)) {}
  ResponseSender(ResponseSender&& other) noexcept { *this = std::move(other); }
  ResponseSender& operator=(ResponseSender&& other) noexcept {
    if (this == &other) return *this;
    FailIfOpen();
    request_ = std::exchange(other.request_, nullptr);
    factory_ = std::move(other.factory_);
    instance_ = other.instance_;
    requested_ = std::move(other.requested_);
    is_requested_known_ = other.is_requested_known_;
    is_finished_ = std::exchange(other.is_finished_, true);
    last_response_ns_ = other.last_response_ns_;
    execution_ = std::move(other.execution_);
    return *this;
  }
  ~ResponseSender() { FailIfOpen(); }

  /// False after the final response and for a moved-from object.
  bool is_open() const { return !is_finished_; }
  /// Null after ReleaseRequest.
  TRITONBACKEND_Request* request_handle() const { return request_; }
  const InstanceContext& instance() const { return *instance_; }
  bool is_decoupled() const { return instance_->model().config().is_decoupled(); }

  /// The execution of a request that a worker received ahead of time starts now.
  void MarkStarted() {
    if (execution_ == nullptr) return;
    execution_->MarkStarted();
    last_response_ns_ = execution_->start_ns();
  }
  /// Timestamps for the statistics of a request that left its batch: the inputs are read; the
  /// result is computed and only has to be written. The last call of MarkComputed counts.
  void MarkInputsRead() {
    if (execution_ != nullptr) execution_->MarkInputsRead();
  }
  void MarkComputed() {
    if (execution_ != nullptr) execution_->MarkComputed();
  }

  /// The request is answered, with an error, without having been executed.
  void MarkNotExecuted() {
    if (execution_ != nullptr) execution_->MarkNotExecuted();
  }

  /// Whether the client cancelled the request; the usual answer is Fail(CancelledError(...)). The
  /// call is cheap enough for every step of a long computation.
  bool IsCancelled() const {
    bool is_cancelled = false;
    if (factory_ != nullptr) {
      (void)ToStatus(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &is_cancelled));
    } else if (request_ != nullptr) {
      (void)ToStatus(TRITONBACKEND_RequestIsCancelled(request_, &is_cancelled));
    }
    return is_cancelled;
  }

  Result<Response> NewResponse() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    NEREID_RETURN_IF_ERROR(ReadRequestedOutputs());
    if (is_decoupled()) NEREID_RETURN_IF_ERROR(MakeFactory());
    Result<ResponseHandle> handle =
        factory_ != nullptr ? NewResponseHandle(factory_.get()) : NewResponseHandle(request_);
    if (!handle.ok()) return std::move(handle).status();
    return Response(std::move(*handle), requested_);
  }

  /// From now on Send never waits. A thread that sends the responses of several requests calls
  /// this, asks HasRoom before each response, and keeps the response while there is no room.
  Status DisableWaiting() {
    const auto set_sender_waits = FindResponseFactorySetSenderWaits();
    if (set_sender_waits == nullptr) return {};
    NEREID_RETURN_IF_ERROR(MakeFactory());
    return ToStatus(set_sender_waits(factory_.get(), false));
  }
  /// Whether the reader can take another response; true if the request was cancelled. False means
  /// that Send would wait, or after DisableWaiting that the response would use memory without a
  /// limit. Requires a decoupled model, else the result is true.
  bool HasRoom() const {
    bool has_room = true;
    const auto ask = FindResponseFactoryHasRoom();
    if (ask != nullptr && factory_ != nullptr) (void)ToStatus(ask(factory_.get(), &has_room));
    return has_room;
  }

  /// Sends one of several responses, or with `is_final` the last one, which finishes the request.
  /// Returns after a response that is not final only when the reader can take another one, see
  /// nereid/ext/response_room.h.
  /// UNSUPPORTED for a response that is not final if the model is not decoupled.
  Status Send(Response response, bool is_final = false) {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    if (is_final) return FinishWith(std::move(response), Status::Ok());
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    ReportResponse(Status::Ok(), /*is_empty=*/false);
    return std::move(response).SendRaw(/*flags=*/0, Status::Ok());
  }
  /// Sends an error within a stream; the request stays open.
  Status SendError(const Status& error) {
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    NEREID_ASSIGN_OR_RETURN(Response response, NewResponse());
    ReportResponse(error, /*is_empty=*/false);
    return std::move(response).SendRaw(/*flags=*/0, error);
  }
  /// Ends a decoupled request without a further response.
  Status Finish() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    NEREID_RETURN_IF_ERROR(MakeFactory());
    ReportResponse(Status::Ok(), /*is_empty=*/true);
    ReportRequest(/*is_success=*/true);
    const Status sent = ToStatus(TRITONBACKEND_ResponseFactorySendFlags(
        factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    Close();
    return sent;
  }
  /// Ends the request with an error. The returned status says only whether the error was sent.
  Status Fail(const Status& error) {
    Result<Response> response = NewResponse();
    if (!response.ok() && is_open()) {
      ReportRequest(/*is_success=*/false);
      Close();
    }
    if (!response.ok()) return std::move(response).status();
    return FinishWith(std::move(*response), error);
  }

  /// Returns the request to its scheduler, which runs it again: the next step of a model with
  /// `iterative_sequence`. INVALID_ARG for any other model; the request then stays open.
  Status Reschedule() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    if (request_ == nullptr) return InternalError("the request was released before");
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_RequestRelease(request_, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)));
    request_ = nullptr;
    is_finished_ = true;
    execution_.reset();
    factory_.reset();
    return {};
  }

  /// Releases the request, and with it the input tensors, before the last response. Useful if
  /// inputs are large and responses take long. The request's statistics are reported now.
  Status ReleaseRequest() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    if (request_ == nullptr) return {};
    NEREID_RETURN_IF_ERROR(ReadRequestedOutputs());
    NEREID_RETURN_IF_ERROR(MakeFactory());
    ReportRequest(/*is_success=*/true);
    execution_.reset();
    return Release();
  }

 private:
  Status CheckOpen() const {
    if (is_open()) return {};
    return InternalError("the request was finished before; nothing may follow its final response");
  }
  Status CheckDecoupled() const {
    if (is_decoupled()) return {};
    return UnsupportedError("model '", instance_->model().name(),
                            "': expected exactly 1 response, because the model is not decoupled");
  }

  Status MakeFactory() {
    if (factory_ != nullptr) return {};
    NEREID_ASSIGN_OR_RETURN(factory_, NewResponseFactoryHandle(request_));
    return {};
  }

  /// Reads the list once, because it is freed with the request. A list of all outputs is stored as
  /// null.
  Status ReadRequestedOutputs() {
    if (is_requested_known_ || request_ == nullptr) return {};
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputCount(request_, &count)));
    if (count < instance_->model().config().outputs().size()) {
      auto names = std::make_shared<std::vector<std::string>>();
      for (uint32_t i = 0; i < count; ++i) {
        const char* name = nullptr;
        NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputName(request_, i, &name)));
        names->push_back(name);
      }
      requested_ = std::move(names);
    }
    is_requested_known_ = true;
    return {};
  }

  /// Reports the statistics before the response, so that a client that queries them next sees them.
  Status FinishWith(Response response, const Status& error) {
    if (is_decoupled()) ReportResponse(error, /*is_empty=*/false);
    ReportRequest(error.ok());
    execution_.reset();
    const Status sent = std::move(response).SendRaw(TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
    Close();
    return sent;
  }

  void Close() {
    is_finished_ = true;
    execution_.reset();
    if (request_ != nullptr) {
      if (const Status released = Release(); !released.ok()) {
        LogError(StrCat("request could not be released: ", released.message()));
      }
    }
    factory_.reset();
  }
  Status Release() {
    return ToStatus(TRITONBACKEND_RequestRelease(std::exchange(request_, nullptr),
                                                 TRITONSERVER_REQUEST_RELEASE_ALL));
  }

  void FailIfOpen() {
    if (!is_open()) return;
    const Status sent = CatchAll("request", [this] {
      return Fail(InternalError("model '", instance_->model().name(),
                                "': the backend dropped the request without an answer"));
    });
    if (!sent.ok()) LogError(StrCat("request could not be answered: ", sent.message()));
  }

  /// If the host refuses the statistics, they are dropped; no request fails because of it.
  void ReportRequest(bool is_success) {
    if (request_ == nullptr || execution_ == nullptr) return;
    const uint64_t end_ns = NowNs();
    (void)ToStatus(TRITONBACKEND_ModelInstanceReportStatistics(
        instance_->handle(), request_, is_success, execution_->start_ns(),
        execution_->compute_start_ns(end_ns), execution_->compute_end_ns(end_ns), end_ns));
  }
  void ReportResponse(const Status& error, bool is_empty) {
    TRITONBACKEND_ModelInstanceResponseStatistics* made = nullptr;
    if (factory_ == nullptr ||
        !ToStatus(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&made)).ok()) {
      return;
    }
    const ResponseStatisticsHandle statistics(made);
    const ErrorHandle error_handle(ToError(error));
    const uint64_t end_ns = NowNs();
    (void)ToStatus(
        TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(made, instance_->handle()));
    (void)ToStatus(
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(made, factory_.get()));
    (void)ToStatus(
        TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(made, last_response_ns_));
    if (!is_empty) {
      (void)ToStatus(
          TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(made, end_ns));
    }
    (void)ToStatus(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(made, end_ns));
    (void)ToStatus(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(made, error_handle.get()));
    (void)ToStatus(TRITONBACKEND_ModelInstanceReportResponseStatistics(made));
    last_response_ns_ = end_ns;
  }

  TRITONBACKEND_Request* request_ = nullptr;
  ResponseFactoryHandle factory_;
  const InstanceContext* instance_ = nullptr;
  RequestedOutputNames requested_;
  bool is_requested_known_ = false;
  bool is_finished_ = true;
  uint64_t last_response_ns_ = 0;
  std::shared_ptr<ExecutionStatistics> execution_;
};

}  // namespace nereid
