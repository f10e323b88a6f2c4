// Writes the outputs of a request, once its prompts are token ids.
#include "backends/tokenizer/preprocessing.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/chat/parsers/call_guide.h"
#include "backends/tokenizer/tensor_specs.h"
#include "backends/tokenizer/word_lists.h"
#include "base/json_reader.h"
#include "nereid/tensor_view.h"

namespace nereid::tokenizer {
namespace {

// Returns the words of each batch row: [rows][words].
Result<std::vector<std::vector<std::string_view>>> ReadWords(const RequestTensors& tensors,
                                                             TensorView& view) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> words, view.Strings());
  NEREID_ASSIGN_OR_RETURN(const size_t per_row, tensors.ElementsPerRow(view, words.size()));
  std::vector<std::vector<std::string_view>> rows;
  for (auto it = words.begin(); static_cast<int64_t>(rows.size()) < tensors.batch_size();
       it += per_row) {
    rows.emplace_back(it, it + per_row);
  }
  return rows;
}

}  // namespace

Preprocessing::Preprocessing(std::shared_ptr<const Tokenizer> tokenizer,
                             std::shared_ptr<const ChatTemplate> chat_template,
                             const ParserFamily* family, EncodeOptions options,
                             bool trusts_special_tokens)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      family_(family),
      options_(options),
      trusts_special_tokens_(trusts_special_tokens),
      end_id_(tokenizer_->special_ids().eos.value_or(-1)),
      pad_id_(tokenizer_->special_ids().pad.value_or(std::max(end_id_, 0))) {}

Status Preprocessing::Process(Request& request, const ModelConfig& config) const {
  RequestTensors tensors(request, config);
  NEREID_ASSIGN_OR_RETURN(Rows ids, ReadPrompts(tensors, request));
  NEREID_RETURN_IF_ERROR(TruncatePrompts(tensors, ids));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> end_ids,
                          ReadIdsOr(tensors, "END_ID", end_id_));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> pad_ids,
                          ReadIdsOr(tensors, "PAD_ID", pad_id_));

  NEREID_RETURN_IF_ERROR(WriteIds(tensors, "INPUT_ID", "REQUEST_INPUT_LEN", ids, pad_ids));
  NEREID_RETURN_IF_ERROR(WriteDecoderIds(tensors, pad_ids));
  NEREID_RETURN_IF_ERROR(WritePromptEnds(tensors, ids));
  NEREID_RETURN_IF_ERROR(WriteGuide(tensors, ids));
  NEREID_RETURN_IF_ERROR(WriteReasoningMarkers(tensors, ids));
  NEREID_ASSIGN_OR_RETURN(const auto max_tokens, tensors.OptionalInput("REQUEST_OUTPUT_LEN"));
  // Without the input there is no output either: the engine takes the limit from the context.
  if (max_tokens)
    NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput("REQUEST_OUTPUT_LEN", "REQUEST_OUTPUT_LEN"));
  NEREID_RETURN_IF_ERROR(tensors.SetOutput<int32_t>("OUT_END_ID", {1}, end_ids));
  NEREID_RETURN_IF_ERROR(tensors.SetOutput<int32_t>("OUT_PAD_ID", {1}, pad_ids));
  NEREID_RETURN_IF_ERROR(WriteWordList(tensors, "BAD_WORDS_IDS", "BAD_WORDS_DICT"));
  NEREID_RETURN_IF_ERROR(WriteWordList(tensors, "STOP_WORDS_IDS", "STOP_WORDS_DICT"));
  NEREID_RETURN_IF_ERROR(WriteEmbeddingBias(tensors));

  return WriteExtraIds(tensors, ids);
}

// The extra id marks the places of a prompt table, whose ids are above the vocabulary. A text has
// none.
Status Preprocessing::WriteExtraIds(RequestTensors& tensors, const Rows& ids) const {
  NEREID_ASSIGN_OR_RETURN(auto view, tensors.OptionalInput("PROMPT_TABLE_EXTRA_ID"));
  if (!view) return {};
  NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> extra, view->As<uint64_t>());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*view, extra.size(), "value"));
  size_t width = 0;
  for (const auto& row : ids) width = std::max(width, row.size());
  std::vector<uint64_t> marks(width * ids.size(), 0);
  for (size_t row = 0; row < ids.size(); ++row) {
    for (size_t i = 0; i < ids[row].size(); ++i) {
      if (ids[row][i] >= tokenizer_->vocab_size()) marks[row * width + i] = extra[row];
    }
  }
  return tensors.SetOutput<uint64_t>("OUT_PROMPT_TABLE_EXTRA_IDS", {static_cast<int64_t>(width)},
                                     marks);
}

