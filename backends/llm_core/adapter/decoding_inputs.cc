// Reads beams and rules on tokens, and compares them with the decoding mode.
#include "backends/llm_core/adapter/decoding_inputs.h"

#include <algorithm>

namespace nereid::llm {

Status ReadBeams(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                 GenerationRequest& generation) {
  BeamParams& beams = generation.beams;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("beam_width", row, beams.width));
  if (beams.width > defaults.max_beam_width) {
    return InvalidArgError("input 'beam_width' is ", beams.width, ", expected 1 to ",
                           defaults.max_beam_width, " (parameter max_beam_width)");
  }
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("len_penalty", row, beams.length_penalty));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("early_stopping", row, beams.early_stopping));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<float>("beam_search_diversity_rate", row, beams.diversity_rate));
  int32_t& num_sequences = generation.num_sequences;
  num_sequences = std::max(1, beams.width);
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("num_return_sequences", row, num_sequences));
  // Checked before the engine sees it, because the number of responses depends on it.
  if (num_sequences < 1 || num_sequences > defaults.max_num_sequences) {
    return InvalidArgError("input 'num_return_sequences' is ", num_sequences, ", expected 1 to ",
                           defaults.max_num_sequences);
  }
  return {};
}

Status ReadTokenRules(BatchInputs& inputs, int64_t row, SamplingParams& sampling) {
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> bias,
                          inputs.Row<float>("embedding_bias", row));
  sampling.embedding_bias.assign(bias.begin(), bias.end());
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> words,
                          inputs.Row<int32_t>("bad_words_list", row));
  NEREID_ASSIGN_OR_RETURN(sampling.bad_words, ReadWords("bad_words_list", words));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("logit_bias_ids", row));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> values,
                          inputs.Row<float>("logit_bias_values", row));
  if (ids.size() != values.size()) {
    return InvalidArgError("input 'logit_bias_ids' has ", ids.size(),
                           " values and 'logit_bias_values' has ", values.size(),
                           ", expected as many");
  }
  if (ids.size() > kMaxLogitBias) {
    return InvalidArgError("input 'logit_bias_ids' has ", ids.size(), " values, expected at most ",
                           kMaxLogitBias);
  }
  for (size_t i = 0; i < ids.size(); ++i) sampling.logit_bias.push_back({ids[i], values[i]});
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> allowed,
                          inputs.Row<int32_t>("allowed_token_ids", row));
  sampling.allowed_ids.assign(allowed.begin(), allowed.end());
  return {};
}

Result<std::vector<TokenIds>> ReadWords(const char* name, std::span<const int32_t> elements) {
  std::vector<TokenIds> words;
  if (elements.size() % 2 != 0) {
    return InvalidArgError("input '", name, "': expected shape [2, n] (ids, then offsets), got ",
                           elements.size(), " values");
  }
  if (elements.size() / 2 > kMaxWordIds) {
    return InvalidArgError("input '", name, "' has ", elements.size() / 2,
                           " ids in a row, expected at most ", kMaxWordIds);
  }
  const std::span<const int32_t> ids = elements.first(elements.size() / 2);
  const std::span<const int32_t> ends = elements.last(elements.size() / 2);
  int32_t begin = 0;
  for (const int32_t end : ends) {
    if (end < 0) break;
    if (end == 0 && begin == 0) continue;  // zeros as padding also mean that there are no words
    if (end <= begin || end > static_cast<int32_t>(ids.size())) {
      return InvalidArgError("input '", name, "': offset ", end, " after ", begin,
                             ", expected rising offsets up to ", ids.size());
    }
    words.emplace_back(ids.begin() + begin, ids.begin() + end);
    begin = end;
  }
  return words;
}

Status CheckDecodingMode(DecodingMode mode, const GenerationRequest& generation) {
  if (mode == DecodingMode::kAny) return {};
  const SamplingParams& sampling = generation.sampling;
  const auto refuse = [&](const char* input, auto value, const char* name) {
    return InvalidArgError("input '", input, "' is ", value,
                           ": the model's parameter decoding_mode is ", name);
  };
  const bool uses_top_p = sampling.top_p > 0.0f && sampling.top_p < 1.0f;
  if (mode == DecodingMode::kBeamSearch) {
    if (sampling.top_k > 1) return refuse("runtime_top_k", sampling.top_k, "beam_search");
    if (uses_top_p) return refuse("runtime_top_p", sampling.top_p, "beam_search");
    return {};
  }
  const char* const name = mode == DecodingMode::kTopK   ? "top_k"
                           : mode == DecodingMode::kTopP ? "top_p"
                                                         : "top_k_top_p";
  if (generation.uses_beams()) return refuse("beam_width", generation.beams.width, name);
  if (mode == DecodingMode::kTopK && uses_top_p) {
    return refuse("runtime_top_p", sampling.top_p, name);
  }
  const bool uses_top_k = sampling.top_k > 1 || (sampling.top_k == 1 && uses_top_p);
  if (mode == DecodingMode::kTopP && uses_top_k) {
    return refuse("runtime_top_k", sampling.top_k, name);
  }
  return {};
}

}  // namespace nereid::llm
