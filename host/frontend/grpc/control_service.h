// inference.GRPCInferenceService. Inference calls go to unary_infer and stream_infer as raw bytes;
// all other calls are answered here.
#pragma once

#include <memory>
#include <string>

#include "host/frontend/grpc/answer_call.h"
#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/grpc/restriction.h"
#include "host/frontend/grpc/work_queue.h"

namespace nereid {

// [loop threads, and the control queue's for what may block]
class ControlService {
 public:
  // Both outlive the service. `control_queue` runs calls that may take long.
  ControlService(const InferContext& context, WorkQueue& control_queue)
      : context_(context), server_(context.server()), control_queue_(control_queue) {}

  // Adds the calls to `table`; the service outlives their last use.
  void AddTo(MethodTable& table) const;

 private:
  void AddInference(MethodTable& table) const;
  void AddDescriptions(MethodTable& table) const;
  void AddRepository(MethodTable& table) const;
  void AddSettings(MethodTable& table) const;
  void AddSharedMemory(MethodTable& table) const;  // shared_memory_rpc.cc

  static std::string PathOf(std::string_view name) {
    return StrCat("/inference.GRPCInferenceService/", name);
  }
  // False when the caller may not: then the call is ended.
  bool Admit(Call& call, ApiGroup group) const {
    const RestrictedApis& restricted = context_.options().restricted;
    if (IsAllowed(restricted, group, call)) return true;
    call.Finish(Restricted(restricted, group));
    return false;
  }

  // A call that `work(request, response)` answers with its Status, without blocking.
  template <typename Request, typename Response, typename Work>
  void AddNow(MethodTable& table, std::string_view name, ApiGroup group, Work work) const {
    const auto answer = [this, group, work](Call& call, const Slice& bytes) -> CallHandler* {
      if (!Admit(call, group)) return nullptr;
      Request request;
      Response response;
      Status status = ParseMessage(bytes, request);
      if (status.ok()) status = work(request, response);
      AnswerNow(call, status, response);
      return nullptr;
    };
    table.Add(PathOf(name), {.unary = answer, .stream = nullptr});
  }

  // The same of work that may block.
  template <typename Request, typename Response, typename Work>
  void AddLate(MethodTable& table, std::string_view name, ApiGroup group, Work work) const {
    const auto answer = [this, group, work](Call& call, const Slice& bytes) -> CallHandler* {
      if (!Admit(call, group)) return nullptr;
      auto request = std::make_shared<Request>();
      if (const Status status = ParseMessage(bytes, *request); !status.ok()) {
        call.Finish(ToCallStatus(status));
        return nullptr;
      }
      return AnswerLater<Response>(call, control_queue_, [work, request](Response& response) {
        return work(*request, response);
      });
    };
    table.Add(PathOf(name), {.unary = answer, .stream = nullptr});
  }

  const InferContext& context_;
  const Server& server_;
  WorkQueue& control_queue_;
};

}  // namespace nereid
