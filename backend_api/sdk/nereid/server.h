// Call models through the C API: what frontends, the ensemble backend and embedders use. Everything
// here is a thin RAII shell: no copy of tensor bytes, no allocation beyond what the C API makes.
//
//   NEREID_ASSIGN_OR_RETURN(Server server, Server::Start(options));     // or
//   Server::Borrow(handle) NEREID_ASSIGN_OR_RETURN(InferRequest request,
//   server.NewRequest("model"));
//   ... request.AddInput(...), request.AppendInputData(...), request.SetCallbacks(...)
//   NEREID_RETURN_IF_ERROR(server.InferAsync(std::move(request)));      // then InferObserver hears
//
// [any thread] All const functions may be called concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"
#include "nereid/message.h"
#include "nereid/parameter.h"
#include "nereid/response_allocator.h"
#include "nereid/server_options.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

class Server {
 public:
  // Returns once the start-up models are loaded or failed. A server whose model failed is still
  // started, unless exit-on-error is set.
  static Result<Server> Start(const ServerOptions& options) {
    TRITONSERVER_Server* server = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerNew(&server, options.get())));
    return Server(server, /*is_owned=*/true);
  }
  // A server that someone else owns and that outlives this object: what TRITONBACKEND_ModelServer
  // gives a backend.
  static Server Borrow(TRITONSERVER_Server* server) { return Server(server, /*is_owned=*/false); }

  TRITONSERVER_Server* get() const { return server_.get(); }

  // Stops intake, waits for requests in flight up to the exit timeout, unloads every model.
  Status Stop() const { return ToStatus(TRITONSERVER_ServerStop(get())); }
  Status SetExitTimeout(unsigned timeout_s) const {
    return ToStatus(TRITONSERVER_ServerSetExitTimeout(get(), timeout_s));
  }

  // ---- health
  Result<bool> IsLive() const {
    bool live = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerIsLive(get(), &live)));
    return live;
  }
  Result<bool> IsReady() const {
    bool ready = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerIsReady(get(), &ready)));
    return ready;
  }
  Result<bool> IsModelReady(const char* name, int64_t version = -1) const {
    bool ready = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerModelIsReady(get(), name, version, &ready)));
    return ready;
  }

  // ---- descriptions, as JSON
  Result<Message> Metadata() const {
    return Ask([&](auto** out) { return TRITONSERVER_ServerMetadata(get(), out); });
  }
  Result<Message> ModelMetadata(const char* name, int64_t version = -1) const {
    return Ask(
        [&](auto** out) { return TRITONSERVER_ServerModelMetadata(get(), name, version, out); });
  }
  Result<Message> ModelConfig(const char* name, int64_t version = -1) const {
    return Ask([&](auto** out) {
      return TRITONSERVER_ServerModelConfig(get(), name, version, /*config_version=*/1, out);
    });
  }
  // An empty name asks for every model.
  Result<Message> ModelStatistics(const char* name, int64_t version = -1) const {
    return Ask(
        [&](auto** out) { return TRITONSERVER_ServerModelStatistics(get(), name, version, out); });
  }
  Result<Message> ModelIndex(bool ready_only) const {
    const uint32_t flags = ready_only ? TRITONSERVER_INDEX_FLAG_READY : 0;
    return Ask([&](auto** out) { return TRITONSERVER_ServerModelIndex(get(), flags, out); });
  }
  Result<MetricsPage> Metrics() const {
    TRITONSERVER_Metrics* metrics = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerMetrics(get(), &metrics)));
    return MetricsPage(metrics);
  }

  // ---- properties of a model
  // True when one request may have any number of responses.
  Result<bool> IsDecoupled(const char* name, int64_t version = -1) const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONSERVER_ServerModelTransactionProperties(get(), name, version, &flags, nullptr)));
    return (flags & TRITONSERVER_TXN_DECOUPLED) != 0;
  }
  // True when the first dimension of its tensors is the batch.
  Result<bool> IsBatched(const char* name, int64_t version = -1) const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_ServerModelBatchProperties(get(), name, version, &flags, nullptr)));
    return (flags & TRITONSERVER_BATCH_FIRST_DIM) != 0;
  }

  // ---- repository
  // Block until the model is loaded (or failed) or its unload has begun.
  Status LoadModel(const char* name, std::span<const Parameter> parameters = {}) const {
    if (parameters.empty()) return ToStatus(TRITONSERVER_ServerLoadModel(get(), name));
    std::vector<const TRITONSERVER_Parameter*> handles;
    for (const Parameter& parameter : parameters) handles.push_back(parameter.get());
    return ToStatus(
        TRITONSERVER_ServerLoadModelWithParameters(get(), name, handles.data(), handles.size()));
  }
  Status UnloadModel(const char* name, bool unload_dependents = false) const {
    return ToStatus(unload_dependents ? TRITONSERVER_ServerUnloadModelAndDependents(get(), name)
                                      : TRITONSERVER_ServerUnloadModel(get(), name));
  }
  Status PollModelRepository() const {
    return ToStatus(TRITONSERVER_ServerPollModelRepository(get()));
  }
  // `names`: parameters <folder> = <model's name>, for models that go by another name.
  Status RegisterModelRepository(const char* path, std::span<const Parameter> names = {}) const {
    std::vector<const TRITONSERVER_Parameter*> handles;
    for (const Parameter& name : names) handles.push_back(name.get());
    return ToStatus(TRITONSERVER_ServerRegisterModelRepository(
        get(), path, handles.empty() ? nullptr : handles.data(), handles.size()));
  }
  Status UnregisterModelRepository(const char* path) const {
    return ToStatus(TRITONSERVER_ServerUnregisterModelRepository(get(), path));
  }

  // What the destructor does otherwise, with its outcome. An error: code of a model or a backend
  // runs on, which static destructors must not run under.
  Status End() && { return ToStatus(TRITONSERVER_ServerDelete(server_.release())); }

  // ---- inference
  // Fails when the model is unknown or not ready.
  Result<InferRequest> NewRequest(const char* model_name, int64_t model_version = -1) const {
    return InferRequest::Create(get(), model_name, model_version);
  }
  // On Ok the request is in flight and comes back by InferObserver::OnRelease; otherwise it is
  // still the caller's, and no callback comes. `trace` may be null; it is the server's from the
  // call on, until its release callback, also where that fails.
  Status InferAsync(InferRequest&& request, TRITONSERVER_InferenceTrace* trace = nullptr) const {
    // Released first: on success the request may be gone before the call returns.
    TRITONSERVER_InferenceRequest* handle = request.release();
    Status status = ToStatus(TRITONSERVER_ServerInferAsync(get(), handle, trace));
    if (!status.ok()) request = InferRequest(handle);
    return status;
  }

 private:
  Server(TRITONSERVER_Server* server, bool is_owned) : server_(server, Deleter{is_owned}) {}

  template <typename Call>
  static Result<Message> Ask(const Call& call) {
    TRITONSERVER_Message* message = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(call(&message)));
    return Message(message);
  }

  struct Deleter {
    bool is_owned;
    void operator()(TRITONSERVER_Server* server) const {
      if (is_owned) (void)ToStatus(TRITONSERVER_ServerDelete(server));
    }
  };
  std::unique_ptr<TRITONSERVER_Server, Deleter> server_;
};

}  // namespace sdk
}  // namespace nereid