// Pads the rows on the right to the longest one and writes their lengths to a second output.
Status Preprocessing::WriteIds(RequestTensors& tensors, const char* ids_name,
                               const char* length_name, const Rows& rows,
                               const std::vector<int32_t>& pad_ids) const {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::vector<int32_t> ids, lengths;
  ids.reserve(rows.size() * width);
  for (size_t r = 0; r < rows.size(); ++r) {
    ids.insert(ids.end(), rows[r].begin(), rows[r].end());
    ids.resize((r + 1) * width, pad_ids[r]);
    lengths.push_back(static_cast<int32_t>(rows[r].size()));
  }
  NEREID_RETURN_IF_ERROR(tensors.SetOutput<int32_t>(ids_name, {static_cast<int64_t>(width)}, ids));
  return tensors.SetOutput<int32_t>(length_name, {1}, lengths);
}

// The text with which the prompt ends tells the parser of its answer whether the reasoning is open.
// The engine answers the rows of a request one by one, so that what goes past it must be of one
// row.
Status Preprocessing::WritePromptEnds(RequestTensors& tensors, const Rows& rows) const {
  if (rows.size() != 1 || !tensors.IsRequestedOutput("PROMPT_END")) return {};
  std::vector<std::string> ends;
  for (const std::vector<int32_t>& ids : rows) ends.push_back(PromptEnd(ids));
  return tensors.SetStrings("PROMPT_END", {1}, ends);
}

std::string Preprocessing::PromptEnd(const std::vector<int32_t>& ids) const {
  constexpr size_t kMaxIds = 16;  // more than any template writes behind the last message
  const size_t num_ids = std::min(kMaxIds, ids.size());
  return tokenizer_->DecodeInContext(std::span(ids).last(num_ids), {.skip_special_tokens = false});
}

// The ids by which the engine finds and ends the reasoning of an answer. There are none for a model
// whose form of reasoning is not known: the budget has no effect then.
Status Preprocessing::WriteReasoningMarkers(RequestTensors& tensors, const Rows& prompts) const {
  constexpr const char* kInput = "THINKING_TOKEN_BUDGET";
  NEREID_ASSIGN_OR_RETURN(const auto budget, tensors.OptionalInput(kInput));
  if (!budget || family_ == nullptr) return {};
  EncodeOptions options = options_;
  options.add_special_tokens = false;
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> begin,
                          tokenizer_->Encode(family_->reasoning.begin, options));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> end,
                          tokenizer_->Encode(family_->reasoning.end, options));
  std::vector<int32_t> begins, ends;
  size_t num_begun = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    const bool has_begun = HasBegunReasoning(*family_, PromptEnd(prompt));
    num_begun += has_begun ? 1 : 0;
    if (!has_begun) begins.insert(begins.end(), begin.begin(), begin.end());
    ends.insert(ends.end(), end.begin(), end.end());
  }
  if (num_begun != 0 && num_begun != prompts.size()) {
    return UnsupportedError("input '", kInput, "': ", num_begun, " of ", prompts.size(),
                            " prompts have begun the reasoning, expected none or all");
  }
  const auto size_of = [](const std::vector<int32_t>& ids) {
    return static_cast<int64_t>(ids.size());
  };
  NEREID_RETURN_IF_ERROR(tensors.SetOutput<int32_t>("THINKING_END_IDS", {size_of(end)}, ends));
  if (begins.empty()) return {};
  return tensors.SetOutput<int32_t>("THINKING_BEGIN_IDS", {size_of(begin)}, begins);
}

Status Preprocessing::WriteGuide(RequestTensors& tensors, const Rows& prompts) const {
  constexpr const char* kType = "GUIDED_DECODING_GUIDE_TYPE";
  constexpr const char* kGuide = "GUIDED_DECODING_GUIDE";
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string> forced, ForcedGuides(tensors, prompts));
  NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> type, tensors.OptionalInput(kType));
  NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> guide, tensors.OptionalInput(kGuide));
  if (forced.empty()) {
    // Without the inputs there are no outputs either.
    if (type) NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput(kType, kType));
    return guide ? tensors.CopyInputToOutput(kGuide, kGuide) : Status();
  }
  if (type || guide) {
    return InvalidArgError("input 'TOOL_CHOICE': forced tool calls, not beside '",
                           type ? kType : kGuide, "'");
  }
  if (forced.size() != prompts.size()) {
    return InvalidArgError("input 'TOOL_CHOICE': calls are forced in ", forced.size(), " of ",
                           prompts.size(), " rows, expected none or all");
  }
  const std::vector<std::string> types(forced.size(), "structural_tag");
  NEREID_RETURN_IF_ERROR(tensors.SetStrings(kType, {1}, types));
  return tensors.SetStrings(kGuide, {1}, forced);
}

Result<std::vector<std::string>> Preprocessing::ForcedGuides(const RequestTensors& tensors,
                                                             const Rows& prompts) const {
  std::vector<std::string> guides;
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> choices_view,
                          tensors.OptionalInput("TOOL_CHOICE"));
  if (!choices_view) return guides;
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> choices, choices_view->Strings());
  NEREID_ASSIGN_OR_RETURN(const JsonRows tools, ReadJsonRows(tensors, "TOOLS"));
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> parallel_view,
                          tensors.OptionalInput("PARALLEL_TOOL_CALLS"));
  std::span<const Bool> parallel;
  if (parallel_view) {
    NEREID_ASSIGN_OR_RETURN(parallel, parallel_view->As<Bool>());
  }
  for (size_t r = 0; r < choices.size() && r < prompts.size(); ++r) {
    const bool has_one_call = r < parallel.size() && !static_cast<bool>(parallel[r]);
    Result<std::string> guide = CallGuide(choices[r], tools[r], has_one_call, prompts[r]);
    if (!guide.ok()) return std::move(guide).status().WithContext("input 'TOOL_CHOICE'");
    if (!guide->empty()) guides.push_back(std::move(guide).value());
  }
  return guides;
}

