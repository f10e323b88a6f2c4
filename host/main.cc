// The executable: flags -> core -> frontends, then a wait for the signal to stop, then the same way
// back. Exit status 0 after a signal, 1 when the start failed.
#include <sys/resource.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "host/core_options.h"
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
  const bool polls = options.control_mode == TRITONSERVER_MODEL_CONTROL_POLL;
  const auto pause =
      polls ? std::chrono::seconds(options.repository_poll_s) : std::chrono::hours(1);
  while (!ShutdownSignal::Wait(pause)) {
    if (!polls) continue;
    const Status status = server.PollModelRepository();
    if (!status.ok()) LogError("failed to poll the model repository: ", status.message());
  }
}

// In the reverse order of the start.
void StopServing(const Server& server, Frontends& frontends, const Options& options) {
  LogInfo("Waiting for in-flight requests to complete.");
  const auto deadline = Clock::now() + std::chrono::seconds(options.exit_timeout_s);
  frontends.Drain(deadline);
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now());
  Status status = server.SetExitTimeout(static_cast<unsigned>(std::max<int64_t>(left.count(), 1)));
  if (status.ok()) status = server.Stop();
  if (!status.ok()) LogError("failed to stop the server: ", status.message());
  // Cancelled requests end when their model notices.
  for (int i = 0; i < 200 && !frontends.IsIdle(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Status Serve(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(const ServerOptions core, MakeCoreOptions(options, InstallRoot()));
  NEREID_ASSIGN_OR_RETURN(const Server server, Server::Start(core));
  for (const std::string& flag : options.ineffective_flags) LogInfo(flag, " has no effect");
  Result<std::unique_ptr<Frontends>> frontends = Frontends::Start(server, options);
  if (!frontends.ok()) {
    (void)server.Stop();
    return std::move(frontends).status();
  }
  ShutdownSignal::BeginServing();
  WaitForSignal(server, options);
  StopServing(server, **frontends, options);
  if (!(*frontends)->IsIdle()) {
    // A model that ignores its cancellation still points into what would be destroyed now.
    LogError("requests are still running: ending without them");
    std::_Exit(0);
  }
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
  RaiseDescriptorLimit();
  ShutdownSignal::Install();
  const Status status = Serve(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}

}  // namespace
}  // namespace nereid

int main(int argc, char** argv) {
  return nereid::Main({argv + 1, argv + argc});
}
