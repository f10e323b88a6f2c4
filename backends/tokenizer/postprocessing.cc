// See postprocessing.h.
#include "backends/tokenizer/postprocessing.h"

#include <algorithm>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/tensor_view.h"

namespace nereid::tokenizer {

struct Postprocessing::Sequences {
  TensorView tokens;  // own the memory of the spans below
  std::optional<TensorView> lengths, prior;
  int64_t rows = 1, beams = 1, width = 0;
  std::span<const int32_t> ids;        // [rows, beams, width]
  std::span<const int32_t> ends;       // [rows, beams]; empty: every sequence fills its row
  std::span<const int32_t> prior_ids;  // [rows, prior_width]
  size_t prior_width = 0;
  std::vector<bool> is_final;              // [rows]
  std::vector<bool> skips_special_tokens;  // [rows]

  // The ids of a sequence, without what pads it.
  std::span<const int32_t> IdsOf(int64_t sequence) const {
    const int64_t length = ends.empty() ? width : std::min<int64_t>(ends[sequence], width);
    return ids.subspan(sequence * width, length);
  }
};

Result<Postprocessing::Sequences> Postprocessing::ReadSequences(RequestTensors& tensors,
                                                                Request& request,
                                                                const ModelConfig& config) const {
  Sequences s;
  NEREID_ASSIGN_OR_RETURN(s.tokens, request.Input("TOKENS_BATCH"));
  NEREID_RETURN_IF_ERROR(tensors.SetBatchSize(s.tokens));
  NEREID_ASSIGN_OR_RETURN(s.ids, s.tokens.As<int32_t>());
  const auto shape = s.tokens.shape();
  const size_t rank = config.max_batch_size() > 0 ? 3 : 2;
  if (shape.size() != rank) {
    return InvalidArgError("input 'TOKENS_BATCH': expected ", rank, " dimensions, got shape ",
                           ToString(shape));
  }
  s.rows = tensors.batch_size();
  s.beams = shape[rank - 2];
  s.width = shape[rank - 1];
  NEREID_RETURN_IF_ERROR(ReadLengths(tensors, s));
  NEREID_RETURN_IF_ERROR(ReadStreamInputs(tensors, s));
  NEREID_RETURN_IF_ERROR(ReadSkips(tensors, s));
  return s;
}

// Templates of release 0.5 have no SEQUENCE_LENGTH.
Status Postprocessing::ReadLengths(const RequestTensors& tensors, Sequences& s) {
  NEREID_ASSIGN_OR_RETURN(s.lengths, tensors.OptionalInput("SEQUENCE_LENGTH"));
  if (!s.lengths) return {};
  NEREID_ASSIGN_OR_RETURN(s.ends, s.lengths->As<int32_t>());
  if (static_cast<int64_t>(s.ends.size()) != s.rows * s.beams) {
    return InvalidArgError("input 'SEQUENCE_LENGTH': expected ", s.rows * s.beams,
                           " elements, one for each sequence of TOKENS_BATCH ",
                           ToString(s.tokens.shape()), ", got shape ",
                           ToString(s.lengths->shape()));
  }
  for (const int32_t end : s.ends) {
    if (end < 0) return InvalidArgError("input 'SEQUENCE_LENGTH': expected lengths, got ", end);
  }
  return {};
}

// Without PRIOR_IDS, and with several beams, each request carries complete sequences.
Status Postprocessing::ReadStreamInputs(const RequestTensors& tensors, Sequences& s) const {
  s.is_final.assign(static_cast<size_t>(s.rows), true);
  NEREID_ASSIGN_OR_RETURN(s.prior, tensors.OptionalInput("PRIOR_IDS"));
  if (!s.prior || s.beams != 1) return {};
  NEREID_ASSIGN_OR_RETURN(s.prior_ids, s.prior->As<int32_t>());
  NEREID_ASSIGN_OR_RETURN(s.prior_width, tensors.ElementsPerRow(*s.prior, s.prior_ids.size()));
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> reason, tensors.OptionalInput("FINISH_REASON"));
  s.is_final.assign(static_cast<size_t>(s.rows), false);
  if (!reason) return {};
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> reasons, reason->Strings());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*reason, reasons.size(), "element"));
  for (size_t r = 0; r < reasons.size(); ++r) s.is_final[r] = !reasons[r].empty();
  return {};
}

