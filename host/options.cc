// Arguments to table rows, and the table to help text.
#include "host/options.h"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "host/cloud_flags.h"
#include "host/option_table.h"
#include "host/trace_flags.h"

namespace nereid {
namespace {

const Flag* FindFlag(std::string_view name) {
  for (const std::span<const Flag> flags : {CoreFlags(), FrontendFlags()}) {
    for (const Flag& flag : flags) {
      if (flag.name == name) return &flag;
    }
  }
  return nullptr;
}

// Rules between flags.
Status CheckOptions(const Options& options) {
  if (options.repositories.empty()) {
    return InvalidArgError("--model-repository: expected at least one, got none");
  }
  const bool is_explicit = options.control_mode == TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  if (!options.startup_models.empty() && !is_explicit) {
    return InvalidArgError("--load-model: needs --model-control-mode=explicit");
  }
  for (const std::string& model : options.startup_models) {
    if (model == "*" && options.startup_models.size() > 1) {
      return InvalidArgError("--load-model: '*' stands for every model, no other can be named");
    }
  }
  NEREID_RETURN_IF_ERROR(CheckCloudOptions(options));
  return CheckTraceOptions(options.trace);
}

void AppendFlag(std::ostringstream& text, const Flag& flag) {
  constexpr size_t kWidth = 100;
  text << "  " << flag.name;
  if (!flag.value.empty()) text << " <" << flag.value << ">";
  std::istringstream words{std::string(flag.help)};
  size_t column = kWidth;
  for (std::string word; words >> word; column += word.size() + 1) {
    if (column + word.size() > kWidth) {
      text << "\n     ";
      column = 5;
    }
    text << ' ' << word;
  }
  text << '\n';
}

// The C API knows two formats; the third is asked for by the environment, see main.cc.
void CompleteLogFormat(Options& options) {
  if (options.log_format.empty()) {
    const char* const wanted = std::getenv("NEREID_LOG_FORMAT");
    options.log_format =
        wanted != nullptr && std::string_view(wanted) == "json" ? "json" : "default";
    return;
  }
  if (options.log_format == "json") return;
  const bool is_default = options.log_format == "default";
  const auto format = is_default ? TRITONSERVER_LOG_DEFAULT : TRITONSERVER_LOG_ISO8601;
  options.core_settings.push_back([format](ServerOptions& core) {
    return core.Set(TRITONSERVER_ServerOptionsSetLogFormat, format);
  });
}

}  // namespace

Result<Options> ParseOptions(const std::vector<std::string>& args) {
  Options options;
  NEREID_RETURN_IF_ERROR(ApplyCloudEnvironment(options));
  options.metrics.port = 8002;
  options.metrics.num_threads = 1;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = args[i].substr(equals + 1);
    if (name == "--help" || name == "-h") {
      options.show_help = true;
      return options;
    }
    const Flag* const flag = FindFlag(name);
    if (flag == nullptr) return InvalidArgError("unknown option '", args[i], "'");
    if (flag->value.empty() && value) {
      return InvalidArgError(name, ": takes no value, got '", *value, "'");
    }
    if (!flag->value.empty() && !value) {
      if (i + 1 == args.size()) return InvalidArgError(name, ": expected <", flag->value, ">");
      value = args[++i];
    }
    NEREID_RETURN_IF_ERROR(flag->apply(options, value.value_or("")).WithContext(name));
  }
  CompleteCloudOptions(options);
  CompleteLogFormat(options);
  if (!options.has_metrics_address) options.metrics.address = options.http.address;
  if (options.use_http_tls) options.http.tls = options.http_tls;
  if (options.use_grpc_tls) options.grpc.tls = options.grpc_tls;
  NEREID_RETURN_IF_ERROR(ApplyTraceEnvironment(options.trace));
  NEREID_RETURN_IF_ERROR(CheckOptions(options));
  return options;
}

std::string UsageText(std::string_view program) {
  std::ostringstream text;
  text << "Usage: " << program << " --model-repository <path> [options]\n"
       << "Options take their value as --option=value or --option value.\n";
  std::string_view section;
  for (const std::span<const Flag> flags : {CoreFlags(), FrontendFlags()}) {
    for (const Flag& flag : flags) {
      if (flag.section != section) text << '\n' << (section = flag.section) << ":\n";
      AppendFlag(text, flag);
    }
  }
  return text.str();
}

}  // namespace nereid
