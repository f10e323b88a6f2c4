// The server: creates all services in order, implements the calls that concern the server as a
// whole, and destroys the services in reverse order. A process may contain several servers. The C
// functions in capi/server*.cc forward to it. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/repository/status.h"
#include "host/core/server_options.h"
#include "nereid/status.h"

namespace nereid::core {

// The version of Triton whose API the server has. Clients and scripts compare it.
inline constexpr char kServerVersion[] = "2.73.0";
inline constexpr const char* kServerExtensions[] = {"classification",
                                                    "sequence",
                                                    "model_repository",
                                                    "model_repository(unload_dependents)",
                                                    "schedule_policy",
                                                    "model_configuration",
                                                    "system_shared_memory",
                                                    "cuda_shared_memory",
                                                    "binary_tensor_data",
                                                    "parameters",
                                                    "statistics",
                                                    "trace",
                                                    "logging"};

struct CoreServices;    // model/core_services.h: services that all models share
class ModelLifecycle;   // repository/model_lifecycle.h: loads and unloads versions
class ModelLoader;      // repository/model_lifecycle.h
class ModelRepository;  // repository/model_repository.h: model control
class InferRequest;
class Server;

// Who calls the server. Calls of backends are accepted while the server stops, because they belong
// to requests in flight.
enum class Caller { kClient, kBackend };

// The object behind a TRITONSERVER_Server pointer. Backends get another handle than clients, which
// identifies the caller.
struct ServerHandle {
  Server* const server;
  const Caller caller;
};

class Server {
 public:
  // Loads the start-up models before it returns. With exit_on_error, the call fails if a model
  // fails to load or a repository does not exist. Without it, a server with a missing repository is
  // not live and accepts neither models nor requests.
  static Result<std::unique_ptr<Server>> Create(const ServerOptions& options);
  // Calls End if it was not called before; an error is then only logged.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Waits up to the exit timeout for requests in flight and open sequences, then unloads all
  // models. Meanwhile new requests of clients are refused. Accepted are further requests of open
  // sequences, and requests of backends for those in flight (such as the steps of an ensemble).
  Status Stop();
  // Stops the server if necessary and destroys its services. Called once, concurrently with and
  // followed by no other call. On an error, a model or a backend is still running and the objects
  // that it uses are leaked.
  Status End();
  // True if a load is in progress. It uses the server, which must not be destroyed then.
  bool IsLoading() const;
  void SetExitTimeout(unsigned seconds) { exit_timeout_secs_ = seconds; }

  // UNAVAILABLE once the server stops.
  Status CheckNotStopping() const;
  bool IsLive() const;
  // True if the server accepts requests and, with strict readiness, every model that should serve
  // does.
  bool IsReady() const;
  // False also for unknown models and versions.
  bool IsModelReady(const std::string& name, int64_t version) const;
  // UNAVAILABLE once the server has stopped.
  Status CheckServing() const;
  // Like CheckServing, and UNAVAILABLE to clients while the server stops.
  Status CheckServing(Caller caller) const;
  // Like CheckServing. While the server stops, UNAVAILABLE unless Stop permits the request.
  Status CheckAcceptsRequest(const InferRequest& request, Caller caller) const;

  ServerHandle& handle(Caller caller) {
    return caller == Caller::kClient ? client_handle_ : backend_handle_;
  }
  const ServerOptions& options() const { return options_; }
  ModelTable& models() { return models_; }
  const ModelTable& models() const { return models_; }
  CoreServices& services() { return *services_; }

  // UNAVAILABLE unless the model control mode is explicit.
  Status LoadModel(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadModel(const std::string& name, bool dependents);
  Status RegisterRepository(const std::string& path,
                            const std::vector<const Parameter*>& name_mapping);
  Status UnregisterRepository(const std::string& path);
  // UNAVAILABLE unless the model control mode is poll and the server is ready.
  Status PollRepositories();

  // JSON of the metadata, configuration, statistics and index calls.
  std::string MetadataJson() const;
  Result<std::string> ModelMetadataJson(const std::string& name, int64_t version) const;
  Result<std::string> ModelConfigJson(const std::string& name, int64_t version) const;
  // All serving models if `name` is empty; all serving versions if `version` is kLatest.
  Result<std::string> StatisticsJson(const std::string& name, int64_t version) const;
  std::string IndexJson(bool ready_only) const;

 private:
  enum class State { kStarting, kFailed, kReady, kStopping, kStopped };

  explicit Server(const ServerOptions& options);
  Status Start();
  // Creates the response cache if one is configured.
  Status StartCache();
  Status LoadStartupModels();
  Status CheckStart() const;
  Status CheckExplicit() const;
  // Returns false if requests are left at the deadline.
  bool WaitForRequests(uint64_t deadline_ns) const;
  void WaitForModels(uint64_t deadline_ns, uint64_t give_up_ns) const;
  // Logs the start-up tables: repository agents, backends, models and options.
  void LogTables() const;
  void LogAgents() const;
  void LogBackends() const;
  void LogModels() const;
  void LogOptions() const;

  ServerHandle client_handle_{this, Caller::kClient};
  ServerHandle backend_handle_{this, Caller::kBackend};
  const ServerOptions options_;
  std::atomic<State> state_{State::kStarting};
  std::atomic<unsigned> exit_timeout_secs_;
  std::atomic<unsigned> num_control_calls_{0};  // model control calls in progress
  std::mutex stop_mutex_;                       // serializes Stop
  bool has_ended_ = false;
  bool was_started_ = true;  // false: Start failed, so that the stop is nothing to report
  // These are destroyed in reverse order.
  std::unique_ptr<CoreServices> services_;
  ModelTable models_;
  std::unique_ptr<ModelLoader> loader_;
  std::unique_ptr<ModelLifecycle> lifecycle_;
  std::unique_ptr<ModelRepository> repository_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_Server, nereid::core::ServerHandle);

namespace nereid::core {
inline TRITONSERVER_Server* ToHandle(Server* server) {
  return ToHandle(&server->handle(Caller::kClient));
}
// Returns null for null.
inline Server* FromHandle(TRITONSERVER_Server* handle) {
  return handle == nullptr ? nullptr : FromHandle<TRITONSERVER_Server>(handle)->server;
}
inline Caller CallerOf(TRITONSERVER_Server* handle) {
  return FromHandle<TRITONSERVER_Server>(handle)->caller;
}
}  // namespace nereid::core
