// Ranges of the sizes, and their text form.
#include "backends/llm_core/speculation/lookahead_sizes.h"

#include <array>
#include <charconv>
#include <limits>

#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {
namespace {

constexpr std::string_view kNames[] = {"lookahead_window_size", "lookahead_ngram_size",
                                       "lookahead_verification_set_size"};

std::array<int32_t, 3> Values(const LookaheadSizes& sizes) {
  return {sizes.window_size, sizes.ngram_size, sizes.verification_set_size};
}

}  // namespace

Status CheckLookaheadSizes(const LookaheadSizes& sizes, std::string_view kind) {
  constexpr std::array<int32_t, 3> kLeast = {1, 2, 0};
  const std::array<int32_t, 3> values = Values(sizes);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= kLeast[i]) continue;
    return InvalidArgError(kind, " '", kNames[i], "' is ", values[i], ", expected at least ",
                           kLeast[i]);
  }
  const int64_t num_drafts = sizes.num_drafts();
  if (num_drafts >= 1 && num_drafts <= kMaxTreeDrafts) return {};
  return InvalidArgError("lookahead decoding with 'lookahead_window_size' ", values[0],
                         ", 'lookahead_ngram_size' ", values[1],
                         " and 'lookahead_verification_set_size' ", values[2], " has ", num_drafts,
                         " draft tokens a step, (window + verification set) * (ngram - 1) - 1, "
                         "expected 1 to ",
                         kMaxTreeDrafts);
}

Result<LookaheadSizes> ParseLookaheadSizes(std::string_view text) {
  std::array<int32_t, 3> values = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    const bool is_last = i + 1 == values.size();
    if (error != std::errc() || (is_last ? next != end : next == end || *next != ',')) {
      return InvalidArgError("got '", text,
                             "', expected WINDOW,NGRAM,VERIFICATION: three numbers such as 4,3,4");
    }
    at = is_last ? next : next + 1;
  }
  const LookaheadSizes sizes = {values[0], values[1], values[2]};
  NEREID_RETURN_IF_ERROR(CheckLookaheadSizes(sizes));
  return sizes;
}

Status CheckLookaheadWithin(const LookaheadSizes& request, const LookaheadSizes& model) {
  const std::array<int32_t, 3> values = Values(request);
  const std::array<int32_t, 3> limits = Values(model);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= limits[i]) continue;
    return InvalidArgError("input '", kNames[i], "' is ", values[i], ": that of the model is ",
                           limits[i], ", which a request may not exceed");
  }
  return {};
}

}  // namespace nereid::llm
