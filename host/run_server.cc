// See run_server.h.
#include "host/run_server.h"

#include <sys/resource.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/thread.h"
#include "host/core_options.h"
#include "host/log.h"
#include "host/process_signals.h"
#include "host/repository_poller.h"

namespace nereid {
namespace {

using Clock = std::chrono::steady_clock;

// Raises the limit of open files to the maximum, because each connection uses a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::chrono::seconds PollInterval(const Options& options) {
  const bool polls =
      options.control_mode == TRITONSERVER_MODEL_CONTROL_POLL && options.repository_poll_s > 0;
  return std::chrono::seconds(polls ? options.repository_poll_s : 0);
}

// Stops the core on its own thread, because that waits for requests and sequences in flight.
std::future<Status> BeginStop(const Server& server, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
  const Status status =
      server.SetExitTimeout(static_cast<unsigned>(std::max<int64_t>(left.count(), 0)));
  if (!status.ok()) LogError("failed to set the exit timeout: ", status.message());
  auto stopped = std::make_shared<std::promise<Status>>();
  StartThread([&server, stopped] { stopped->set_value(server.Stop()); }).detach();
  return stopped->get_future();
}

// Returns false if the core is still busy after `deadline`, because a load or unload hangs in its
// backend.
bool FinishStop(std::future<Status> stopped, Clock::time_point deadline) {
  // The core normally meets its own exit timeout; this bound applies if it cannot.
  constexpr std::chrono::seconds kGrace(8);
  if (stopped.wait_until(std::max(deadline, Clock::now()) + kGrace) ==
      std::future_status::timeout) {
    LogError("exit timeout: a model is still being loaded or unloaded");
    return false;
  }
  const Status status = stopped.get();
  if (!status.ok()) LogError("failed to stop the server: ", status.message());
  return status.ok();
}

struct StopOutcome {
  bool is_complete = false;  // false: something still runs that cannot be stopped
  size_t num_cut = 0;        // requests that were cancelled at the exit timeout
};

// Drains HTTP, then stops the core while the gRPC port still answers, then ends all ports.
StopOutcome StopServing(const Server& server, Frontends& frontends, RepositoryPoller& poller,
                        const Options& options) {
  const auto deadline = Clock::now() + std::chrono::seconds(options.exit_timeout_s);
  poller.Stop();
  frontends.DrainHttp(deadline);
  std::future<Status> stopped = BeginStop(server, deadline);
  stopped.wait_until(deadline);
  const size_t num_cut = frontends.End(deadline);
  if (!FinishStop(std::move(stopped), deadline)) return {false, num_cut};
  const auto is_idle = [&] { return frontends.IsIdle() && poller.IsIdle(); };
  // Cancelled requests end when their model notices the cancellation.
  for (int i = 0; i < 200 && !is_idle(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {is_idle(), num_cut};
}

// Ends the process without static destructors if a backend is still running, because its code must
// not run concurrently with them.
void EndServer(Server server, const Status& outcome) {
  const Status ended = std::move(server).Delete();
  if (ended.ok()) return;
  if (!outcome.ok()) LogError(outcome.message());
  LogError("exiting although work is still running: ", ended.message());
  ExitNow(1);
}

// The core has logged why each model failed. Where that was written to standard error, as this will
// be, it is not said again.
std::string WithoutLoggedReasons(const std::string& message, const Options& options) {
  constexpr std::string_view kBeginning = "failed to load all models";
  const bool was_logged = options.log_error && options.log_file.empty();
  if (!was_logged || !message.starts_with(kBeginning)) return message;
  return StrCat(kBeginning, "; see the errors above");
}

// Where the caller reports why a start failed, the log does not say it on standard error as well:
// it would name the cause once for each model that depends on the one that failed.
bool IsFailureOfStartLogged(const Options& options, const ServerCallbacks& callbacks) {
  return callbacks.on_failed == nullptr || !options.exit_on_error || !options.log_file.empty() ||
         options.log_verbose > 0;
}

Result<Server> StartCore(const ServerOptions& core, const Options& options,
                         const ServerCallbacks& callbacks) {
  if (!options.log_error || IsFailureOfStartLogged(options, callbacks)) return Server::Start(core);
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerOptionsSetLogError(nullptr, false)));
  Result<Server> created = Server::Start(core);
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerOptionsSetLogError(nullptr, true)));
  return created;
}

