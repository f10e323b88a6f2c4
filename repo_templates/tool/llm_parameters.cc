// The parameters of the tokenizer's models, and the page about those of the engine.
#include <string>

#include "backends/llm_tables/engine_tensors.h"
#include "repo_templates/tool/llm_tables.h"

namespace nereid::repo {
namespace {

using Kind = llm::ParameterKind;

constexpr LlmParameter kTokenizerParameters[] = {
    {"mode", Kind::kChoice, "preprocessing postprocessing"},
    {"tokenizer_dir"},
    {"tokenizer_type"},
    {"add_special_tokens", Kind::kBool, "", LlmRole::kPreprocessing},
    {"skip_special_tokens", Kind::kBool, "", LlmRole::kPostprocessing},
    {"clean_up_tokenization_spaces", Kind::kBool, "", LlmRole::kPostprocessing},
    {"chat_parser"},
    {"invalid_utf8", Kind::kChoice, "replace refuse", LlmRole::kPreprocessing},
    {"truncation", Kind::kChoice, "file none", LlmRole::kPreprocessing},
    {"engine_dir"},
    {"gpt_model_path"},
    {"visual_model_path"},
    {"multimodal_model_path"},
    {"hf_model_path"},
    {"max_num_images"},
};

std::string Shape(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += StrCat(text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

std::string OutcomeOf(const llm::EngineInput& input) {
  using enum llm::InputRule;
  switch (input.rule) {
    case kUsed:
      return "works";
    case kNoted:
      return "one log line";
    case kRefuseNonEmpty:
      return "refused unless empty";
    case kRefuseTrue:
      return "refused if true";
    case kRefuseNonZero:
      return "refused unless 0";
    case kRefuseSeveral:
      return "refused if longer than one id";
    case kRefuseAboveOne:
      return "refused if above 1";
  }
  return "";
}

std::string OutcomeOf(const llm::EngineParameter& parameter) {
  using enum llm::ParameterRule;
  const std::string idle =
      *parameter.idle == '\0' ? "" : StrCat(" unless one of: ", parameter.idle);
  switch (parameter.rule) {
    case kUsed:
      return "works";
    case kUsedOnGpu:
      return "works on the GPU; one log line on the CPU";
    case kUsedOnCpu:
      return "works on the CPU; one log line on the GPU";
    case kNoted:
      return "one log line" + idle;
    case kRefused:
      return "refused" + idle;
  }
  return "";
}

}  // namespace

std::span<const LlmParameter> TokenizerParameters() {
  return kTokenizerParameters;
}

std::string EngineTablesPage() {
  std::string page = StrCat(
      "# Tensors and parameters of the `tensorrt_llm` model\n\n"
      "`nereid-repo tables` prints this page from the tables by which models are loaded, requests "
      "are read and `nereid-repo check` works.\n"
      "They cover all releases of the `inflight_batcher_llm` templates.\n\n"
      "- One log line: it ",
      llm::kTunesNothing,
      ".\n- Refused: a load or a request that asks for the feature fails with its name.\n"
      "- A configuration with other tensors is refused. Another parameter is refused if its key is "
      "close to a known one, and otherwise named in the log.\n"
      "- `decoding_mode` restricts what requests may use: `top_k` no top-p, `top_p` no top-k, "
      "these "
      "and `top_k_top_p` no beams, `beam_search` neither\n  top-k above 1 nor top-p. Values "
      "without "
      "effect pass. `lookahead` restricts nothing: it chooses lookahead decoding "
      "([speculation.md](speculation.md)).\n"
      "- `gpt_model_type` V1 changes only which metrics there are.\n\n## Inputs\n\n"
      "| input | type | dims | | what it does or asks for |\n|---|---|---|---|---|\n");
  for (const llm::EngineInput& input : llm::EngineInputs()) {
    page += StrCat("| `", input.name, "` | ", ConfigName(input.datatype), " | ", Shape(input.dims),
                   " | ", OutcomeOf(input), " | ", input.about, " |\n");
  }
  page +=
      "\n## Outputs\n\n| output | type | dims | when it is in a response |\n|---|---|---|---|\n";
  for (const llm::EngineOutput& output : llm::EngineOutputs()) {
    const bool is_set = output.rule == llm::OutputRule::kSet;
    page +=
        StrCat("| `", output.name, "` | ", ConfigName(output.datatype), " | ", Shape(output.dims),
               " | ", is_set ? "" : "refused if it is requested: ", output.about, " |\n");
  }
  page +=
      "\n## Parameters\n\n| parameter | value | | what it does or asks for |\n|---|---|---|---|\n";
  for (const llm::EngineParameter& parameter : llm::EngineParameters()) {
    page +=
        StrCat("| `", parameter.key, "` | ", llm::ExpectedValue(parameter.kind, parameter.choices),
               " | ", OutcomeOf(parameter), " | ", parameter.about, " |\n");
  }
  return page;
}

}  // namespace nereid::repo
