// Matches arguments with table entries, checks options against each other, and prints the help
// text.
#include "host/options.h"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/closest_name.h"
#include "host/option_table.h"

namespace nereid {
namespace {

// The value may only follow after an equals sign; without one the flag means true.
bool IsValueOptional(const Flag& flag) {
  return flag.value.starts_with("[=");
}

// A flag name may be abbreviated if it stays unambiguous, as with Triton's getopt_long.
Result<const Flag*> FindFlag(std::string_view name) {
  const Flag* found = nullptr;
  std::string possible;
  for (const std::span<const Flag> flags : {CoreFlags(), FrontendFlags()}) {
    for (const Flag& flag : flags) {
      if (flag.name == name) return &flag;
      if (name.size() <= 2 || !std::string_view(flag.name).starts_with(name)) continue;
      found = &flag;
      possible += StrCat(possible.empty() ? "'" : " '", flag.name, "'");
    }
  }
  if (found == nullptr) {
    return InvalidArgError("unknown option '", name, "'",
                           name.size() > 2 ? DidYouMean(name, FlagNames()) : "");
  }
  if (possible.find(' ') == std::string::npos) return found;
  return InvalidArgError("option '", name, "' is ambiguous; possibilities: ", possible);
}

constexpr std::pair<std::string_view, const char*> kDeprecated[] = {
    {"--strict-model-config", "--disable-auto-complete-config"},
    {"--response-cache-byte-size", "--cache-config local,size=<bytes>"},
    {"--trace-file", "--trace-config triton,file=<path>"},
    {"--trace-level", "--trace-config level=<level>"},
    {"--trace-rate", "--trace-config rate=<integer>"},
    {"--trace-count", "--trace-config count=<integer>"},
    {"--trace-log-frequency", "--trace-config triton,log-frequency=<integer>"},
};

void WarnIfDeprecated(std::string_view name, Options& options) {
  for (const auto& [deprecated, instead] : kDeprecated) {
    if (name != deprecated) continue;
    const bool is_trace = name.starts_with("--trace-");
    options.warnings.push_back(StrCat("Warning: '", name, "' has been deprecated",
                                      is_trace ? " and will be removed in future releases." : "!",
                                      " Please use '", instead, "' instead."));
  }
}

// Triton's error text, which scripts look for: Bad option: "--trace-config rate".
std::string BadOption(std::string_view name, std::string_view value) {
  if (name != "--trace-config") return StrCat("Bad option: \"", name, "\"");
  return StrCat("Bad option: \"", name, " ", value.substr(0, value.find('=')), "\"");
}

Status CheckPorts(const Options& options) {
  const auto check = [](bool is_open, const Status& error, const char* flag) {
    return is_open ? Status(error).WithContext(BadOption(flag, {})) : Status::Ok();
  };
  NEREID_RETURN_IF_ERROR(check(options.allow_http, options.http_port_error, "--http-port"));
  NEREID_RETURN_IF_ERROR(check(options.allow_grpc, options.grpc_port_error, "--grpc-port"));
  return check(options.allow_metrics, options.metrics_port_error, "--metrics-port");
}

Status CheckConsole(const Options& options) {
  const bool is_safe =
      openai::IsLocalAddress(options.http.address) || !options.api_key_file.empty();
  if (!options.openai.console.value_or(false) || is_safe) return Status::Ok();
  return InvalidArgError("--console=on: other machines reach the HTTP port at ",
                         options.http.address, ", which needs --api-key-file");
}

// Checks rules that involve several flags.
Status CheckOptions(const Options& options) {
  const bool is_explicit = options.control_mode == TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  if (!options.startup_models.empty() && !is_explicit) {
    return InvalidArgError("Error: Use of '--load-model' requires setting ",
                           "'--model-control-mode=explicit' as well.");
  }
  for (const std::string& model : options.startup_models) {
    if (model == "*" && options.startup_models.size() > 1) {
      return InvalidArgError("Error: Wildcard model name '*' must be the ONLY startup model if ",
                             "specified at all.");
    }
  }
  NEREID_RETURN_IF_ERROR(CheckPorts(options));
  NEREID_RETURN_IF_ERROR(CheckConsole(options));
  NEREID_RETURN_IF_ERROR(CheckCloudOptions(options));
  return CheckTraceOptions(options.trace);
}

void AppendFlag(std::ostringstream& text, const Flag& flag) {
  constexpr size_t kWidth = 100;
  text << "  " << flag.name;
  if (IsValueOptional(flag)) {
    text << " " << flag.value;
  } else if (!flag.value.empty()) {
    text << " <" << flag.value << ">";
  }
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

// The C API supports two formats; the third, json, is selected by an environment variable, see
// main.cc.
void CompleteLogFormat(Options& options) {
  if (options.log_format.empty()) {
    const char* const format = std::getenv("NEREID_LOG_FORMAT");
    options.log_format =
        format != nullptr && std::string_view(format) == "json" ? "json" : "default";
    return;
  }
  if (options.log_format == "json") return;
  const bool is_default = options.log_format == "default";
  const auto format = is_default ? TRITONSERVER_LOG_DEFAULT : TRITONSERVER_LOG_ISO8601;
  options.core_settings.push_back([format](ServerOptions& core) {
    return core.Set(TRITONSERVER_ServerOptionsSetLogFormat, format);
  });
}

// As in Triton, the metrics port follows the HTTP port. The cloud ports do so as well.
void CompleteAddresses(Options& options) {
  if (options.host.empty()) {
    options.host = options.program == Program::kTriton ? "0.0.0.0" : "127.0.0.1";
  }
  if (!options.has_http_address) options.http.address = options.host;
  if (!options.has_grpc_address) options.grpc.address = options.host;
  if (!options.has_metrics_address) options.metrics.address = options.http.address;
}

void CompleteStrictConfig(Options& options) {
  if (!options.disable_auto_complete || options.strict_model_config) return;
  options.strict_model_config = true;
  if (!options.has_strict_model_config) return;
  options.warnings.emplace_back(
      "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of "
      "'--disable-auto-complete-config'!");
}

Status CompleteCacheSettings(Options& options) {
  if (options.old_cache_size == 0) return Status::Ok();
  if (!options.cache_settings.empty()) {
    return InvalidArgError("Incompatible flags --response-cache-byte-size and --cache-config both ",
                           "provided. Please provide one or the other.");
  }
  options.cache_settings["local"]["size"] = std::to_string(options.old_cache_size);
  return Status::Ok();
}

// The flag of `tls` that names a file, empty if there is none.
std::string FileFlagOf(const net::TlsOptions& tls) {
  if (!tls.server_cert_path.empty()) return tls.flag_prefix + "-server-cert";
  if (!tls.server_key_path.empty()) return tls.flag_prefix + "-server-key";
  return tls.root_cert_path.empty() ? "" : tls.flag_prefix + "-root-cert";
}

// Who names root certificates expects that clients need a certificate. As in Triton, a flag of its
// own asks for it.
void WarnOfUncheckedClients(std::string_view port, const std::optional<net::TlsOptions>& tls,
                            std::vector<std::string>& warnings) {
  if (!tls || tls->is_mutual || tls->root_cert_path.empty()) return;
  warnings.push_back(StrCat("Warning: '", tls->flag_prefix, "-root-cert' has no effect without '",
                            tls->flag_prefix, "-use-ssl-mutual=true': the ", port,
                            " port asks clients for no certificate."));
}

// Who names a certificate expects an encrypted port, unless a flag says that it has no TLS. Over
// HTTP, whose flags are ours, the server does not start without it. Triton's gRPC port ignores the
// files silently, so scripts may rely on that; it gets a warning.
Status CompleteTls(Options& options) {
  if (options.use_http_tls.value_or(false)) options.http.tls = options.http_tls;
  if (options.use_grpc_tls.value_or(false)) options.grpc.tls = options.grpc_tls;
  if (options.allow_http) WarnOfUncheckedClients("HTTP", options.http.tls, options.warnings);
  if (options.allow_grpc) WarnOfUncheckedClients("gRPC", options.grpc.tls, options.warnings);
  const std::string grpc_flag = FileFlagOf(options.grpc_tls);
  if (options.allow_grpc && !options.use_grpc_tls && !grpc_flag.empty()) {
    options.warnings.push_back(StrCat("Warning: '", grpc_flag, "' has no effect without '",
                                      "--grpc-use-ssl=true': the gRPC port does not use TLS."));
  }
  const std::string http_flag = FileFlagOf(options.http_tls);
  if (options.use_http_tls || http_flag.empty() || !options.allow_http) return Status::Ok();
  return InvalidArgError(http_flag, ": expected '--http-use-ssl=true' beside it, got none; ",
                         "--http-use-ssl=false opens the port without TLS");
}

}  // namespace

Program ProgramOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  const std::string_view name = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
  return name == "tritonserver" ? Program::kTriton : Program::kNereid;
}

Result<Options> ParseOptions(const std::vector<std::string>& args, Program program) {
  Options options;
  options.program = program;
  if (program == Program::kTriton) {
    options.access.allows_remote_admin = true;
    options.access.allows_inline_models = true;
  }
  NEREID_RETURN_IF_ERROR(ApplyCloudEnvironment(options));
  options.metrics.port = 8002;
  options.metrics.num_threads = 1;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string given = args[i].substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = args[i].substr(equals + 1);
    if (given == "--help" || given == "-h") {
      options.show_help = true;
      return options;
    }
    NEREID_ASSIGN_OR_RETURN(const Flag* const flag, FindFlag(given));
    const std::string name(flag->name);
    if (flag->value.empty() && value) {
      return InvalidArgError(name, ": takes no value, got '", *value, "'");
    }
    if (IsValueOptional(*flag) && !value) value = "true";
    if (!flag->value.empty() && !value) {
      if (i + 1 == args.size()) return InvalidArgError(name, ": expected <", flag->value, ">");
      value = args[++i];
    }
    WarnIfDeprecated(name, options);
    NEREID_RETURN_IF_ERROR(
        flag->apply(options, value.value_or("")).WithContext(BadOption(name, value.value_or(""))));
  }
  CompleteStrictConfig(options);
  CompleteAddresses(options);
  CompleteCloudOptions(options);
  CompleteLogFormat(options);
  NEREID_RETURN_IF_ERROR(CompleteCacheSettings(options));
  NEREID_RETURN_IF_ERROR(CompleteTls(options));
  NEREID_RETURN_IF_ERROR(ApplyTraceEnvironment(options.trace));
  NEREID_RETURN_IF_ERROR(CheckOptions(options));
  return options;
}

Result<bool> TakesNextArgument(std::string_view name) {
  NEREID_ASSIGN_OR_RETURN(const Flag* const flag, FindFlag(name));
  return !flag->value.empty() && !IsValueOptional(*flag);
}

std::vector<std::string> FlagNames() {
  std::vector<std::string> names;
  for (const std::span<const Flag> flags : {CoreFlags(), FrontendFlags()}) {
    for (const Flag& flag : flags) names.emplace_back(flag.name);
  }
  return names;
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