// Adds the text that Triton logs, because scripts look for it.
Status FailedToCreate(const Status& status, const std::string& message) {
  TRITONSERVER_Error* const error = ToError(status);
  Status worded(status.code(),
                StrCat("creating server: ", TRITONSERVER_ErrorCodeString(error), " - ", message));
  TRITONSERVER_ErrorDelete(error);
  return worded;
}

Status Serve(const Options& options, const ServerCallbacks& callbacks) {
  NEREID_ASSIGN_OR_RETURN(const ServerOptions core, MakeCoreOptions(options, InstallRoot()));
  if (!options.api_key_file.empty()) {
    // The frontends read the file later; an error is reported before models are loaded.
    NEREID_RETURN_IF_ERROR(ApiKeyFile::Open(options.api_key_file).status());
  }
  NEREID_RETURN_IF_ERROR(Frontends::CheckPorts(options));
  if (callbacks.on_loading) callbacks.on_loading();
  Result<Server> created = StartCore(core, options, callbacks);
  if (callbacks.on_loaded) callbacks.on_loaded();
  if (!created.ok()) {
    const Status failed = created.status();
    const bool is_told = callbacks.on_failed == nullptr;
    return FailedToCreate(
        failed, is_told ? WithoutLoggedReasons(failed.message(), options) : failed.message());
  }
  Server server = std::move(created).value();
  for (const std::string& flag : options.ineffective_flags) LogInfo(flag, " has no effect");
  // From the moment a port answers, a signal must shut the server down gracefully.
  ShutdownSignal::BeginServing();
  Result<std::unique_ptr<Frontends>> frontends = Frontends::Start(server, options);
  if (!frontends.ok()) {
    EndServer(std::move(server), frontends.status());
    return std::move(frontends).status();
  }
  RepositoryPoller poller(server, PollInterval(options));
  if (callbacks.on_started) callbacks.on_started(server, **frontends);
  while (!ShutdownSignal::Wait(std::chrono::hours(1))) {
  }
  const StopOutcome outcome = StopServing(server, **frontends, poller, options);
  if (!outcome.is_complete) {
    // A model that ignores cancellation still references objects that would be destroyed now.
    LogError("exiting although work is still running: models or their requests");
    ExitNow(1);
  }
  frontends->reset();
  EndServer(std::move(server), Status::Ok());
  if (outcome.num_cut == 0) return Status::Ok();
  return UnavailableError("exit timeout of ", options.exit_timeout_s,
                          " s expired: ", outcome.num_cut, " requests were cut off");
}

}  // namespace

std::string InstallRoot() {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : executable.parent_path().parent_path().string();
}

int RunServer(const Options& options, const ServerCallbacks& callbacks) {
  for (const std::string& warning : options.warnings) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  }
  RaiseDescriptorLimit();
  // Environment variables may be set only before the first thread starts.
  if (options.spin_us) setenv("NEREID_SPIN_US", std::to_string(*options.spin_us).c_str(), 1);
  if (options.model_load_wait_s) {
    setenv("NEREID_MODEL_LOAD_WAIT_SECS", std::to_string(*options.model_load_wait_s).c_str(), 1);
  }
  if (options.log_format == "json") setenv("NEREID_LOG_FORMAT", "json", 1);
  ShutdownSignal::Install();
  CrashHandler::Install(options.log_file);
  const Status status = Serve(options, callbacks);
  if (status.ok()) return 0;
  if (callbacks.on_failed) {
    callbacks.on_failed(status);
  } else {
    std::fprintf(stderr, "error: %s\n", status.message().c_str());
  }
  // Code that a failed start left running must not run concurrently with static destructors.
  std::fflush(nullptr);
  ExitNow(1);
}

}  // namespace nereid
