// See preprocessing.h.
#include "backends/tokenizer/preprocessing.h"

#include <algorithm>

#include "backends/tokenizer/tensor_specs.h"
#include "backends/tokenizer/word_lists.h"
#include "nereid/shape.h"

namespace nereid::tokenizer {
namespace {

Status RefuseMultimodal(const RequestIo& io) {
  for (const char* name : MultimodalInputs()) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> view, io.Optional(name));
    if (view) return UnsupportedError("input '", name, "': images and videos are not supported");
  }
  return {};
}

// The words of each row. [rows][words]
Result<std::vector<std::vector<std::string_view>>> WordsOf(const RequestIo& io, TensorView& view) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> words, view.Strings());
  NEREID_ASSIGN_OR_RETURN(const size_t per_row, io.RowSize(view, words.size()));
  std::vector<std::vector<std::string_view>> rows;
  for (auto it = words.begin(); static_cast<int64_t>(rows.size()) < io.rows(); it += per_row) {
    rows.emplace_back(it, it + per_row);
  }
  return rows;
}

}  // namespace

Preprocessing::Preprocessing(std::shared_ptr<const Tokenizer> tokenizer, EncodeOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(options),
      end_id_(tokenizer_->special_ids().eos.value_or(-1)),
      pad_id_(tokenizer_->special_ids().pad.value_or(std::max(end_id_, 0))) {}

Status Preprocessing::Answer(Request& request, const ModelConfig& config) const {
  RequestIo io(request, config);
  NEREID_ASSIGN_OR_RETURN(TensorView query, request.Input("QUERY"));
  NEREID_RETURN_IF_ERROR(io.SetRows(query));
  NEREID_RETURN_IF_ERROR(RefuseMultimodal(io));
  NEREID_ASSIGN_OR_RETURN(const Rows ids, EncodeTexts(io, query));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> end_ids, IdsOr(io, "END_ID", end_id_));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> pad_ids, IdsOr(io, "PAD_ID", pad_id_));

  NEREID_RETURN_IF_ERROR(EmitIds(io, "INPUT_ID", "REQUEST_INPUT_LEN", ids, pad_ids));
  NEREID_RETURN_IF_ERROR(EmitDecoderIds(io, pad_ids));
  NEREID_RETURN_IF_ERROR(io.Required("REQUEST_OUTPUT_LEN").status());
  NEREID_RETURN_IF_ERROR(io.PassOn("REQUEST_OUTPUT_LEN", "REQUEST_OUTPUT_LEN"));
  NEREID_RETURN_IF_ERROR(io.Emit<int32_t>("OUT_END_ID", {1}, end_ids));
  NEREID_RETURN_IF_ERROR(io.Emit<int32_t>("OUT_PAD_ID", {1}, pad_ids));
  NEREID_RETURN_IF_ERROR(EmitWordList(io, "BAD_WORDS_IDS", "BAD_WORDS_DICT"));
  NEREID_RETURN_IF_ERROR(EmitWordList(io, "STOP_WORDS_IDS", "STOP_WORDS_DICT"));
  NEREID_RETURN_IF_ERROR(EmitEmbeddingBias(io));

  // Extra ids mark positions of a prompt table, which a text has none of.
  NEREID_ASSIGN_OR_RETURN(const auto extra, io.Optional("PROMPT_TABLE_EXTRA_ID"));
  if (!extra) return {};
  size_t width = 0;
  for (const auto& row : ids) width = std::max(width, row.size());
  return io.Emit<uint64_t>("OUT_PROMPT_TABLE_EXTRA_IDS", {static_cast<int64_t>(width)},
                           std::vector<uint64_t>(width * ids.size(), 0));
}

// One text a row.
Result<Preprocessing::Rows> Preprocessing::EncodeTexts(const RequestIo& io,
                                                       TensorView& view) const {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view.Strings());
  if (static_cast<int64_t>(texts.size()) != io.rows()) {
    return InvalidArgError("input '", view.name(), "': expected 1 text a row, got shape ",
                           ToString(view.shape()));
  }
  Rows rows;
  for (const std::string_view text : texts) {
    auto ids = tokenizer_->Encode(text, options_);
    if (!ids.ok()) {
      return std::move(ids).status().WithContext(StrCat("input '", view.name(), "'"));
    }
    rows.push_back(std::move(ids).value());
  }
  return rows;
}

