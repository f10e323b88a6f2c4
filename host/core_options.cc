// Options that are not given receive the executable's defaults, some of which differ from those of
// the C API.
#include "host/core_options.h"

#include "host/frontend/http/json/json_writer.h"

namespace nereid {
namespace {

std::string OrDefault(const std::string& given, const std::string& root, const char* folder) {
  return given.empty() ? root + "/" + folder : given;
}

Status ApplyCaches(ServerOptions& core, const Options& options) {
  for (const auto& [cache, settings] : options.cache_settings) {
    std::string json = "{";
    for (const auto& [key, value] : settings) {
      if (json.size() > 1) json += ',';
      http::AppendLossyJsonString(json, key);
      json += ':';
      http::AppendLossyJsonString(json, value);
    }
    json += '}';
    NEREID_RETURN_IF_ERROR(core.Set(TRITONSERVER_ServerOptionsSetCacheConfig, cache, json));
  }
  return Status::Ok();
}

}  // namespace

Result<ServerOptions> MakeCoreOptions(const Options& options, const std::string& install_root) {
  NEREID_ASSIGN_OR_RETURN(ServerOptions core, ServerOptions::Create());
  for (const std::string& repository : options.repositories) {
    NEREID_RETURN_IF_ERROR(core.AddModelRepository(repository));
  }
  NEREID_RETURN_IF_ERROR(core.SetModelControlMode(options.control_mode));
  for (const std::string& model : options.startup_models) {
    NEREID_RETURN_IF_ERROR(core.AddStartupModel(model));
  }
  NEREID_RETURN_IF_ERROR(
      core.Set(TRITONSERVER_ServerOptionsSetStrictModelConfig, options.strict_model_config));
  NEREID_RETURN_IF_ERROR(
      core.SetBackendDirectory(OrDefault(options.backend_directory, install_root, "backends")));
  NEREID_RETURN_IF_ERROR(core.Set(TRITONSERVER_ServerOptionsSetCacheDirectory,
                                  OrDefault(options.cache_directory, install_root, "caches")));
  NEREID_RETURN_IF_ERROR(
      core.Set(TRITONSERVER_ServerOptionsSetRepoAgentDirectory,
               OrDefault(options.repoagent_directory, install_root, "repoagents")));
  NEREID_RETURN_IF_ERROR(core.Set(TRITONSERVER_ServerOptionsSetExitTimeout,
                                  static_cast<unsigned>(options.exit_timeout_s)));
  NEREID_RETURN_IF_ERROR(core.Set(TRITONSERVER_ServerOptionsSetMetrics, options.allow_metrics));
  for (const auto& apply : options.core_settings) NEREID_RETURN_IF_ERROR(apply(core));
  NEREID_RETURN_IF_ERROR(ApplyCaches(core, options));
  return core;
}

}  // namespace nereid