Status Postprocessing::ReadSkips(const RequestTensors& tensors, Sequences& s) const {
  s.skips_special_tokens.assign(static_cast<size_t>(s.rows), options_.skip_special_tokens);
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view,
                          tensors.OptionalInput("SKIP_SPECIAL_TOKENS"));
  if (!view) return {};
  NEREID_ASSIGN_OR_RETURN(const std::span<const Bool> skips, view->As<Bool>());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*view, skips.size(), "element"));
  for (size_t r = 0; r < skips.size(); ++r) s.skips_special_tokens[r] = skips[r];
  return {};
}

std::vector<std::string> Postprocessing::DecodeAll(const Sequences& s) const {
  std::vector<std::string> texts;
  DecodeOptions options = options_;
  for (int64_t row = 0; row < s.rows; ++row) {
    options.skip_special_tokens = s.skips_special_tokens[row];
    for (int64_t beam = 0; beam < s.beams; ++beam) {
      const auto ids = s.IdsOf(row * s.beams + beam);
      const auto prior = s.prior_ids.subspan(row * s.prior_width, s.prior_width);
      texts.push_back(DecodeChunk(*tokenizer_, options, prior, ids, s.is_final[row]));
    }
  }
  return texts;
}

// Only for one row: the texts of several have different numbers of tokens.
Status Postprocessing::WriteTokenTexts(RequestTensors& tensors, const Sequences& s) const {
  const bool writes_tokens = tensors.IsRequestedOutput("TOKEN_TEXTS");
  const bool writes_top_tokens = tensors.IsRequestedOutput("TOP_TOKEN_TEXTS");
  if (s.rows != 1 || (!writes_tokens && !writes_top_tokens)) return {};
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> top, tensors.OptionalInput("TOP_LOGPROB_IDS"));
  NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> log_probs,
                          tensors.OptionalInput("OUTPUT_LOG_PROBS"));
  int64_t num_rows = 0, num_top = 0;
  if (top) {
    const auto shape = top->shape();
    if (shape.size() < 2) {
      return InvalidArgError("input 'TOP_LOGPROB_IDS': expected 2 dimensions, got shape ",
                             ToString(shape));
    }
    num_rows = shape[shape.size() - 2];
    num_top = shape.back();
  }
  std::vector<std::string> texts;
  if (writes_tokens && (top || log_probs)) {
    // The tokens of a prompt that is repeated before the output have no probabilities.
    int64_t num_output = s.width;
    if (log_probs && !log_probs->shape().empty()) {
      num_output = log_probs->shape().back();
    } else if (top && s.beams == 1) {
      num_output = num_rows;
    }
    const auto num_skipped = static_cast<size_t>(std::max<int64_t>(0, s.width - num_output));
    for (int64_t beam = 0; beam < s.beams; ++beam) {
      const auto ids = s.IdsOf(beam);
      for (const int32_t id : ids.subspan(std::min(ids.size(), num_skipped)))
        texts.push_back(tokenizer_->TokenBytes(id));
    }
    NEREID_RETURN_IF_ERROR(
        tensors.SetStrings("TOKEN_TEXTS", {static_cast<int64_t>(texts.size())}, texts));
  }
  if (!writes_top_tokens || !top) return {};
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> top_ids, top->As<int32_t>());
  texts.clear();
  for (const int32_t id : top_ids) texts.push_back(tokenizer_->TokenBytes(id));
  return tensors.SetStrings("TOP_TOKEN_TEXTS", {num_rows, num_top}, texts);
}