// Rows are padded to the longest on the right; the true lengths go beside them.
Status Preprocessing::EmitIds(RequestIo& io, const char* ids_name, const char* length_name,
                              const Rows& rows, const std::vector<int32_t>& pad_ids) const {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::vector<int32_t> ids, lengths;
  ids.reserve(rows.size() * width);
  for (size_t r = 0; r < rows.size(); ++r) {
    ids.insert(ids.end(), rows[r].begin(), rows[r].end());
    ids.resize((r + 1) * width, pad_ids[r]);
    lengths.push_back(static_cast<int32_t>(rows[r].size()));
  }
  NEREID_RETURN_IF_ERROR(io.Emit<int32_t>(ids_name, {static_cast<int64_t>(width)}, ids));
  return io.Emit<int32_t>(length_name, {1}, lengths);
}

// Without a text for the decoder it starts with one pad id.
Status Preprocessing::EmitDecoderIds(RequestIo& io, const std::vector<int32_t>& pad_ids) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> query, io.Optional("DECODER_QUERY"));
  Rows rows;
  if (query) {
    NEREID_ASSIGN_OR_RETURN(rows, EncodeTexts(io, *query));
  } else {
    for (const int32_t pad_id : pad_ids) rows.push_back({pad_id});
  }
  return EmitIds(io, "DECODER_INPUT_ID", "REQUEST_DECODER_INPUT_LEN", rows, pad_ids);
}

Status Preprocessing::EmitWordList(RequestIo& io, const char* output, const char* input) const {
  if (!io.Emits(output)) return {};
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, io.Optional(input));
  if (!view) return io.Emit<int32_t>(output, {2, 0}, std::span<const int32_t>());
  NEREID_ASSIGN_OR_RETURN(const auto words, WordsOf(io, *view));
  NEREID_ASSIGN_OR_RETURN(const WordListTensor list, MakeWordLists(*tokenizer_, words));
  return io.Emit<int32_t>(output, {2, list.width}, list.values);
}

// One number for each id that the model knows: the weight of each word is added at all of its ids.
Status Preprocessing::EmitEmbeddingBias(RequestIo& io) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> words_view,
                          io.Optional("EMBEDDING_BIAS_WORDS"));
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> weights_view,
                          io.Optional("EMBEDDING_BIAS_WEIGHTS"));
  if (words_view.has_value() != weights_view.has_value()) {
    return InvalidArgError(
        "input '", words_view ? "EMBEDDING_BIAS_WORDS" : "EMBEDDING_BIAS_WEIGHTS", "' needs '",
        words_view ? "EMBEDDING_BIAS_WEIGHTS" : "EMBEDDING_BIAS_WORDS", "' beside it");
  }
  if (!io.Emits("EMBEDDING_BIAS")) return {};
  if (!words_view) return io.Emit<float>("EMBEDDING_BIAS", {0}, std::span<const float>());
  NEREID_ASSIGN_OR_RETURN(const auto words, WordsOf(io, *words_view));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> weights, weights_view->As<float>());
  const size_t per_row = words.empty() ? 0 : words[0].size();
  if (weights.size() != words.size() * per_row) {
    return InvalidArgError("input 'EMBEDDING_BIAS_WEIGHTS': expected shape ",
                           ToString(words_view->shape()), " as of the words, got ",
                           ToString(weights_view->shape()));
  }
  const auto vocab_size = static_cast<size_t>(tokenizer_->model_vocab_size());
  std::vector<float> bias(words.size() * vocab_size, 0.0f);
  for (size_t r = 0; r < words.size(); ++r) {
    for (size_t w = 0; w < per_row; ++w) {
      NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                              tokenizer_->Encode(words[r][w], {.add_special_tokens = false}));
      for (const int32_t id : ids) {
        if (static_cast<size_t>(id) >= vocab_size) continue;  // has no logit
        bias[r * vocab_size + id] += weights[r * per_row + w];
      }
    }
  }
  return io.Emit<float>("EMBEDDING_BIAS", {static_cast<int64_t>(vocab_size)}, bias);
}

Result<std::vector<int32_t>> Preprocessing::IdsOr(const RequestIo& io, const char* input,
                                                  int32_t fallback) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, io.Optional(input));
  if (!view) return std::vector<int32_t>(static_cast<size_t>(io.rows()), fallback);
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids, view->As<int32_t>());
  if (static_cast<int64_t>(ids.size()) != io.rows()) {
    return InvalidArgError("input '", input, "': expected 1 id a row, got shape ",
                           ToString(view->shape()));
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

}  // namespace nereid::tokenizer
