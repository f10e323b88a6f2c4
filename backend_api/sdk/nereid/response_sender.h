// The duty to answer one request: it holds the C request, sends its responses, reports the
// statistics and releases the request after the last one. It may be moved to any thread and used
// there long after Execute returned. One that dies unfinished answers with an error, so that no
// client waits for ever. [any thread; one object, one thread at a time]
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/execution.h"
#include "nereid/handles.h"
#include "nereid/log.h"
#include "nereid/response.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

class ResponseSender {
 public:
  // Takes the request over from the host. `instance` outlives the request.
  ResponseSender(TRITONBACKEND_Request* request, const InstanceContext& instance,
                 std::shared_ptr<Execution> execution)
      : request_(request),
        instance_(&instance),
        is_finished_(false),
        last_response_ns_(execution->start_ns()),
        execution_(std::move(execution)) {}
  ResponseSender(ResponseSender&& other) noexcept { *this = std::move(other); }
  ResponseSender& operator=(ResponseSender&& other) noexcept {
    if (this == &other) return *this;
    Abandon();
    request_ = std::exchange(other.request_, nullptr);
    factory_ = std::move(other.factory_);
    instance_ = other.instance_;
    wanted_ = std::move(other.wanted_);
    is_wanted_known_ = other.is_wanted_known_;
    is_finished_ = std::exchange(other.is_finished_, true);
    last_response_ns_ = other.last_response_ns_;
    execution_ = std::move(other.execution_);
    return *this;
  }
  ~ResponseSender() { Abandon(); }

  // False once the final response went out, and for one that was moved from.
  bool is_open() const { return !is_finished_; }
  // Null after ReleaseRequest.
  TRITONBACKEND_Request* request_handle() const { return request_; }
  const InstanceContext& instance() const { return *instance_; }
  bool is_decoupled() const { return instance_->model().config().is_decoupled(); }

  // The request was taken in advance: its execution begins now.
  void MarkBegun() {
    if (execution_ == nullptr) return;
    execution_->MarkBegun();
    last_response_ns_ = execution_->start_ns();
  }
  // For statistics, of a request that left its batch: its inputs are read; a response is known and
  // only to be written, of which the last mark counts.
  void MarkInputsRead() {
    if (execution_ != nullptr) execution_->MarkInputsRead();
  }
  void MarkComputed() {
    if (execution_ != nullptr) execution_->MarkComputed();
  }

  // The request was taken in advance and is answered, with an error, without an execution.
  void MarkNeverRan() {
    if (execution_ != nullptr) execution_->MarkNeverRan();
  }

  // Whether the client gave up; the answer is then best Fail(CancelledError(...)). Cheap: ask in
  // every step of a long computation.
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
    NEREID_RETURN_IF_ERROR(ReadWantedOutputs());
    if (is_decoupled()) NEREID_RETURN_IF_ERROR(MakeFactory());
    Result<ResponseHandle> handle =
        factory_ != nullptr ? NewResponseHandle(factory_.get()) : NewResponseHandle(request_);
    if (!handle.ok()) return std::move(handle).status();
    return Response(std::move(*handle), wanted_);
  }

  // One response of several, or with `is_final` the last: then the request is finished.
  // UNSUPPORTED for one that is not final when the model is not decoupled.
  Status Send(Response response, bool is_final = false) {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    if (is_final) return FinishWith(std::move(response), Status::Ok());
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    ReportResponse(Status::Ok(), /*is_empty=*/false);
    return std::move(response).SendRaw(/*flags=*/0, Status::Ok());
  }
  // An error in the middle of a stream; the request goes on.
  Status SendError(const Status& error) {
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    NEREID_ASSIGN_OR_RETURN(Response response, NewResponse());
    ReportResponse(error, /*is_empty=*/false);
    return std::move(response).SendRaw(/*flags=*/0, error);
  }
  // Ends a decoupled request without a further response.
  Status Finish() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    NEREID_RETURN_IF_ERROR(CheckDecoupled());
    NEREID_RETURN_IF_ERROR(MakeFactory());
    ReportResponse(Status::Ok(), /*is_empty=*/true);
    ReportRequest(/*is_success=*/true);
    const Status sent = ToStatus(TRITONBACKEND_ResponseFactorySendFlags(
        factory_.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
    Retire();
    return sent;
  }
  // Ends the request with an error. The returned status only says whether that could be sent.
  Status Fail(const Status& error) {
    Result<Response> response = NewResponse();
    if (!response.ok() && is_open()) {
      ReportRequest(/*is_success=*/false);
      Retire();
    }
    if (!response.ok()) return std::move(response).status();
    return FinishWith(std::move(*response), error);
  }

  // Hands the request back to its scheduler, which will run it again: the next step of a model with
  // `iterative_sequence`. INVALID_ARG for any other model; the request is then still open.
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

  // Gives the request, and with it the input tensors, back to the client before the last response:
  // worth it when inputs are large and answers take long. Its statistics are reported now.
  Status ReleaseRequest() {
    NEREID_RETURN_IF_ERROR(CheckOpen());
    if (request_ == nullptr) return {};
    NEREID_RETURN_IF_ERROR(ReadWantedOutputs());
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

  // The list is read once: it dies with the request. A list of all outputs is as good as none.
  Status ReadWantedOutputs() {
    if (is_wanted_known_ || request_ == nullptr) return {};
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputCount(request_, &count)));
    if (count < instance_->model().config().outputs().size()) {
      auto names = std::make_shared<std::vector<std::string>>();
      for (uint32_t i = 0; i < count; ++i) {
        const char* name = nullptr;
        NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputName(request_, i, &name)));
        names->push_back(name);
      }
      wanted_ = std::move(names);
    }
    is_wanted_known_ = true;
    return {};
  }

  // Statistics go before the response, so that a client that reads them afterwards finds them.
  Status FinishWith(Response response, const Status& error) {
    if (is_decoupled()) ReportResponse(error, /*is_empty=*/false);
    ReportRequest(error.ok());
    execution_.reset();
    const Status sent = std::move(response).SendRaw(TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
    Retire();
    return sent;
  }

  void Retire() {
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

  void Abandon() {
    if (!is_open()) return;
    const Status sent = CatchAll("request", [this] {
      return Fail(InternalError("model '", instance_->model().name(),
                                "': the backend let go of the request unanswered"));
    });
    if (!sent.ok()) LogError(StrCat("request could not be answered: ", sent.message()));
  }

  // Statistics that the host refuses are lost: no request fails for them.
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
  WantedOutputs wanted_;
  bool is_wanted_known_ = false;
  bool is_finished_ = true;
  uint64_t last_response_ns_ = 0;
  std::shared_ptr<Execution> execution_;
};

}  // namespace sdk
}  // namespace nereid
