// Reads end ids and stop words, and decides what is searched in the text.
#include "backends/llm_core/adapter/stop_inputs.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/llm_core/adapter/decoding_inputs.h"
#include "backends/llm_core/adapter/stop_words.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxStopBytes = 65536;  // limit for the stop words of one batch item
constexpr size_t kMaxStopTokenIds = 1024;

// Removes the end ids if the request ignores them, and adds the request's own.
Status ReadStopTokenIds(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                        RequestItem& out) {
  TokenIds& end_ids = out.generation->stop.end_ids;
  Bool ignores_end = false;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("ignore_eos", row, ignores_end));
  if (ignores_end) end_ids.clear();
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("stop_token_ids", row));
  if (ids.size() > kMaxStopTokenIds) {
    return InvalidArgError("input 'stop_token_ids' has ", ids.size(), " values, expected at most ",
                           kMaxStopTokenIds);
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= defaults.vocab_size) {
      return InvalidArgError("input 'stop_token_ids' holds token id ", id, ", expected 0 to ",
                             defaults.vocab_size - 1);
    }
    if (std::find(end_ids.begin(), end_ids.end(), id) == end_ids.end()) {
      out.stop_reasons.stop_token_ids.push_back(id);
      end_ids.push_back(id);
    }
  }
  return {};
}

Result<std::vector<std::string_view>> ReadTextWords(BatchInputs& inputs, int64_t row) {
  TensorView* view = inputs.Find("stop_words");
  if (view == nullptr) return std::vector<std::string_view>();
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> all, view->Strings());
  const auto num_rows = static_cast<size_t>(inputs.num_rows());
  if (all.size() % num_rows != 0) {
    return InvalidArgError("input 'stop_words': shape ", ToString(view->shape()),
                           " does not divide into ", num_rows, " rows");
  }
  const auto per_row = static_cast<ptrdiff_t>(all.size() / num_rows);
  std::vector<std::string_view> words(all.begin() + row * per_row,
                                      all.begin() + (row + 1) * per_row);
  size_t num_bytes = 0;
  for (const std::string_view word : words) num_bytes += word.size();
  if (num_bytes > kMaxStopBytes) {
    return InvalidArgError("input 'stop_words': ", num_bytes, " bytes in a row, expected at most ",
                           kMaxStopBytes);
  }
  return words;
}

// Decides which stop words are matched in the text: those given as text, and those of
// stop_words_list that stand for a text.
Status ReadStopTexts(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                     RequestItem& out) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> words, ReadTextWords(inputs, row));
  StopCriteria& stop = out.generation->stop;
  const bool uses_beams = out.generation->uses_beams();
  const auto is_nonempty = [](std::string_view word) { return !word.empty(); };
  const bool has_texts = std::any_of(words.begin(), words.end(), is_nonempty);
  const bool matches_ids_as_text =
      defaults.matches_words_as_text && !stop.stop_words.empty() && !uses_beams;
  if (!has_texts && !matches_ids_as_text) return {};
  Result<std::shared_ptr<const tokenizer::Tokenizer>> loaded = defaults.tokenizer->Get();
  if (!loaded.ok()) {
    if (!has_texts) return {};  // the words are then matched by ids only
    return std::move(loaded).status().WithContext("input 'stop_words' needs a tokenizer");
  }
  tokenizer::DecodeOptions decoding = defaults.tokenizer->decode_options(**loaded);
  decoding.skip_special_tokens =
      out.extras.skips_special_tokens.value_or(decoding.skip_special_tokens);
  const StopWordOptions options = {.ids_match_in_text = defaults.matches_words_as_text,
                                   .is_beam_search = uses_beams,
                                   .cleans_up_spaces = decoding.cleans_up_spaces,
                                   .max_text_bytes = kMaxStopBytes};
  Result<StopWords> combined =
      CombineStopWords(**loaded, std::move(stop.stop_words), words, options);
  if (!combined.ok()) return std::move(combined).status().WithContext("input 'stop_words'");
  stop.stop_words = std::move(combined->ids);
  out.stop_reasons.id_word_texts = std::move(combined->id_texts);
  if (combined->texts.empty()) return {};
  tokenizer::StopStringMatcher matcher(combined->texts, stop.includes_stop);
  out.stop_strings = std::make_shared<const StopStrings>(StopStrings{
      *loaded, decoding, stop.min_tokens, std::move(matcher), std::move(combined->texts)});
  return {};
}

}  // namespace

Status ReadStops(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                 RequestItem& out) {
  StopCriteria& stop = out.generation->stop;
  NEREID_RETURN_IF_ERROR(ReadStopTokenIds(inputs, row, defaults, out));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("include_stop_str_in_output", row, stop.includes_stop));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> words,
                          inputs.Row<int32_t>("stop_words_list", row));
  NEREID_ASSIGN_OR_RETURN(stop.stop_words, ReadWords("stop_words_list", words));
  return ReadStopTexts(inputs, row, defaults, out);
}

}  // namespace nereid::llm
