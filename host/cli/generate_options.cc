#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/closest_name.h"
#include "base/json_reader.h"
#include "host/cli/chat_stream.h"
#include "host/cli/generate.h"
#include "host/option_values.h"

namespace nereid::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kUsage[] =
    "Usage: nereid generate CHECKPOINT --prompt TEXT [options]\n"
    "Prints the text with which a model continues the prompt, while it arrives. CHECKPOINT is as\n"
    "for 'nereid serve': a folder, organization/model of a hub, or demo.\n\n"
    "  --prompt <text>         the beginning of the text; no chat template is applied\n"
    "  --max-tokens <number>   the longest answer. Default: 128\n"
    "  --temperature <number>  0 is greedy. Default: the checkpoint's\n"
    "  --seed <number>         of the random numbers\n"
    "  --engine <auto|gpu|cpu> where the model runs. Default: auto, a GPU if there is one\n";

// Sets the field of one option. False if the option is not one of the request.
Result<bool> Apply(const std::string& name, const std::string& value, GenerateOptions& options) {
  if (name == "--prompt") {
    options.prompt = value;
  } else if (name == "--max-tokens") {
    NEREID_ASSIGN_OR_RETURN(options.max_tokens, ParseIntValue(value, 1, INT32_MAX));
  } else if (name == "--temperature") {
    NEREID_ASSIGN_OR_RETURN(options.temperature, ParseDoubleValue(value));
  } else if (name == "--seed") {
    NEREID_ASSIGN_OR_RETURN(options.seed, ParseIntValue(value, 0, INT64_MAX));
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<GenerateOptions> ParseGenerateOptions(const std::vector<std::string>& args) {
  GenerateOptions options;
  // Only the request of this process is to be answered, on a port that the system chooses.
  std::vector<std::string> serve = {"--host=127.0.0.1", "--port=0", "--allow-grpc=false",
                                    "--allow-metrics=false", "--console=off"};
  const std::vector<std::string> known = {"--prompt", "--max-tokens", "--temperature",
                                          "--seed",   "--engine",     "--help"};
  size_t num_checkpoints = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      options.show_help = true;
      return options;
    }
    if (!name.starts_with("-")) {
      if (++num_checkpoints > 1)
        return InvalidArgError("expected one checkpoint, got '", args[i], "'");
      serve.push_back(args[i]);
      continue;
    }
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return InvalidArgError("unknown option '", name, "'", DidYouMean(name, known));
    }
    if (equals == std::string::npos && i + 1 == args.size()) {
      return InvalidArgError(name, ": expected a value");
    }
    const std::string value = equals == std::string::npos ? args[++i] : args[i].substr(equals + 1);
    Result<bool> applied = Apply(name, value, options);
    if (!applied.ok()) return std::move(applied).status().WithContext(name);
    if (!*applied) serve.push_back(StrCat(name, "=", value));
  }
  if (options.prompt.empty()) return InvalidArgError("--prompt is missing");
  NEREID_ASSIGN_OR_RETURN(options.serve, ParseServeOptions(serve));
  return options;
}

std::string GenerateUsageText() {
  return kUsage;
}

std::string GenerateBody(const GenerateOptions& options, const std::string& model) {
  Json body = {{"model", model},
               {"prompt", options.prompt},
               {"max_tokens", options.max_tokens},
               {"stream", true}};
  if (options.temperature) body["temperature"] = *options.temperature;
  if (options.seed) body["seed"] = *options.seed;
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> ParseTextDelta(const std::string& data) {
  NEREID_ASSIGN_OR_RETURN(const Json chunk, ReadJsonObject<Json>(data, "an event of the answer"));
  if (chunk.contains("error")) return UnavailableError(ErrorText(data));
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array()) {
    return InvalidArgError("an event of the answer has no choices");
  }
  if (choices->empty() || !choices->front().is_object()) return std::string();
  const auto text = choices->front().find("text");
  const bool has_text = text != choices->front().end() && text->is_string();
  return has_text ? text->get<std::string>() : std::string();
}

}  // namespace nereid::cli