// "" if nothing is forced.
Result<std::string> Preprocessing::CallGuide(std::string_view tool_choice,
                                             const nlohmann::ordered_json& tools, bool has_one_call,
                                             const std::vector<int32_t>& prompt) const {
  NEREID_ASSIGN_OR_RETURN(const ToolChoice choice, ParseToolChoice(tool_choice));
  if (!choice.is_forced) return std::string();
  if (family_ == nullptr) {
    return InvalidArgError("calls cannot be forced: the form of the model's calls is not known");
  }
  const std::string prompt_end = PromptEnd(prompt);
  return ForcedCallsGuide(
      *family_, tools, choice,
      {.chat_template = chat_template_ == nullptr ? "" : chat_template_->source(),
       .prompt_end = prompt_end,
       .has_one_call = has_one_call});
}

// Without DECODER_QUERY the decoder starts with one pad id.
Status Preprocessing::WriteDecoderIds(RequestTensors& tensors,
                                      const std::vector<int32_t>& pad_ids) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> query, tensors.OptionalInput("DECODER_QUERY"));
  Rows rows;
  if (query) {
    NEREID_ASSIGN_OR_RETURN(rows, EncodeTexts(tensors, *query));
  } else {
    for (const int32_t pad_id : pad_ids) rows.push_back({pad_id});
  }
  return WriteIds(tensors, "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN", rows, pad_ids);
}

Status Preprocessing::WriteWordList(RequestTensors& tensors, const char* output,
                                    const char* input) const {
  if (!tensors.IsRequestedOutput(output)) return {};
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput(input));
  if (!view) return tensors.SetOutput<int32_t>(output, {2, 0}, std::span<const int32_t>());
  NEREID_ASSIGN_OR_RETURN(const auto words, ReadWords(tensors, *view));
  NEREID_ASSIGN_OR_RETURN(const WordListTensor list, MakeWordLists(*tokenizer_, words));
  return tensors.SetOutput<int32_t>(output, {2, list.width}, list.values);
}

// Writes [rows, model_vocab_size]: the weight of each word is added to every id of the word.
Status Preprocessing::WriteEmbeddingBias(RequestTensors& tensors) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> words_view,
                          tensors.OptionalInput("EMBEDDING_BIAS_WORDS"));
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> weights_view,
                          tensors.OptionalInput("EMBEDDING_BIAS_WEIGHTS"));
  if (words_view.has_value() != weights_view.has_value()) {
    return InvalidArgError(
        "input '", words_view ? "EMBEDDING_BIAS_WORDS" : "EMBEDDING_BIAS_WEIGHTS", "' needs '",
        words_view ? "EMBEDDING_BIAS_WEIGHTS" : "EMBEDDING_BIAS_WORDS", "'");
  }
  if (!tensors.IsRequestedOutput("EMBEDDING_BIAS")) return {};
  if (!words_view) return tensors.SetOutput<float>("EMBEDDING_BIAS", {0}, std::span<const float>());
  NEREID_ASSIGN_OR_RETURN(const auto words, ReadWords(tensors, *words_view));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> weights, weights_view->As<float>());
  const size_t per_row = words.empty() ? 0 : words[0].size();
  if (weights.size() != words.size() * per_row) {
    return InvalidArgError("input 'EMBEDDING_BIAS_WEIGHTS': expected shape ",
                           ToString(words_view->shape()), ", the shape of the words, got ",
                           ToString(weights_view->shape()));
  }
  const auto vocab_size = static_cast<size_t>(tokenizer_->model_vocab_size());
  std::vector<float> bias(words.size() * vocab_size, 0.0f);
  for (size_t r = 0; r < words.size(); ++r) {
    for (size_t w = 0; w < per_row; ++w) {
      NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              tokenizer_->Encode(words[r][w], {.add_special_tokens = false}));
      for (const int32_t id : ids) {
        if (static_cast<size_t>(id) >= vocab_size) continue;  // the engine has no logit for this id
        bias[r * vocab_size + id] += weights[r * per_row + w];
      }
    }
  }
  return tensors.SetOutput<float>("EMBEDDING_BIAS", {static_cast<int64_t>(vocab_size)}, bias);
}

Result<std::vector<int32_t>> Preprocessing::ReadIdsOr(const RequestTensors& tensors,
                                                      const char* input, int32_t fallback) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput(input));
  if (!view) return std::vector<int32_t>(static_cast<size_t>(tensors.batch_size()), fallback);
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids, view->As<int32_t>());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*view, ids.size(), "id"));
  return std::vector<int32_t>(ids.begin(), ids.end());
}

}  // namespace nereid::tokenizer
