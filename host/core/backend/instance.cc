#include "host/core/backend/instance.h"

#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/memory/gpus.h"
#include "host/core/observe/log.h"

namespace nereid::core {
Instance::Instance(InstanceSpec spec, Backend* backend, TRITONBACKEND_Model* model,
                   StatisticsShard* statistics)
    : spec_(std::move(spec)),
      backend_(backend),
      model_(model),
      statistics_(statistics),
      keeps_inputs_on_host_(spec_.kind == TRITONSERVER_INSTANCEGROUPKIND_CPU &&
                            !GpuDevices().empty()),
      host_policy_(spec_.host_policy_json) {}

Status Instance::Initialize() {
  const auto entry = backend_->entry_points().instance_initialize;
  const ScopedHostBinding bound(spec_.binding);
  NEREID_RETURN_IF_ERROR(bound.status());
  initialize_called_ = true;
  if (entry == nullptr) return Status::Ok();
  return GuardedCall(spec_.name, "ModelInstanceInitialize", [&] { return entry(ToHandle(this)); });
}

Instance::~Instance() {
  const auto entry = backend_->entry_points().instance_finalize;
  if (!initialize_called_ || entry == nullptr) return;
  const Status status =
      GuardedCall(spec_.name, "ModelInstanceFinalize", [&] { return entry(ToHandle(this)); });
  if (!status.ok()) {
    NEREID_LOG_ERROR("failed to finalise instance '", spec_.name, "': ", status.message());
  }
}

void Instance::TrackUntilRelease(std::span<InferRequest*> requests) {
  num_unreleased_.fetch_add(requests.size(), std::memory_order_relaxed);
  for (InferRequest* request : requests) request->AddReleaseHook(this);
}

void Instance::Execute(std::span<InferRequest*> requests) {
  CallExecute(backend_->entry_points().instance_execute, requests);
}

size_t Instance::MaxSerialRequests() {
  const BackendEntryPoints& entry = backend_->entry_points();
  if (entry.instance_most_in_turn == nullptr || entry.instance_execute_in_turn == nullptr) return 1;
  return entry.instance_most_in_turn(ToHandle(this));
}

void Instance::ExecuteSerially(std::span<InferRequest*> requests) {
  CallExecute(backend_->entry_points().instance_execute_in_turn, requests);
}

void Instance::ExecuteInline(InferRequest* request) {
  CallExecute(backend_->entry_points().instance_execute_inline, {&request, 1});
}

void Instance::CallExecute(ExecuteEntry entry, std::span<InferRequest*> requests) {
  if (keeps_inputs_on_host_) {
    for (InferRequest* request : requests) request->UseHostMemory(backend_->memory());
  }
  for (InferRequest* request : requests) request->SetState(InferRequest::State::kExecuting);
  auto** handles = reinterpret_cast<TRITONBACKEND_Request**>(requests.data());
  const Status status = GuardedCall(spec_.name, "ModelInstanceExecute", [&] {
    return entry(ToHandle(this), handles, static_cast<uint32_t>(requests.size()));
  });
  if (status.ok()) return;
  for (InferRequest* request : requests) request->Fail(status, FailureReason::kBackend);
}

PostedInputMemory Instance::GetPostedInput(uint64_t size_bytes) {
  const auto entry = backend_->entry_points().instance_offer_input;
  if (entry == nullptr) return {};
  void* base = nullptr;
  NEREID_ReleaseFn_t release = nullptr;
  void* release_userp = nullptr;
  const Status status = GuardedCall(spec_.name, "ModelInstanceOfferInput", [&] {
    return entry(ToHandle(this), size_bytes, &base, &release, &release_userp);
  });
  if (!status.ok() || base == nullptr || release == nullptr) return {};
  return {base, release, release_userp};
}

Status Instance::CheckReady() {
  const auto entry = backend_->entry_points().instance_ready;
  if (entry == nullptr) return Status::Ok();
  return GuardedCall(spec_.name, "ModelInstanceReady", [&] { return entry(ToHandle(this)); });
}

}  // namespace nereid::core
