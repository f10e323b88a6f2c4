#include "host/cli/serve.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>

#include "host/cli/command.h"
#include "host/cli/load_progress.h"
#include "host/cli/serve_options.h"
#include "host/cli/serve_report.h"
#include "host/cli/served_model.h"
#include "host/cli/temporary_folder.h"
#include "host/process_signals.h"
#include "host/run_server.h"
#include "net/listener.h"

namespace nereid::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string ShowSeconds(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

Status CheckPort(const std::string& address, uint16_t port, bool is_reused, const char* flag) {
  Status opened = net::Listener::Open({address, port, is_reused, false}).status();
  if (opened.ok()) return opened;
  return UnavailableError(opened.message(), "; ", flag, " chooses another port");
}

// Opens and closes each port, so that one in use is reported before weights are read. The server
// opens them when the models are ready.
Status CheckPorts(const Options& options) {
  if (options.allow_http) {
    NEREID_RETURN_IF_ERROR(
        CheckPort(options.http.address, options.http.port, options.http.reuse_port, "--port"));
  }
  if (options.allow_grpc) {
    NEREID_RETURN_IF_ERROR(CheckPort(options.grpc.address, options.grpc.port,
                                     options.grpc.is_port_reused, "--grpc-port"));
  }
  if (!options.allow_metrics) return Status::Ok();
  return CheckPort(options.metrics.address, options.metrics.port, options.metrics.reuse_port,
                   "--metrics-port");
}

// Their paths without symbolic links, as the kernel shows mappings.
std::set<std::string> WeightFiles(const std::vector<ServedModel>& models) {
  std::set<std::string> files;
  for (const ServedModel& model : models) {
    if (!model.is_loaded_at_start) continue;
    for (const std::string& name : model.checkpoint.files) {
      std::error_code ignored;
      const std::filesystem::path path = std::filesystem::path(model.checkpoint.directory) / name;
      if (name.ends_with(".safetensors")) {
        files.insert(std::filesystem::canonical(path, ignored).string());
      }
    }
  }
  return files;
}

uint64_t WeightBytes(const std::vector<ServedModel>& models) {
  uint64_t num_bytes = 0;
  for (const ServedModel& model : models) {
    if (model.is_loaded_at_start) num_bytes += model.checkpoint.weight_bytes;
  }
  return num_bytes;
}

ModelDemandOptions DemandOf(const ServeOptions& options, const std::vector<ServedModel>& models) {
  ModelDemandOptions demand;
  if (options.memory_budget == 0 && options.idle_s == 0) return demand;
  for (const ServedModel& model : models) {
    demand.models.push_back({model.name, model.checkpoint.weight_bytes});
  }
  demand.max_bytes = options.memory_budget;
  demand.max_idle = std::chrono::seconds(options.idle_s);
  return demand;
}

Status CheckEngine(const ServeOptions& options, const std::string& root) {
  const std::string& other = options.server.backend_directory;
  const std::string folder = (other.empty() ? root + "/backends" : other) + "/gpu_llm";
  std::error_code ignored;
  if (options.engine != "gpu_llm" || std::filesystem::exists(folder, ignored)) return Status::Ok();
  return NotFoundError("--engine gpu: '", folder, "': this installation has no engine for GPUs");
}

int Serve(ServeOptions& options) {
  if (Status ports = CheckPorts(options.server); !ports.ok()) return FailCommand("serve", ports, 1);
  // From now on a signal removes what this process has written.
  ShutdownSignal::Install();
  const std::string root = InstallRoot();
  if (Status engine = CheckEngine(options, root); !engine.ok())
    return FailCommand("serve", engine, 1);
  ProgressBar progress(stdout);
  Result<std::vector<ServedModel>> models = FindModels(options, root, progress);
  if (!models.ok()) return FailCommand("serve", models.status(), 1);
  if (Status plan = PlanMemory(options, *models); !plan.ok()) return FailCommand("serve", plan, 1);
  const Result<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return FailCommand("serve", folder.status(), 1);
  Result<std::vector<std::string>> repositories =
      WriteRepositories(options, *models, root, folder->path());
  if (!repositories.ok()) return FailCommand("serve", repositories.status(), 1);
  folder->RemoveAtExit();
  options.server.repositories = std::move(*repositories);
  // Clients with the right to do so load and unload models.
  options.server.control_mode = TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  for (const ServedModel& model : *models) {
    if (model.is_loaded_at_start) options.server.startup_models.push_back(model.name);
  }
  options.server.demand = DemandOf(options, *models);
  for (const ServedModel& model : *models) {
    Print(StrCat("model     ", DescribeModel(model), "\n"));
    for (const auto& [name, adapter] : model.adapters) {
      Print(StrCat("adapter   ", name, ": ", adapter, "\n"));
    }
  }
  std::optional<LoadProgress> load;
  ServerCallbacks callbacks;
  const Clock::time_point start = Clock::now();
  callbacks.on_loading = [&] {
    load.emplace(WeightFiles(*models), WeightBytes(*models), progress);
  };
  callbacks.on_loaded = [&] { load.reset(); };
  callbacks.on_started = [&](const Server& server, const Frontends& frontends) {
    Print(StrCat("loaded    in ", ShowSeconds(Clock::now() - start), "\n"));
    Print(DescribeServer(*models, options.server, server, frontends));
  };
  callbacks.on_failed = [](const Status& status) {
    (void)FailCommand("serve", Status(status.code(), LoadFailure(status.message())), 1);
  };
  return RunServer(options.server, callbacks);
}

}  // namespace

int RunServe(const std::vector<std::string>& args) {
  Result<ServeOptions> options = ParseServeOptions(args);
  if (!options.ok()) {
    const bool is_understood = options.status().code() == StatusCode::kUnsupported;
    const char* const hint = is_understood ? "" : "; see 'nereid serve --help'";
    return FailCommand(
        "serve", Status(options.status().code(), StrCat(options.status().message(), hint)), 2);
  }
  if (options->show_help) {
    Print(ServeUsageText());
    return 0;
  }
  return Serve(*options);
}

}  // namespace nereid::cli
