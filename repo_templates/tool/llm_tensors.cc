// The tables of the tokenizer's tensors. To add a tensor, add a line. Those of the engine are
// converted from backends/llm_tables.
#include <string_view>

#include "backends/llm_tables/engine_tensors.h"
#include "nereid/data_type.h"
#include "repo_templates/tool/llm_tables.h"

namespace nereid::repo {
namespace {

const LlmTensor kPreprocessingInputs[] = {
    {"QUERY", "STRING", "[1]", "[-1]", false},
    {"MESSAGES", "STRING", "[1]", "", false},
    {"TOOLS", "STRING", "[1]", "", false},
    {"CHAT_TEMPLATE_KWARGS", "STRING", "[1]", "", false},
    {"TOOL_CHOICE", "STRING", "[1]", "", false},
    {"PARALLEL_TOOL_CALLS", "BOOL", "[1]", "", false},
    {"GUIDED_DECODING_GUIDE_TYPE", "STRING", "[1]", "", false},
    {"GUIDED_DECODING_GUIDE", "STRING", "[1]", "", false},
    {"PROMPT_TOKEN_IDS", "INT32", "[-1]", "", false},
    {"PROMPT_VOCAB_SIZE", "INT32", "[1]", "", false},
    {"TRUNCATE_PROMPT_TOKENS", "INT32", "[1]", "", false},
    {"THINKING_TOKEN_BUDGET", "INT32", "[1]", "", false},
    {"REQUEST_OUTPUT_LEN", "INT32", "[1]", "[-1]", true},
    {"BAD_WORDS_DICT", "STRING", "[-1]", "", false},
    {"STOP_WORDS_DICT", "STRING", "[-1]", "", false},
    {"EMBEDDING_BIAS_WORDS", "STRING", "[-1]", "", false},
    {"EMBEDDING_BIAS_WEIGHTS", "FP32", "[-1]", "", false},
    {"END_ID", "INT32", "[1]", "[-1]", false},
    {"PAD_ID", "INT32", "[1]", "[-1]", false},
    {"DECODER_QUERY", "STRING", "[1]", "", false},
    {"PROMPT_TABLE_EXTRA_ID", "UINT64", "[1]", "", false},
    {"IMAGE_BYTES", "UINT8", "[-1,-1,-1,-1]", "", false},
    {"IMAGE_URL", "STRING", "[1]", "", false},
    {"VIDEO_BYTES", "UINT8", "[-1,-1,-1,-1]", "", false},
    {"IMAGES", "STRING", "[-1]", "", false},
};

const LlmTensor kPreprocessingOutputs[] = {
    {"INPUT_ID", "INT32", "[-1]", "", false},
    {"REQUEST_INPUT_LEN", "INT32", "[1]", "", false},
    {"BAD_WORDS_IDS", "INT32", "[2,-1]", "", false},
    {"STOP_WORDS_IDS", "INT32", "[2,-1]", "", false},
    {"EMBEDDING_BIAS", "FP32", "[-1]", "", false},
    {"REQUEST_OUTPUT_LEN", "INT32", "[-1]", "", false},
    {"OUT_END_ID", "INT32", "[1]", "[-1]", false},
    {"OUT_PAD_ID", "INT32", "[1]", "[-1]", false},
    {"DECODER_INPUT_ID", "INT32", "[-1]", "", false},
    {"REQUEST_DECODER_INPUT_LEN", "INT32", "[1]", "", false},
    {"PROMPT_END", "STRING", "[1]", "", false},
    {"GUIDED_DECODING_GUIDE_TYPE", "STRING", "[1]", "", false},
    {"GUIDED_DECODING_GUIDE", "STRING", "[1]", "", false},
    {"THINKING_BEGIN_IDS", "INT32", "[-1]", "", false},
    {"THINKING_END_IDS", "INT32", "[-1]", "", false},
    {"OUT_PROMPT_TABLE_EXTRA_IDS", "UINT64", "[-1]", "", false},
    {"PIXEL_VALUES", "FP16", "[-1,-1,-1,-1]", "", false},
    {"ASPECT_RATIO_IDS", "INT64", "[-1]", "", false},
    {"ASPECT_RATIO_MASK", "INT64", "[-1,-1]", "", false},
    {"CROSS_ATTENTION_MASK", "INT64", "[-1,-1,-1]", "", false},
    {"IMAGE_SIZES", "INT64", "[-1,2]", "[2]", false},
    {"IS_VIDEO_INPUT", "BOOL", "[1]", "", false},
    {"ATTENTION_MASK", "INT64", "[-1]", "", false},
    {"IMAGE_GRID_THW", "INT64", "[3]", "", false},
    {"VISION_INPUT_ID", "INT32", "[-1]", "", false},
};

const LlmTensor kPostprocessingInputs[] = {
    {"TOKENS_BATCH", "INT32", "[-1,-1]", "", true},
    {"SEQUENCE_LENGTH", "INT32", "[-1]", "", false},
    {"CUM_LOG_PROBS", "FP32", "[-1]", "", false},
    {"OUTPUT_LOG_PROBS", "FP32", "[-1,-1]", "", false},
    {"CONTEXT_LOGITS", "FP32", "[-1,-1]", "", false},
    {"GENERATION_LOGITS", "FP32", "[-1,-1,-1]", "", false},
    {"BATCH_INDEX", "INT32", "[1]", "", false},
    {"PRIOR_IDS", "INT32", "[-1]", "", false},
    {"FINISH_REASON", "STRING", "[1]", "", false},
    {"SKIP_SPECIAL_TOKENS", "BOOL", "[1]", "", false},
    {"TOP_LOGPROB_IDS", "INT32", "[-1,-1]", "", false},
    {"PROMPT_IDS", "INT32", "[-1]", "", false},
    {"PROMPT_TOP_LOGPROB_IDS", "INT32", "[-1,-1]", "", false},
    {"PARSE_OUTPUT", "BOOL", "[1]", "", false},
    {"TOOLS", "STRING", "[1]", "", false},
    {"PROMPT_END", "STRING", "[1]", "", false},
    {"STREAM_POSITION", "UINT64", "[2]", "", false},
};

const LlmTensor kPostprocessingOutputs[] = {
    {"OUTPUT", "STRING", "[-1]", "", false},
    {"REASONING", "STRING", "[-1]", "", false},
    {"TOOL_CALLS", "STRING", "[-1]", "", false},
    {"NUM_REASONING_TOKENS", "INT32", "[-1]", "", false},
    {"TOKEN_TEXTS", "STRING", "[-1]", "", false},
    {"TOP_TOKEN_TEXTS", "STRING", "[-1,-1]", "", false},
    {"PROMPT_TOKEN_TEXTS", "STRING", "[-1]", "", false},
    {"PROMPT_TOP_TOKEN_TEXTS", "STRING", "[-1,-1]", "", false},
    {"OUT_CUM_LOG_PROBS", "FP32", "[-1]", "", false},
    {"OUT_OUTPUT_LOG_PROBS", "FP32", "[-1,-1]", "", false},
    {"OUT_CONTEXT_LOGITS", "FP32", "[-1,-1]", "", false},
    {"OUT_GENERATION_LOGITS", "FP32", "[-1,-1,-1]", "", false},
    {"OUT_BATCH_INDEX", "INT32", "[1]", "", false},
};

// Without "TYPE_", or "*" for any floating-point type.
std::string TypeText(DataType datatype, bool any_float) {
  constexpr size_t kPrefix = std::string_view("TYPE_").size();
  return any_float ? "*" : std::string(std::string_view(ConfigName(datatype)).substr(kPrefix));
}

const std::vector<LlmTensor>& EngineInputTensors() {
  static const std::vector<LlmTensor> tensors = [] {
    std::vector<LlmTensor> all;
    for (const llm::EngineInput& input : llm::EngineInputs()) {
      all.push_back({std::string(input.name), TypeText(input.datatype, input.any_float),
                     DimsText(input.dims), "", !input.is_optional});
    }
    return all;
  }();
  return tensors;
}

const std::vector<LlmTensor>& EngineOutputTensors() {
  static const std::vector<LlmTensor> tensors = [] {
    std::vector<LlmTensor> all;
    for (const llm::EngineOutput& output : llm::EngineOutputs()) {
      all.push_back({output.name, TypeText(output.datatype, output.any_float),
                     DimsText(output.dims), "", false});
    }
    return all;
  }();
  return tensors;
}

}  // namespace

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += StrCat(text.size() > 1 ? "," : "", dim);
  return text + "]";
}

std::span<const LlmTensor> LlmInputs(LlmRole role) {
  switch (role) {
    case LlmRole::kPreprocessing:
      return kPreprocessingInputs;
    case LlmRole::kEngine:
      return EngineInputTensors();
    case LlmRole::kPostprocessing:
      return kPostprocessingInputs;
    case LlmRole::kNone:
      break;
  }
  return {};
}

std::span<const LlmTensor> LlmOutputs(LlmRole role) {
  switch (role) {
    case LlmRole::kPreprocessing:
      return kPreprocessingOutputs;
    case LlmRole::kEngine:
      return EngineOutputTensors();
    case LlmRole::kPostprocessing:
      return kPostprocessingOutputs;
    case LlmRole::kNone:
      break;
  }
  return {};
}

const LlmTensor* FindLlmTensor(std::span<const LlmTensor> tensors, std::string_view name) {
  for (const LlmTensor& tensor : tensors) {
    if (name == tensor.name) return &tensor;
  }
  return nullptr;
}

std::vector<std::string> NamesOf(std::span<const LlmTensor> tensors) {
  std::vector<std::string> names;
  for (const LlmTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace nereid::repo
