#include "host/cli/serve_options.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <span>

#include "base/closest_name.h"
#include "host/option_values.h"

namespace nereid::cli {
namespace {

using Text = const std::string&;

// Flags of the server that `nereid serve` passes on.
using ServerFlags = std::vector<std::string>;

struct ServeFlag {
  const char* name;
  const char* value;  // placeholder in the help text
  const char* help;   // empty: the flag is not in the help text
  Status (*apply)(ServeOptions& options, ServerFlags& server, Text value);
};

Status ApplyEngine(ServeOptions& options, ServerFlags&, Text value) {
  constexpr const char* kEngines[] = {"auto", "gpu", "cpu"};
  constexpr const char* kBackends[] = {"auto", "gpu_llm", "cpu_reference"};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(value, kEngines));
  options.engine = kBackends[choice];
  return Status::Ok();
}

Status ApplyMaxModelLen(ServeOptions& options, ServerFlags&, Text value) {
  NEREID_ASSIGN_OR_RETURN(options.max_model_len, ParseIntValue(value, 1, INT32_MAX));
  return Status::Ok();
}

// "24000000", "16GB" or "1.5GiB".
Status ApplyMemoryBudget(ServeOptions& options, ServerFlags&, Text value) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},        {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 0x1p30}, {"TIB", 0x1p40}};
  const size_t digits = std::min(value.find_first_not_of("0123456789."), value.size());
  std::string unit = value.substr(digits);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const Result<double> number = ParseDoubleValue(value.substr(0, digits));
  for (const auto& [name, factor] : kUnits) {
    if (unit != name || !number.ok() || *number * factor < 1 || *number * factor > 1e18) continue;
    options.memory_budget = static_cast<uint64_t>(*number * factor);
    return Status::Ok();
  }
  return InvalidArgError("expected a size such as 16GB or 1.5GiB, got '", value, "'");
}

Status ApplyIdleSeconds(ServeOptions& options, ServerFlags&, Text value) {
  NEREID_ASSIGN_OR_RETURN(options.idle_s, ParseIntValue(value, 0, INT32_MAX));
  return Status::Ok();
}

Status ApplyPort(ServeOptions&, ServerFlags& server, Text value) {
  NEREID_RETURN_IF_ERROR(ParseIntValue(value, 0, 65535).status());
  server.push_back("--http-port=" + value);
  return Status::Ok();
}

template <const char* name>
Status PassOn(ServeOptions&, ServerFlags& server, Text value) {
  server.push_back(StrCat(name, "=", value));
  return Status::Ok();
}
constexpr char kHost[] = "--host";
constexpr char kApiKeyFile[] = "--api-key-file";
constexpr char kGrpcPort[] = "--grpc-port";

Status ApplyLora(ServeOptions& options, ServerFlags&, Text value) {
  const size_t equals = value.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == value.size()) {
    return InvalidArgError("expected NAME=FOLDER, got '", value, "'");
  }
  std::string name = value.substr(0, equals);
  for (const auto& [other, folder] : options.adapters) {
    if (other == name) return InvalidArgError("two adapters have the name '", name, "'");
  }
  options.adapters.emplace_back(std::move(name), value.substr(equals + 1));
  return Status::Ok();
}

// The method lookahead, alone or with three sizes, which the load checks.
bool IsLookahead(const std::string& value) {
  constexpr std::string_view kName = "lookahead";
  if (!value.starts_with(kName)) return false;
  std::string_view rest = std::string_view(value).substr(kName.size());
  if (rest.empty()) return true;
  int num_sizes = 0;
  for (char before = '='; rest.starts_with(before); before = ',') {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (end == 0) return false;
    rest.remove_prefix(end);
    ++num_sizes;
  }
  return rest.empty() && num_sizes == 3;
}