// The prompt comes with the first response of a stream. Only for one row, as above.
Status Postprocessing::WritePromptTexts(RequestTensors& tensors, int64_t num_rows) const {
  if (num_rows != 1) return {};
  const auto write = [&](const char* input, const char* output, size_t num_dims) -> Status {
    if (!tensors.IsRequestedOutput(output)) return {};
    NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput(input));
    if (!view) return {};
    NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids, view->As<int32_t>());
    std::vector<std::string> texts;
    for (const int32_t id : ids) texts.push_back(tokenizer_->TokenBytes(id));
    const auto num_texts = static_cast<int64_t>(texts.size());
    if (num_dims == 1) return tensors.SetStrings(output, {num_texts}, texts);
    const int64_t num_top = view->shape().empty() ? 0 : view->shape().back();
    return tensors.SetStrings(output, {num_top == 0 ? 0 : num_texts / num_top, num_top}, texts);
  };
  NEREID_RETURN_IF_ERROR(write("PROMPT_IDS", "PROMPT_TOKEN_TEXTS", 1));
  return write("PROMPT_TOP_LOGPROB_IDS", "PROMPT_TOP_TOKEN_TEXTS", 2);
}

Status Postprocessing::WriteTexts(RequestTensors& tensors, Request& request,
                                  const Sequences& s) const {
  NEREID_ASSIGN_OR_RETURN(const bool is_parsed, ParsedOutputs::IsRequested(tensors));
  if (is_parsed && parsed_outputs_ != nullptr) {
    std::vector<AnswerIds> answers;
    for (int64_t i = 0; i < s.rows * s.beams; ++i) {
      const auto row = static_cast<size_t>(i / s.beams);
      answers.push_back({.row = row,
                         .ids = s.IdsOf(i),
                         .is_final = s.is_final[row],
                         .skips_special_tokens = s.skips_special_tokens[row]});
    }
    return parsed_outputs_->Write(tensors, request, answers, options_);
  }
  // The outputs are flat over rows and beams and have no batch dimension, as clients expect.
  const auto write = [&](const char* name, const std::vector<std::string>& texts) -> Status {
    if (!tensors.IsRequestedOutput(name)) return {};
    return request.SetStrings(name, {static_cast<int64_t>(texts.size())}, texts);
  };
  const bool writes_texts = tensors.IsRequestedOutput("OUTPUT");
  if (writes_texts) NEREID_RETURN_IF_ERROR(write("OUTPUT", DecodeAll(s)));
  if (!is_parsed) return {};
  const std::vector<std::string> none(static_cast<size_t>(s.rows * s.beams));
  NEREID_RETURN_IF_ERROR(write("REASONING", none));
  return write("TOOL_CALLS", none);
}

Status Postprocessing::Process(Request& request, const ModelConfig& config) const {
  RequestTensors tensors(request, config);
  NEREID_ASSIGN_OR_RETURN(const Sequences sequences, ReadSequences(tensors, request, config));
  NEREID_RETURN_IF_ERROR(WriteTexts(tensors, request, sequences));
  NEREID_RETURN_IF_ERROR(WriteTokenTexts(tensors, sequences));
  NEREID_RETURN_IF_ERROR(WritePromptTexts(tensors, sequences.rows));
  NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput("OUT_CUM_LOG_PROBS", "CUM_LOG_PROBS"));
  NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput("OUT_OUTPUT_LOG_PROBS", "OUTPUT_LOG_PROBS"));
  NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput("OUT_CONTEXT_LOGITS", "CONTEXT_LOGITS"));
  NEREID_RETURN_IF_ERROR(tensors.CopyInputToOutput("OUT_GENERATION_LOGITS", "GENERATION_LOGITS"));
  return tensors.CopyInputToOutput("OUT_BATCH_INDEX", "BATCH_INDEX");
}

}  // namespace nereid::tokenizer
