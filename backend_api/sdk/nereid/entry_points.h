/// \file
/// Implements the exported TRITONBACKEND_* functions on the classes of model.h: converts handles to
/// objects and exceptions to errors. A backend uses NEREID_BACKEND alone; the host calls the
/// functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "nereid/batch.h"
#include "nereid/error.h"
#include "nereid/model.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

/// Attributes that a backend declares to the host; see NEREID_BACKEND.
class BackendAttributes {
 public:
  explicit BackendAttributes(TRITONBACKEND_BackendAttribute* handle) : handle_(handle) {}

  /// If enabled, the host may initialise several instances of one model at once, on several
  /// threads.
  Status SetParallelInstanceLoading(bool enabled) {
    return ToStatus(
        TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(handle_, enabled));
  }
  /// The instance group of a model whose configuration has none. The host takes the first of the
  /// added groups that the machine can serve.
  Status AddPreferredInstanceGroup(TRITONSERVER_InstanceGroupKind kind, uint64_t count,
                                   std::span<const uint64_t> device_ids = {}) {
    return ToStatus(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        handle_, kind, count, device_ids.data(), device_ids.size()));
  }

 private:
  TRITONBACKEND_BackendAttribute* handle_;
};

/// A backend requires the host's API to have its own major version and at least its own minor
/// version.
inline Status CheckApiVersion() {
  uint32_t major = 0, minor = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ApiVersion(&major, &minor)));
  if (major == TRITONBACKEND_API_VERSION_MAJOR && minor >= TRITONBACKEND_API_VERSION_MINOR) {
    return {};
  }
  return UnsupportedError("expected backend API ", TRITONBACKEND_API_VERSION_MAJOR, ".",
                          TRITONBACKEND_API_VERSION_MINOR, " or a later minor, got ", major, ".",
                          minor);
}

template <typename ModelT, typename InstanceT = DefaultInstance<ModelT>>
struct EntryPoints {
  static TRITONSERVER_Error* Initialize(TRITONBACKEND_Backend*) {
    return GuardCBoundary("backend", [] { return CheckApiVersion(); });
  }

  static TRITONSERVER_Error* Describe(TRITONBACKEND_BackendAttribute* handle) {
    return GuardCBoundary("backend", [&]() -> Status {
      BackendAttributes attributes(handle);
      if constexpr (requires { ModelT::DescribeBackend(attributes); }) {
        return ModelT::DescribeBackend(attributes);
      }
      return {};
    });
  }