// A folder of weights must exist: the model would otherwise fail to load only later.
Status ApplySpeculation(ServeOptions& options, ServerFlags&, Text value) {
  constexpr std::string_view kMethods[] = {"off", "auto", "ngram", "suffix"};
  const size_t equals = value.find('=');
  const std::string method = value.substr(0, equals);
  if (method == "lookahead") {
    if (!IsLookahead(value)) {
      return InvalidArgError("'", value, "': expected lookahead, or ",
                             "lookahead=WINDOW,NGRAM,VERIFICATION, such as lookahead=4,3,4");
    }
    options.speculation = value;
    return Status::Ok();
  }
  if (method == "draft" || method == "eagle3" || method == "medusa") {
    const std::string folder = equals == std::string::npos ? "" : value.substr(equals + 1);
    if (!std::filesystem::exists(std::filesystem::path(folder) / "config.json")) {
      return InvalidArgError("'", value, "': expected ", method,
                             "=FOLDER, the folder of a checkpoint with config.json");
    }
    options.speculation = StrCat(method, "=", std::filesystem::absolute(folder).string());
    return Status::Ok();
  }
  if (std::find(std::begin(kMethods), std::end(kMethods), value) == std::end(kMethods)) {
    return InvalidArgError("expected off, auto, ngram, suffix, lookahead, lookahead=W,N,G, ",
                           "draft=FOLDER, eagle3=FOLDER or medusa=FOLDER, got '", value, "'");
  }
  options.speculation = value;
  return Status::Ok();
}

// The model that parses answers knows the names, and lists them if it does not know this one.
Status ApplyChatParser(ServeOptions& options, ServerFlags&, Text value) {
  const auto is_name_byte = [](unsigned char byte) { return std::isalnum(byte) || byte == '_'; };
  if (value.empty() || !std::all_of(value.begin(), value.end(), is_name_byte)) {
    return InvalidArgError("expected auto, none or the name of a family, got '", value, "'");
  }
  options.chat_parser = value;
  return Status::Ok();
}

Status RefuseRepository(ServeOptions&, ServerFlags&, Text) {
  return UnsupportedError(
      "not supported with 'nereid serve', which makes its repository itself; 'nereid "
      "--model-repository' serves one");
}

constexpr ServeFlag kFlags[] = {
    {"--name", "name",
     "the name of the model; once for each checkpoint. Default: the last part of the folder or id",
     [](ServeOptions& options, ServerFlags&, Text value) {
       options.names.push_back(value);
       return Status::Ok();
     }},
    {"--chat-template", "file", "a chat template to use in place of the checkpoint's",
     [](ServeOptions& options, ServerFlags&, Text value) {
       options.chat_template = value;
       return Status::Ok();
     }},
    {"--chat-parser", "auto|none|family",
     "how reasoning and tool calls are found in answers. Default: auto, by the chat template",
     &ApplyChatParser},
    {"--json-whitespace", "bytes",
     "the longest run of white space between tokens of JSON that has a given form, 0 for none. "
     "Default: 32",
     [](ServeOptions& options, ServerFlags&, Text value) {
       NEREID_ASSIGN_OR_RETURN(options.json_whitespace, ParseIntValue(value, 0, 1000));
       return Status::Ok();
     }},
    {"--max-model-len", "tokens", "the longest sequence. Default: the limit of the model",
     &ApplyMaxModelLen},
    {"--memory-budget", "size",
     "the most memory for the weights of loaded models, such as 16GB; others are loaded when a "
     "request names them. Default: all are loaded",
     &ApplyMemoryBudget},
    {"--idle-seconds", "number",
     "unload a model that has had no request for so long, until one names it. Default: 0, never",
     &ApplyIdleSeconds},
    {"--engine", "auto|gpu|cpu", "where the model runs. Default: auto, a GPU if there is one",
     &ApplyEngine},
    {kHost, "address", "the address of all ports. Default: 127.0.0.1", &PassOn<kHost>},
    {"--port", "number", "the HTTP port. Default: 8000", &ApplyPort},
    {kGrpcPort, "number", "the gRPC port. Default: 8001", &PassOn<kGrpcPort>},
    {kApiKeyFile, "file", "API keys and their rights; then every request needs a key",
     &PassOn<kApiKeyFile>},
    {"--lora", "name=folder",
     "a LoRA adapter in PEFT's format, which requests name as their model; once for each",
     &ApplyLora},
    {"--speculate", "off|auto|ngram|suffix|lookahead[=W,N,G]|draft=DIR|eagle3=DIR|medusa=DIR",
     "draft tokens from the prompt and the answer, or by the model or head in DIR, verified "
     "together. Default: off",
     &ApplySpeculation},
    {"--model-repository", "path", "", &RefuseRepository},
    {"--model-store", "path", "", &RefuseRepository},
};

