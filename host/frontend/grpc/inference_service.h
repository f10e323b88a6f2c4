// The service inference.GRPCInferenceService. ModelInfer and ModelStreamInfer are passed as raw
// bytes to unary_infer and stream_infer; all other calls are parsed and answered here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grpc_service.pb.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/grpc/service_calls.h"
#include "host/frontend/grpc/work_queue.h"

namespace nereid {

// The model that a request message names; empty if it names none.
template <typename Request>
std::string_view ModelOf(const Request& request) {
  if constexpr (requires { request.model_name(); }) {
    return request.model_name();
  } else if constexpr (requires {
                         request.name();
                         request.version();
                       }) {
    return request.name();
  } else {
    return {};
  }
}

// The operation of a call, which is that of its method unless the request message decides.
template <typename Request>
ApiOperation OperationOf(ApiOperation of_method, const Request&) {
  return of_method;
}
ApiOperation OperationOf(ApiOperation, const inference::LogSettingsRequest& request);
ApiOperation OperationOf(ApiOperation, const inference::TraceSettingRequest& request);
ApiOperation OperationOf(ApiOperation, const inference::ModelStatisticsRequest& request);
ApiOperation OperationOf(ApiOperation, const inference::RepositoryModelLoadRequest& request);

// [loop threads; calls that may block run on the control queue's threads]
class InferenceService {
 public:
  // Both references outlive the service. `control_queue` runs calls that may block, such as model
  // loads.
  InferenceService(const InferContext& context, WorkQueue& control_queue)
      : context_(context), server_(context.server()), control_queue_(control_queue) {}

  // Adds the methods to `table`. The service must outlive the last call.
  void AddTo(MethodTable& table) const;

 private:
  void AddInference(MethodTable& table) const;
  void AddStatusAndMetadata(MethodTable& table) const;
  void AddRepository(MethodTable& table) const;
  void AddSettings(MethodTable& table) const;      // settings_rpc.cc
  void AddSharedMemory(MethodTable& table) const;  // defined in shared_memory_rpc.cc

  static std::string PathOf(std::string_view name) {
    return StrCat("/inference.GRPCInferenceService/", name);
  }
  // Checks what the headers say about the client.
  std::function<bool(Call&)> Admission(ApiOperation operation) const {
    return
        [this, operation](Call& call) { return Authenticate(context_.access(), call, operation); };
  }

  // Adds a method that `work(request, response)` answers on the loop thread, without blocking.
  template <typename Request, typename Response, typename Work>
  void AddInlineCall(MethodTable& table, std::string_view name, ApiOperation operation,
                     Work work) const {
    const auto answer = [this, operation, work](Call& call, const Slice& bytes) -> CallHandler* {
      Request request;
      Response response;
      Status status = ParseMessage(bytes, request);
      if (status.ok()) {
        if (!Authorize(context_.access(), call, OperationOf(operation, request), ModelOf(request)))
          return nullptr;
        status = work(request, response);
      }
      RespondNow(call, status, response);
      return nullptr;
    };
    table.Add(PathOf(name), {.admit = Admission(operation), .unary = answer, .stream = nullptr});
  }

  // Adds a method whose `work(request, response)` may block; it runs on the control queue.
  template <typename Request, typename Response, typename Work>
  void AddQueuedCall(MethodTable& table, std::string_view name, ApiOperation operation,
                     Work work) const {
    const auto answer = [this, operation, work](Call& call, const Slice& bytes) -> CallHandler* {
      auto request = std::make_shared<Request>();
      if (const Status status = ParseMessage(bytes, *request); !status.ok()) {
        call.Finish(ToCallStatus(status));
        return nullptr;
      }
      if (!Authorize(context_.access(), call, OperationOf(operation, *request), ModelOf(*request)))
        return nullptr;
      return RespondFromQueue<Response>(call, control_queue_, [work, request](Response& response) {
        return work(*request, response);
      });
    };
    table.Add(PathOf(name), {.admit = Admission(operation), .unary = answer, .stream = nullptr});
  }

  const InferContext& context_;
  const Server& server_;
  WorkQueue& control_queue_;
};

}  // namespace nereid
