// The tables that the server logs after its start: repository agents, backends, models and options.
// Their format is Triton's, because scripts parse it.
#include <cstdio>

#include "host/core/model/core_services.h"
#include "host/core/observe/log.h"
#include "host/core/observe/text_table.h"
#include "host/core/repository/model_repository.h"
#include "host/core/server.h"

namespace nereid::core {
namespace {

void Log(const TextTable& table) {
  log::WriteRaw(log::Level::kInfo, __FILE__, __LINE__, "\n" + table.Text());
}

std::string Flag(bool value) {
  return value ? "1" : "0";
}

std::string ModeName(ModelControlMode mode) {
  switch (mode) {
    case ModelControlMode::kNone:
      return "MODE_NONE";
    case ModelControlMode::kPoll:
      return "MODE_POLL";
    case ModelControlMode::kExplicit:
      break;
  }
  return "MODE_EXPLICIT";
}

std::string Extensions() {
  std::string all;
  for (const char* extension : kServerExtensions) all += StrCat(all.empty() ? "" : " ", extension);
  return all;
}

std::string OneDecimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// The whole reason was logged when the load failed; here it would make every row as long.
std::string Beginning(const std::string& reason) {
  constexpr size_t kMaxBytes = 160;
  if (reason.size() <= kMaxBytes) return reason;
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0) == 0x80) --end;  // UTF-8
  return StrCat(std::string_view(reason).substr(0, end), "...");
}

void AddRepositories(const ServerOptions& options, TextTable* table) {
  for (size_t i = 0; i < options.repository_paths.size(); ++i) {
    table->AddRow({StrCat("model_repository_path[", i, "]"), options.repository_paths[i]});
  }
  table->AddRow({"model_control_mode", ModeName(options.control_mode)});
  for (size_t i = 0; i < options.startup_models.size(); ++i) {
    table->AddRow({StrCat("startup_models_", i), options.startup_models[i]});
  }
  table->AddRow({"strict_model_config", Flag(options.strict_model_config)});
  table->AddRow({"model_config_name", options.model_config_name});
}

void AddResources(const ServerOptions& options, TextTable* table) {
  table->AddRow({"rate_limit", options.rate_limit ? "EXEC_COUNT" : "OFF"});
  for (size_t i = 0; i < options.rate_limiter_resources.size(); ++i) {
    const auto& resource = options.rate_limiter_resources[i];
    table->AddRow({StrCat("rate_limit_resource[", i, "]"),
                   StrCat("{\"name\":\"", resource.name, "\", \"count\":", resource.count,
                          ", \"device\":", resource.device, "}")});
  }
  table->AddRow(
      {"pinned_memory_pool_byte_size", std::to_string(options.pinned_memory_pool_byte_size)});
  for (const auto& [device, size] : options.cuda_memory_pool_byte_size) {
    table->AddRow({StrCat("cuda_memory_pool_byte_size{", device, "}"), std::to_string(size)});
  }
}

}  // namespace

void Server::LogTables() const {
  if (!log::Enabled(log::Level::kInfo)) return;
  LogAgents();
  LogBackends();
  LogModels();
  LogOptions();
}

void Server::LogAgents() const {
  TextTable table({"Repository Agent", "Path"});
  for (const auto& [name, path] : repository_->Agents()) table.AddRow({name, path});
  Log(table);
}

void Server::LogBackends() const {
  TextTable table({"Backend", "Path", "Config"});
  for (const auto& backend : services_->backends.List()) {
    table.AddRow({backend.name, backend.library, backend.config_json});
  }
  Log(table);
}

void Server::LogModels() const {
  TextTable table({"Model", "Version", "Status"});
  for (const IndexEntry& entry : repository_->Index(false)) {
    if (entry.version == IndexEntry::kNoVersion && entry.status.reason.empty()) continue;
    std::string status = ModelStateName(entry.status.state);
    if (!entry.status.reason.empty()) status += StrCat(": ", Beginning(entry.status.reason));
    table.AddRow({entry.name,
                  entry.version == IndexEntry::kNoVersion ? "-" : std::to_string(entry.version),
                  status});
  }
  Log(table);
}

void Server::LogOptions() const {
  TextTable table({"Option", "Value"});
  table.AddRow({"server_id", options_.server_id});
  table.AddRow({"server_version", kServerVersion});
  table.AddRow({"nereid_version", NEREID_VERSION});
  table.AddRow({"server_extensions", Extensions()});
  AddRepositories(options_, &table);
  AddResources(options_, &table);
  table.AddRow({"min_supported_compute_capability", OneDecimal(options_.min_compute_capability)});
  table.AddRow({"strict_readiness", Flag(options_.strict_readiness)});
  table.AddRow({"exit_timeout", std::to_string(options_.exit_timeout_secs)});
  table.AddRow({"cache_enabled", Flag(services_->cache != nullptr)});
  Log(table);
}

}  // namespace nereid::core
