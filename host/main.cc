// The executable: flags -> core -> frontends, then a wait for the signal to stop, then the same way
// back. Exit status 0 after a signal, 1 when the start failed or something did not end in time.
#include <sys/resource.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host/core_options.h"
#include "host/crash_handler.h"
#include "host/frontends.h"
#include "host/log.h"
#include "host/options.h"
#include "host/shutdown_signal.h"
#include "nereid/server.h"

namespace nereid {
namespace {

using Clock = std::chrono::steady_clock;

// <root>/bin/nereid -> <root>
std::string InstallRoot() {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : executable.parent_path().parent_path().string();
}

// A connection is a descriptor: take as many as the system gives.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void WaitForSignal(const Server& server, const Options& options) {
  const bool polls =
      options.control_mode == TRITONSERVER_MODEL_CONTROL_POLL && options.repository_poll_s > 0;
  const auto pause =
      polls ? std::chrono::seconds(options.repository_poll_s) : std::chrono::hours(1);
  while (!ShutdownSignal::Wait(pause)) {
    if (!polls) continue;
    const Status status = server.PollModelRepository();
    if (!status.ok()) LogError("failed to poll the model repository: ", status.message());
  }
}

// The core's stop, which takes as long as requests and sequences go on: on a thread of its own.
std::future<Status> BeginStop(const Server& server, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
  const Status status =
      server.SetExitTimeout(static_cast<unsigned>(std::max<int64_t>(left.count(), 0)));
  if (!status.ok()) LogError("failed to set the exit timeout: ", status.message());
  auto stopped = std::make_shared<std::promise<Status>>();
  std::thread([&server, stopped] { stopped->set_value(server.Stop()); }).detach();
  return stopped->get_future();
}

// False when the core or a model is still busy after `deadline`: a load or an unload hangs within
// its backend.
bool FinishStop(std::future<Status> stopped, Clock::time_point deadline) {
  // The core keeps to its own limit, unless it cannot.
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

// HTTP first, then the core, while the gRPC port answers, then the ports. False when something
// still runs that nothing can end.
bool StopServing(const Server& server, Frontends& frontends, const Options& options) {
  const auto deadline = Clock::now() + std::chrono::seconds(options.exit_timeout_s);
  frontends.DrainHttp(deadline);
  std::future<Status> stopped = BeginStop(server, deadline);
  stopped.wait_until(deadline);
  frontends.End(deadline);
  const bool is_stopped = FinishStop(std::move(stopped), deadline);
  // Cancelled requests end when their model notices.
  for (int i = 0; i < 200 && !frontends.IsIdle(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_stopped && frontends.IsIdle();
}

// Code of a backend that has not ended must not run under static destructors.
void EndServer(Server server, const Status& outcome) {
  const Status ended = std::move(server).End();
  if (ended.ok()) return;
  if (!outcome.ok()) LogError(outcome.message());
  LogError("ending without what still runs: ", ended.message());
  std::_Exit(1);
}

// In the words that scripts look for.
Status FailedToCreate(const Status& status) {
  TRITONSERVER_Error* const error = ToError(status);
  Status worded(status.code(), StrCat("creating server: ", TRITONSERVER_ErrorCodeString(error),
                                      " - ", status.message()));
  TRITONSERVER_ErrorDelete(error);
  return worded;
}

Status Serve(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(const ServerOptions core, MakeCoreOptions(options, InstallRoot()));
  Result<Server> created = Server::Start(core);
  if (!created.ok()) return FailedToCreate(created.status());
  Server server = std::move(created).value();
  for (const std::string& flag : options.ineffective_flags) LogInfo(flag, " has no effect");
  // Whoever sees a port answer may stop the server as it should be stopped.
  ShutdownSignal::BeginServing();
  Result<std::unique_ptr<Frontends>> frontends = Frontends::Start(server, options);
  if (!frontends.ok()) {
    EndServer(std::move(server), frontends.status());
    return std::move(frontends).status();
  }
  WaitForSignal(server, options);
  if (!StopServing(server, **frontends, options)) {
    // A model that ignores its cancellation still points into what would be destroyed now.
    LogError("ending without what still runs: models or their requests");
    std::_Exit(1);
  }
  frontends->reset();
  EndServer(std::move(server), Status::Ok());
  return Status::Ok();
}

int Main(const std::vector<std::string>& args) {
  const Result<Options> options = ParseOptions(args);
  if (!options.ok()) {
    std::fprintf(stderr, "%s\n\n%s", options.status().message().c_str(),
                 UsageText("nereid").c_str());
    return 1;
  }
  if (options->show_help) {
    std::fputs(UsageText("nereid").c_str(), stdout);
    return 0;
  }
  for (const std::string& warning : options->warnings) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  }
  RaiseDescriptorLimit();
  // Before the first thread starts.
  if (options->spin_us) setenv("NEREID_SPIN_US", std::to_string(*options->spin_us).c_str(), 1);
  if (options->log_format == "json") setenv("NEREID_LOG_FORMAT", "json", 1);
  ShutdownSignal::Install();
  CrashHandler::Install(options->log_file);
  const Status status = Serve(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  // What a start that failed has left running must not meet static destructors either.
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace
}  // namespace nereid

int main(int argc, char** argv) {
  return nereid::Main({argv + 1, argv + argc});
}
