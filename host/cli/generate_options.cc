#include <nlohmann/json.hpp>

#include "base/command_line.h"
#include "base/json_reader.h"
#include "host/cli/chat_stream.h"
#include "host/cli/generate.h"
#include "host/option_values.h"

namespace nereid::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kGenerateUsage[] =
    "Usage: nereid generate CHECKPOINT --prompt TEXT [options]\n"
    "Prints the text with which a model continues the prompt, while it arrives. CHECKPOINT is as\n"
    "for 'nereid serve': a folder, organization/model of a hub, or demo.\n\n"
    "  --prompt <text>         the beginning of the text; no chat template is applied\n"
    "  --max-tokens <number>   the longest answer. Default: 128\n"
    "  --temperature <number>  0 is greedy. Default: the checkpoint's\n"
    "  --seed <number>         of the random numbers\n"
    "  --engine <auto|gpu|cpu> where the model runs. Default: auto, a GPU if there is one\n";

}  // namespace

Result<GenerateOptions> ParseGenerateOptions(const std::vector<std::string>& args) {
  GenerateOptions options;
  // Only the request of this process is to be answered, on a port that the system chooses.
  std::vector<std::string> serve = {"--host=127.0.0.1", "--port=0", "--allow-grpc=false",
                                    "--allow-metrics=false", "--console=off"};
  NEREID_ASSIGN_OR_RETURN(
      const CommandLine line,
      ParseCommandLine(args, {"--prompt", "--max-tokens", "--temperature", "--seed", "--engine"},
                       {}));
  options.show_help = line.Has("--help");
  if (options.show_help) return options;
  if (line.words.size() > 1) {
    return InvalidArgError("expected one checkpoint, got '", line.words[1], "'");
  }
  serve.insert(serve.end(), line.words.begin(), line.words.end());
  options.prompt = line.ValueOr("--prompt", "");
  NEREID_ASSIGN_OR_RETURN(options.max_tokens,
                          line.IntOr("--max-tokens", options.max_tokens, 1, INT32_MAX));
  if (const std::string text = line.ValueOr("--temperature", ""); !text.empty()) {
    Result<double> number = ParseDoubleValue(text);
    if (!number.ok()) return std::move(number).status().WithContext("--temperature");
    options.temperature = *number;
  }
  if (const std::string text = line.ValueOr("--seed", ""); !text.empty()) {
    Result<int64_t> number = ParseIntValue(text, 0, INT64_MAX);
    if (!number.ok()) return std::move(number).status().WithContext("--seed");
    options.seed = *number;
  }
  if (const std::string engine = line.ValueOr("--engine", ""); !engine.empty()) {
    serve.push_back("--engine=" + engine);
  }
  if (options.prompt.empty()) return InvalidArgError("--prompt is missing");
  NEREID_ASSIGN_OR_RETURN(options.serve, ParseServeOptions(serve));
  return options;
}

std::string GenerateUsageText() {
  return kGenerateUsage;
}

std::string GenerateBody(const GenerateOptions& options, const std::string& model) {
  OrderedJson body = {{"model", model},
                      {"prompt", options.prompt},
                      {"max_tokens", options.max_tokens},
                      {"stream", true}};
  if (options.temperature) body["temperature"] = *options.temperature;
  if (options.seed) body["seed"] = *options.seed;
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<std::string> ParseTextDelta(const std::string& data) {
  NEREID_ASSIGN_OR_RETURN(const OrderedJson chunk,
                          ReadJsonObject<OrderedJson>(data, "an event of the answer"));
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
