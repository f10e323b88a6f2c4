// The server: creates everything in order, answers what is asked of it as a whole, tears down in
// reverse. One process may hold several. The C functions of capi/server*.cc forward to it. [any
// thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "host/core/handle/parameter.h"
#include "host/core/repository/model_table.h"
#include "host/core/server_options.h"
#include "nereid/status.h"

namespace nereid {

struct CoreServices;    // model/core_services.h: what all models share
class ModelLifecycle;   // repository/model_lifecycle.h: loads, swaps, unloads
class ModelLoader;      // repository/model_loader.h
class ModelRepository;  // repository/model_repository.h: which models there are
class InferRequest;
class Server;

// Who asks. What backends ask while the server stops is for requests that it has taken.
enum class Caller { kClient, kBackend };

// What a TRITONSERVER_Server is: backends get another one than clients.
struct ServerDoor {
  Server* const server;
  const Caller caller;
};

class Server {
 public:
  // Loads the start-up models before it returns. With exit_on_error, a model that fails to load
  // fails the call, as does a repository that is not there; without, a server that lacks one of its
  // repositories says that it is not live, and takes neither models nor requests.
  static Result<std::unique_ptr<Server>> Create(const ServerOptions& options);
  // Ends first, if End was not called; then an error is in the log alone.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Waits up to the exit timeout for requests in flight and open sequences, then unloads every
  // model. What clients begin meanwhile is refused; what goes on is taken: the next of an open
  // sequence, and what backends ask for those that are in flight (the steps of an ensemble).
  Status Stop();
  // Stops if that was not done, and ends what the server has. Once, with no other call beside or
  // after it. An error: something of a model or a backend runs on and has what it uses.
  Status End();
  void SetExitTimeout(unsigned seconds) { exit_timeout_secs_ = seconds; }

  // UNAVAILABLE once it stops.
  Status CheckNotStopping() const;
  bool IsLive() const;
  // Accepts requests; with strict readiness also: every model that should serve does.
  bool IsReady() const;
  // False also for models and versions that are not there.
  bool IsModelReady(const std::string& name, int64_t version) const;
  // UNAVAILABLE once stopped.
  Status CheckServes() const;
  // As CheckServes; UNAVAILABLE to clients while it stops.
  Status CheckServes(Caller caller) const;
  // As CheckServes; while it stops, UNAVAILABLE unless it takes the request all the same, see Stop.
  Status CheckTakes(const InferRequest& request, Caller caller) const;

  ServerDoor& door(Caller caller) { return caller == Caller::kClient ? clients_ : backends_; }
  const ServerOptions& options() const { return options_; }
  ModelTable& models() { return models_; }
  const ModelTable& models() const { return models_; }
  CoreServices& services() { return *services_; }

  // UNAVAILABLE unless the control mode is explicit.
  Status LoadModel(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadModel(const std::string& name, bool dependents);
  Status RegisterRepository(const std::string& path,
                            const std::vector<const Parameter*>& name_mapping);
  Status UnregisterRepository(const std::string& path);
  // UNAVAILABLE unless the control mode is poll, and while it does not serve.
  Status PollRepositories();

  // JSON texts of the metadata, config, statistics and index calls.
  std::string MetadataJson() const;
  Result<std::string> ModelMetadataJson(const std::string& name, int64_t version) const;
  Result<std::string> ModelConfigJson(const std::string& name, int64_t version) const;
  // Every serving model when `name` is empty; every serving version when `version` is kLatest.
  Result<std::string> StatisticsJson(const std::string& name, int64_t version) const;
  std::string IndexJson(bool ready_only) const;

 private:
  enum class State { kStarting, kFailed, kReady, kStopping, kStopped };

  explicit Server(const ServerOptions& options);
  Status Start();
  // The response cache, where one is configured.
  Status StartCache();
  Status LoadStartupModels();
  Status CheckStart() const;
  Status CheckExplicit() const;
  // False when the deadline came first.
  bool WaitForRequests(uint64_t deadline_ns) const;
  void WaitForModels(uint64_t deadline_ns, uint64_t give_up_ns) const;
  // What it uses, what it serves, how it was told to.
  void LogTables() const;
  void LogAgents() const;
  void LogBackends() const;
  void LogModels() const;
  void LogOptions() const;

  ServerDoor clients_{this, Caller::kClient};
  ServerDoor backends_{this, Caller::kBackend};
  const ServerOptions options_;
  std::atomic<State> state_{State::kStarting};
  std::atomic<unsigned> exit_timeout_secs_;
  std::atomic<unsigned> num_control_calls_{0};  // loads, unloads and the like under way
  std::mutex stop_mutex_;                       // one Stop at a time
  bool has_ended_ = false;
  // In the order of wiring.
  std::unique_ptr<CoreServices> services_;
  ModelTable models_;
  std::unique_ptr<ModelLoader> loader_;
  std::unique_ptr<ModelLifecycle> lifecycle_;
  std::unique_ptr<ModelRepository> repository_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_Server, nereid::ServerDoor);

namespace nereid {
inline TRITONSERVER_Server* ToHandle(Server* server) {
  return ToHandle(&server->door(Caller::kClient));
}
// Null for null.
inline Server* FromHandle(TRITONSERVER_Server* handle) {
  return handle == nullptr ? nullptr : FromHandle<TRITONSERVER_Server>(handle)->server;
}
inline Caller CallerOf(TRITONSERVER_Server* handle) {
  return FromHandle<TRITONSERVER_Server>(handle)->caller;
}
}  // namespace nereid
