// See tensor_specs.h.
#include "backends/tokenizer/tensor_specs.h"

#include <algorithm>
#include <array>

namespace nereid::tokenizer {
namespace {

struct SupportedTensor {
  const char* name;
  DataType datatype;  // kInvalid means any data type
  std::vector<int64_t>
      dims;  // used to complete an empty configuration; empty: the tensor is not added
  bool is_required = false;
};

constexpr DataType kBytes = DataType::kBytes, kInt32 = DataType::kInt32, kFp32 = DataType::kFp32,
                   kUint64 = DataType::kUint64, kBool = DataType::kBool, kAny = DataType::kInvalid;

constexpr std::array<const char*, 6> kMultimodal = {
    "IMAGE_BYTES", "IMAGE_URL", "VIDEO_BYTES", "IMAGES", "IMAGE", "PROMPT_EMBEDDING_TABLE"};

struct SupportedTensors {
  std::vector<SupportedTensor> inputs, outputs;
};

const SupportedTensors& PreprocessingTensors() {
  static const SupportedTensors lists = {{{"QUERY", kBytes, {1}},
                                          {"REQUEST_OUTPUT_LEN", kInt32, {1}, true},
                                          {"BAD_WORDS_DICT", kBytes, {-1}},
                                          {"STOP_WORDS_DICT", kBytes, {-1}},
                                          {"EMBEDDING_BIAS_WORDS", kBytes, {-1}},
                                          {"EMBEDDING_BIAS_WEIGHTS", kFp32, {-1}},
                                          {"END_ID", kInt32, {1}},
                                          {"PAD_ID", kInt32, {1}},
                                          {"MESSAGES", kBytes, {1}},
                                          {"PROMPT_TOKEN_IDS", kInt32, {-1}},
                                          {"TOOLS", kBytes, {1}},
                                          {"CHAT_TEMPLATE_KWARGS", kBytes, {1}},
                                          {"TOOL_CHOICE", kBytes, {1}},
                                          {"PARALLEL_TOOL_CALLS", kBool, {1}},
                                          {"GUIDED_DECODING_GUIDE_TYPE", kBytes, {1}},
                                          {"GUIDED_DECODING_GUIDE", kBytes, {1}},
                                          {"PROMPT_VOCAB_SIZE", kInt32, {1}},
                                          {"TRUNCATE_PROMPT_TOKENS", kInt32, {1}},
                                          {"THINKING_TOKEN_BUDGET", kInt32, {1}},
                                          {"DECODER_QUERY", kBytes, {1}},
                                          {"PROMPT_TABLE_EXTRA_ID", kUint64, {1}},
                                          {"IMAGE_BYTES", kAny, {}},
                                          {"IMAGE_URL", kAny, {}},
                                          {"VIDEO_BYTES", kAny, {}},
                                          {"IMAGES", kAny, {}},
                                          {"IMAGE", kAny, {}},
                                          {"PROMPT_EMBEDDING_TABLE", kAny, {}}},
                                         {{"INPUT_ID", kInt32, {-1}},
                                          {"REQUEST_INPUT_LEN", kInt32, {1}},
                                          {"BAD_WORDS_IDS", kInt32, {2, -1}},
                                          {"STOP_WORDS_IDS", kInt32, {2, -1}},
                                          {"EMBEDDING_BIAS", kFp32, {-1}},
                                          {"REQUEST_OUTPUT_LEN", kInt32, {-1}},
                                          {"OUT_END_ID", kInt32, {1}},
                                          {"OUT_PAD_ID", kInt32, {1}},
                                          {"DECODER_INPUT_ID", kInt32, {-1}},
                                          {"REQUEST_DECODER_INPUT_LEN", kInt32, {1}},
                                          {"PROMPT_END", kBytes, {}},
                                          {"GUIDED_DECODING_GUIDE_TYPE", kBytes, {}},
                                          {"GUIDED_DECODING_GUIDE", kBytes, {}},
                                          {"THINKING_BEGIN_IDS", kInt32, {}},
                                          {"THINKING_END_IDS", kInt32, {}},
                                          {"OUT_PROMPT_TABLE_EXTRA_IDS", kUint64, {-1}},
                                          {"OUT_PROMPT_EMBEDDING_TABLE", kAny, {}},
                                          {"PIXEL_VALUES", kAny, {}},
                                          {"ASPECT_RATIO_IDS", kAny, {}},
                                          {"ASPECT_RATIO_MASK", kAny, {}},
                                          {"CROSS_ATTENTION_MASK", kAny, {}},
                                          {"IMAGE_SIZES", kAny, {}},
                                          {"IS_VIDEO_INPUT", kAny, {}},
                                          {"ATTENTION_MASK", kAny, {}},
                                          {"IMAGE_GRID_THW", kAny, {}},
                                          {"VISION_INPUT_ID", kAny, {}}}};
  return lists;
}

const SupportedTensors& PostprocessingTensors() {
  static const SupportedTensors lists = {{{"TOKENS_BATCH", kInt32, {-1, -1}, true},
                                          {"SEQUENCE_LENGTH", kInt32, {-1}, true},
                                          {"PRIOR_IDS", kInt32, {-1}},
                                          {"FINISH_REASON", kBytes, {1}},
                                          {"CUM_LOG_PROBS", kFp32, {-1}},
                                          {"OUTPUT_LOG_PROBS", kFp32, {-1, -1}},
                                          {"CONTEXT_LOGITS", kAny, {}},
                                          {"GENERATION_LOGITS", kAny, {}},
                                          {"BATCH_INDEX", kInt32, {}},
                                          {"SKIP_SPECIAL_TOKENS", kBool, {1}},
                                          {"TOP_LOGPROB_IDS", kInt32, {-1, -1}},
                                          {"PROMPT_IDS", kInt32, {-1}},
                                          {"PROMPT_TOP_LOGPROB_IDS", kInt32, {-1, -1}},
                                          {"PARSE_OUTPUT", kBool, {1}},
                                          {"TOOLS", kBytes, {1}},
                                          {"PROMPT_END", kBytes, {1}},
                                          {"STREAM_POSITION", kUint64, {2}}},
                                         {{"OUTPUT", kBytes, {-1}},
                                          {"REASONING", kBytes, {-1}},
                                          {"TOOL_CALLS", kBytes, {-1}},
                                          {"NUM_REASONING_TOKENS", kInt32, {-1}},
                                          {"TOKEN_TEXTS", kBytes, {-1}},
                                          {"TOP_TOKEN_TEXTS", kBytes, {-1, -1}},
                                          {"PROMPT_TOKEN_TEXTS", kBytes, {-1}},
                                          {"PROMPT_TOP_TOKEN_TEXTS", kBytes, {-1, -1}},
                                          {"OUT_CUM_LOG_PROBS", kFp32, {-1}},
                                          {"OUT_OUTPUT_LOG_PROBS", kFp32, {-1, -1}},
                                          {"OUT_CONTEXT_LOGITS", kAny, {}},
                                          {"OUT_GENERATION_LOGITS", kAny, {}},
                                          {"OUT_BATCH_INDEX", kInt32, {}}}};
  return lists;
}

const SupportedTensors& TensorsOf(BackendMode mode) {
  return mode == BackendMode::kPreprocessing ? PreprocessingTensors() : PostprocessingTensors();
}

const SupportedTensor* Find(const std::vector<SupportedTensor>& tensors, const std::string& name) {
  for (const SupportedTensor& tensor : tensors) {
    if (name == tensor.name) return &tensor;
  }
  return nullptr;
}

// Templates of TensorRT-LLM before 0.7 declare the length of the output as UINT32. It is only
// copied.
bool Accepts(const SupportedTensor& tensor, DataType datatype) {
  if (tensor.datatype == kAny || tensor.datatype == datatype) return true;
  return std::string_view(tensor.name) == "REQUEST_OUTPUT_LEN" && datatype == DataType::kUint32;
}

// Templates of release 0.5 decode whole rows of TOKENS_BATCH.
bool MayBeUndeclared(const SupportedTensor& tensor) {
  return std::string_view(tensor.name) == "SEQUENCE_LENGTH";
}

Status CheckTensorList(const char* what, BackendMode mode,
                       const std::vector<TensorSpec>& configured,
                       const std::vector<SupportedTensor>& tensors) {
  for (const TensorSpec& spec : configured) {
    const SupportedTensor* tensor = Find(tensors, spec.name);
    if (tensor == nullptr) {
      return InvalidArgError(what, " '", spec.name, "': mode ", ModeName(mode),
                             " has none of this name");
    }
    if (!Accepts(*tensor, spec.datatype)) {
      return InvalidArgError(what, " '", spec.name, "': expected ", ConfigName(tensor->datatype),
                             ", config.pbtxt says ", ConfigName(spec.datatype));
    }
  }
  return {};
}

bool HasInput(const ModelConfig& config, const char* name) {
  return std::any_of(config.inputs().begin(), config.inputs().end(),
                     [&](const TensorSpec& spec) { return spec.name == name; });
}

bool HasPrompt(const ModelConfig& config) {
  return HasInput(config, "QUERY") || HasInput(config, "MESSAGES") ||
         HasInput(config, "PROMPT_TOKEN_IDS");
}

}  // namespace

const char* ModeName(BackendMode mode) {
  return mode == BackendMode::kPreprocessing ? "preprocessing" : "postprocessing";
}

Result<BackendMode> ReadMode(const ModelConfig& config) {
  const std::string mode = config.parameters().String("mode");
  if (mode == "preprocessing") return BackendMode::kPreprocessing;
  if (mode == "postprocessing") return BackendMode::kPostprocessing;
  if (!mode.empty()) {
    return InvalidArgError("parameter 'mode': expected preprocessing or postprocessing, got '",
                           mode, "'");
  }
  if (HasPrompt(config)) return BackendMode::kPreprocessing;
  if (HasInput(config, "TOKENS_BATCH")) return BackendMode::kPostprocessing;
  return InvalidArgError("parameter 'mode': expected preprocessing or postprocessing, got none");
}

Status CompleteTensors(BackendMode mode, ConfigDraft& draft) {
  const bool no_inputs = draft.json()["input"].elements().empty();
  const bool no_outputs = draft.json()["output"].elements().empty();
  for (const SupportedTensor& tensor : TensorsOf(mode).inputs) {
    if (!no_inputs || tensor.dims.empty()) continue;
    NEREID_RETURN_IF_ERROR(
        draft.AddInput({tensor.name, tensor.datatype, tensor.dims, !tensor.is_required}));
  }
  for (const SupportedTensor& tensor : TensorsOf(mode).outputs) {
    if (!no_outputs || tensor.dims.empty()) continue;
    NEREID_RETURN_IF_ERROR(draft.AddOutput({tensor.name, tensor.datatype, tensor.dims, false}));
  }
  return {};
}

Status CheckTensors(BackendMode mode, const ModelConfig& config) {
  const SupportedTensors& lists = TensorsOf(mode);
  NEREID_RETURN_IF_ERROR(CheckTensorList("input", mode, config.inputs(), lists.inputs));
  NEREID_RETURN_IF_ERROR(CheckTensorList("output", mode, config.outputs(), lists.outputs));
  if (mode == BackendMode::kPreprocessing && !HasPrompt(config)) {
    return InvalidArgError(
        "inputs 'QUERY', 'MESSAGES' and 'PROMPT_TOKEN_IDS' are all missing from config.pbtxt");
  }
  for (const SupportedTensor& tensor : lists.inputs) {
    if (tensor.is_required && !HasInput(config, tensor.name) && !MayBeUndeclared(tensor)) {
      return InvalidArgError("input '", tensor.name, "' is missing from config.pbtxt");
    }
  }
  return {};
}

std::span<const char* const> MultimodalInputs() {
  return kMultimodal;
}

}  // namespace nereid::tokenizer
