// Range checks of the sampling parameters.
#include "backends/llm_core/sampling/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nereid::llm {
namespace {

Status CheckRange(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return Status::Ok();  // false for NaN
  return InvalidArgError("'", name, "' is ", value, ", expected ", low, " to ", high);
}

Status CheckId(const char* name, int32_t id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return Status::Ok();
  return InvalidArgError("'", name, "' holds token id ", id, ", expected 0 to ", vocab_size - 1);
}

Status CheckEachId(const char* name, const TokenIds& ids, int32_t vocab_size) {
  for (const int32_t id : ids) NEREID_RETURN_IF_ERROR(CheckId(name, id, vocab_size));
  return Status::Ok();
}

}  // namespace

Status CheckTopPMin(const char* name, float value) {
  return CheckRange(name, value, 1e-6f, 1.0f);
}

Status CheckSamplingParams(const SamplingParams& params, int32_t vocab_size) {
  NEREID_RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0.0f, 1e6f));
  if (params.top_k < 0) {
    return InvalidArgError("'runtime_top_k' is ", params.top_k, ", expected 0 or more");
  }
  NEREID_RETURN_IF_ERROR(CheckRange("runtime_top_p", params.top_p, 0.0f, 1.0f));
  NEREID_RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0.0f, 1.0f));
  NEREID_RETURN_IF_ERROR(CheckRange("runtime_top_p_decay", params.top_p_decay, 1e-6f, 1.0f));
  NEREID_RETURN_IF_ERROR(CheckTopPMin("runtime_top_p_min", params.top_p_min));
  NEREID_RETURN_IF_ERROR(CheckRange("repetition_penalty", params.repetition_penalty, 1e-6f, 1e6f));
  NEREID_RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -1e6f, 1e6f));
  NEREID_RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty, -1e6f, 1e6f));
  if (params.prompt_ignore_length < 0) {
    return InvalidArgError("'prompt_ignore_length' is ", params.prompt_ignore_length,
                           ", expected 0 (none) or more");
  }
  if (params.no_repeat_ngram_size < 0) {
    return InvalidArgError("'no_repeat_ngram_size' is ", params.no_repeat_ngram_size,
                           ", expected 0 (none) or more");
  }
  if (params.top_p_reset_id < -1 || params.top_p_reset_id >= vocab_size) {
    return InvalidArgError("'runtime_top_p_reset_ids' is ", params.top_p_reset_id,
                           ", expected -1 (none) to ", vocab_size - 1);
  }
  // A tokenizer has fewer tokens than a checkpoint whose vocabulary is padded.
  if (params.embedding_bias.size() > static_cast<size_t>(vocab_size)) {
    return InvalidArgError("'embedding_bias' has ", params.embedding_bias.size(),
                           " values, expected at most ", vocab_size, " (the vocabulary size)");
  }
  for (const float bias : params.embedding_bias) {
    if (!(bias < std::numeric_limits<float>::infinity())) {
      return InvalidArgError("'embedding_bias' holds ", bias, ", expected finite numbers or -inf");
    }
  }
  if (params.logit_bias.size() > kMaxLogitBias) {
    return InvalidArgError("'logit_bias_ids' has ", params.logit_bias.size(),
                           " values, expected at most ", kMaxLogitBias);
  }
  for (const LogitBias& bias : params.logit_bias) {
    NEREID_RETURN_IF_ERROR(CheckId("logit_bias_ids", bias.id, vocab_size));
    if (!(bias.value < std::numeric_limits<float>::infinity())) {
      return InvalidArgError("'logit_bias_values' holds ", bias.value,
                             ", expected finite numbers or -inf");
    }
  }
  if (params.allowed_ids.size() > static_cast<size_t>(vocab_size)) {
    return InvalidArgError("'allowed_token_ids' has ", params.allowed_ids.size(),
                           " values, expected at most ", vocab_size, " (the vocabulary size)");
  }
  NEREID_RETURN_IF_ERROR(CheckEachId("allowed_token_ids", params.allowed_ids, vocab_size));
  const int32_t max_top = std::min(kMaxTopLogProbs, vocab_size);
  if (params.num_top_log_probs < 0 || params.num_top_log_probs > max_top) {
    return InvalidArgError("'num_top_logprobs' is ", params.num_top_log_probs, ", expected 0 to ",
                           max_top);
  }
  for (const TokenIds& word : params.bad_words) {
    NEREID_RETURN_IF_ERROR(CheckEachId("bad_words_list", word, vocab_size));
  }
  return Status::Ok();
}

}  // namespace nereid::llm