const ServeFlag* FindServeFlag(const std::string& name) {
  for (const ServeFlag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string UnknownOption(const std::string& name) {
  std::vector<std::string> names = FlagNames();
  for (const ServeFlag& flag : kFlags) names.emplace_back(flag.name);
  return StrCat("unknown option '", name, "'", DidYouMean(name, names));
}

Status CheckServeOptions(const ServeOptions& options) {
  if (options.checkpoints.empty()) {
    return InvalidArgError("expected a checkpoint: a folder, organization/model of a hub, or demo");
  }
  if (!options.names.empty() && options.names.size() != options.checkpoints.size()) {
    return InvalidArgError("--name: expected one for each checkpoint, got ", options.names.size(),
                           " for ", options.checkpoints.size());
  }
  if (!options.adapters.empty() && options.checkpoints.size() > 1) {
    return InvalidArgError("--lora: expected one checkpoint, got ", options.checkpoints.size());
  }
  if (!options.chat_template.empty() && options.checkpoints.size() > 1) {
    return InvalidArgError("--chat-template: expected one checkpoint, got ",
                           options.checkpoints.size());
  }
  if (options.chat_parser != "auto" && options.checkpoints.size() > 1) {
    return InvalidArgError("--chat-parser: expected one checkpoint, got ",
                           options.checkpoints.size());
  }
  return Status::Ok();
}

}  // namespace

Result<ServeOptions> ParseServeOptions(const std::vector<std::string>& args) {
  ServeOptions options;
  // Log lines of a server are for operators. These come first, so that flags change them.
  ServerFlags server{"--log-info=false"};
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (!arg.starts_with("-")) {
      options.checkpoints.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    const std::string name = arg.substr(0, equals);
    if (name == "--help" || name == "-h") {
      options.show_help = true;
      return options;
    }
    const ServeFlag* const flag = FindServeFlag(name);
    bool takes_next = true;
    if (flag == nullptr) {
      const Result<bool> known = TakesNextArgument(name);
      if (!known.ok()) {
        const bool is_ambiguous = known.status().message().find("ambiguous") != std::string::npos;
        return is_ambiguous ? known.status() : InvalidArgError(UnknownOption(name));
      }
      takes_next = *known;
    }
    std::string value = equals == std::string::npos ? "" : arg.substr(equals + 1);
    if (equals == std::string::npos && takes_next) {
      if (i + 1 == args.size()) return InvalidArgError(name, ": expected a value");
      value = args[++i];
    }
    if (flag != nullptr) {
      NEREID_RETURN_IF_ERROR(flag->apply(options, server, value).WithContext(name));
    } else {
      const bool has_value = equals != std::string::npos || takes_next;
      server.push_back(has_value ? StrCat(name, "=", value) : name);
    }
  }
  NEREID_RETURN_IF_ERROR(CheckServeOptions(options));
  NEREID_ASSIGN_OR_RETURN(options.server, ParseOptions(server));
  options.server.openai.serves_metrics = true;
  std::optional<bool>& console = options.server.openai.console;
  if (!console) console = openai::IsLocalAddress(options.server.http.address);
  return options;
}

std::string ServeUsageText() {
  std::string text =
      "Usage: nereid serve CHECKPOINT... [options]\n"
      "CHECKPOINT is a folder in Hugging Face's layout, organization/model[@revision] of a hub, "
      "or\n"
      "demo, a small story model. Other flags of the server work, too ('nereid --help').\n\n";
  for (const ServeFlag& flag : kFlags) {
    if (*flag.help == '\0') continue;
    std::string line = StrCat("  ", flag.name, " <", flag.value, ">");
    line.resize(std::max<size_t>(line.size() + 1, 28), ' ');
    text += StrCat(line, flag.help, "\n");
  }
  return text;
}

}  // namespace nereid::cli