  static TRITONSERVER_Error* InitializeModel(TRITONBACKEND_Model* handle) {
    return GuardCBoundary("model", [&]() -> Status {
      auto model = std::make_unique<ModelT>();
      NEREID_ASSIGN_OR_RETURN(ModelContext context, ModelContext::Of(handle));
      model->Bind(std::move(context));
      NEREID_RETURN_IF_ERROR(model->Load());
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelSetState(handle, model.get())));
      model.release();
      return {};
    });
  }

  /// The host also calls it, without a state, after InitializeModel failed.
  static TRITONSERVER_Error* FinalizeModel(TRITONBACKEND_Model* handle) {
    return GuardCBoundary("model", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(ModelT * state, ModelOf(handle));
      const std::unique_ptr<ModelT> model(state);
      if (model != nullptr) model->Finalize();
      return ToStatus(TRITONBACKEND_ModelSetState(handle, nullptr));
    });
  }

  static TRITONSERVER_Error* InitializeInstance(TRITONBACKEND_ModelInstance* handle) {
    return GuardCBoundary("instance", [&]() -> Status {
      TRITONBACKEND_Model* model_handle = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceModel(handle, &model_handle)));
      NEREID_ASSIGN_OR_RETURN(ModelT * model, ModelOf(model_handle));
      auto instance = std::make_unique<InstanceT>();
      NEREID_ASSIGN_OR_RETURN(InstanceContext context,
                              InstanceContext::Of(handle, model->context()));
      instance->Bind(std::move(context), *model);
      NEREID_RETURN_IF_ERROR(instance->Initialize());
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceSetState(handle, instance.get())));
      instance.release();
      return {};
    });
  }

  /// The host also calls it, without a state, after InitializeInstance failed.
  static TRITONSERVER_Error* FinalizeInstance(TRITONBACKEND_ModelInstance* handle) {
    return GuardCBoundary("instance", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(InstanceT * state, InstanceOf(handle));
      const std::unique_ptr<InstanceT> instance(state);
      if (instance != nullptr) instance->Finalize();
      return ToStatus(TRITONBACKEND_ModelInstanceSetState(handle, nullptr));
    });
  }

  /// Takes over every request and always returns success to the host: failed requests are answered
  /// here one by one, with their statistics.
  static TRITONSERVER_Error* Execute(TRITONBACKEND_ModelInstance* handle,
                                     TRITONBACKEND_Request** requests, uint32_t request_count) {
    return GuardCBoundary("execute", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(InstanceT * instance, InstanceOf(handle));
      Batch batch(std::span(requests, request_count), instance->context());
      const Status status =
          CatchAll(instance->name().c_str(), [&]() -> Status { return instance->Execute(batch); });
      batch.Complete(status);
      return {};
    });
  }

  static TRITONSERVER_Error* Ready(TRITONBACKEND_ModelInstance* handle) {
    return GuardCBoundary("instance", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(InstanceT * instance, InstanceOf(handle));
      return instance->Ready();
    });
  }

  /// The instance behind a handle, for entry points that a backend defines itself.
  static Result<InstanceT*> InstanceOf(TRITONBACKEND_ModelInstance* handle) {
    void* state = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceState(handle, &state)));
    return static_cast<InstanceT*>(state);
  }

 private:
  static Result<ModelT*> ModelOf(TRITONBACKEND_Model* handle) {
    void* state = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelState(handle, &state)));
    return static_cast<ModelT*>(state);
  }
};

}  // namespace nereid

/// Defines the functions that the host looks up in the shared library. Write
/// NEREID_BACKEND(MyModel) or NEREID_BACKEND(MyModel, MyInstance) once, at namespace scope of one
/// source file. MyModel derives from Model, MyInstance from ModelInstance<MyModel>; both are
/// default-constructible. If MyModel has a static function `Status
/// DescribeBackend(BackendAttributes&)`, the host's query for backend attributes calls it.
#define NEREID_BACKEND(...)                                                                    \
  extern "C" {                                                                                 \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* b) { \
    return ::nereid::EntryPoints<__VA_ARGS__>::Initialize(b);                                  \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(                   \
      TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute* attributes) {                    \
    return ::nereid::EntryPoints<__VA_ARGS__>::Describe(attributes);                           \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(                       \
      TRITONBACKEND_Model* model) {                                                            \
    return ::nereid::EntryPoints<__VA_ARGS__>::InitializeModel(model);                         \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(                         \
      TRITONBACKEND_Model* model) {                                                            \
    return ::nereid::EntryPoints<__VA_ARGS__>::FinalizeModel(model);                           \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(               \
      TRITONBACKEND_ModelInstance* instance) {                                                 \
    return ::nereid::EntryPoints<__VA_ARGS__>::InitializeInstance(instance);                   \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(                 \
      TRITONBACKEND_ModelInstance* instance) {                                                 \
    return ::nereid::EntryPoints<__VA_ARGS__>::FinalizeInstance(instance);                     \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(                  \
      TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,                 \
      const uint32_t request_count) {                                                          \
    return ::nereid::EntryPoints<__VA_ARGS__>::Execute(instance, requests, request_count);     \
  }                                                                                            \
  TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(                    \
      TRITONBACKEND_ModelInstance* instance) {                                                 \
    return ::nereid::EntryPoints<__VA_ARGS__>::Ready(instance);                                \
  }                                                                                            \
  }                                                                                            \
  static_assert(true, "to be followed by a semicolon")
