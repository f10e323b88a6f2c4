// Ranges of the sizes, and their text form.
#include "backends/llm_core/speculation/lookahead_sizes.h"

#include <charconv>
#include <iterator>

#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

Status CheckLookaheadSizes(const LookaheadSizes& sizes, std::string_view kind) {
  for (const auto& [name, size, least] : kLookaheadSizes) {
    if (sizes.*size >= least) continue;
    return InvalidArgError(kind, " '", name, "' is ", sizes.*size, ", expected at least ", least);
  }
  const int64_t num_drafts = sizes.num_drafts();
  if (num_drafts >= 1 && num_drafts <= kMaxTreeDrafts) return {};
  return InvalidArgError("lookahead decoding with 'lookahead_window_size' ", sizes.window_size,
                         ", 'lookahead_ngram_size' ", sizes.ngram_size,
                         " and 'lookahead_verification_set_size' ", sizes.verification_set_size,
                         " has ", num_drafts,
                         " draft tokens a step, (window + verification set) * (ngram - 1) - 1, "
                         "expected 1 to ",
                         kMaxTreeDrafts);
}

Result<LookaheadSizes> ParseLookaheadSizes(std::string_view text) {
  LookaheadSizes sizes;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < std::size(kLookaheadSizes); ++i) {
    const auto [next, error] = std::from_chars(at, end, sizes.*kLookaheadSizes[i].size);
    const bool is_last = i + 1 == std::size(kLookaheadSizes);
    if (error != std::errc() || (is_last ? next != end : next == end || *next != ',')) {
      return InvalidArgError("got '", text,
                             "', expected WINDOW,NGRAM,VERIFICATION: three numbers such as 4,3,4");
    }
    at = is_last ? next : next + 1;
  }
  NEREID_RETURN_IF_ERROR(CheckLookaheadSizes(sizes));
  return sizes;
}

Status CheckLookaheadWithin(const LookaheadSizes& request, const LookaheadSizes& model) {
  for (const auto& [name, size, least] : kLookaheadSizes) {
    if (request.*size <= model.*size) continue;
    return InvalidArgError("input '", name, "' is ", request.*size, ": that of the model is ",
                           model.*size, ", which a request may not exceed");
  }
  return {};
}

}  // namespace nereid::llm
