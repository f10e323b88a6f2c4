// End ids, stop words and maximum lengths.
#include "backends/llm_core/engine/stop_criteria.h"

#include <algorithm>

namespace nereid::llm {
namespace {

bool EndsWith(std::span<const int32_t> ids, std::span<const int32_t> word) {
  return ids.size() >= word.size() &&
         std::equal(word.begin(), word.end(), ids.end() - static_cast<ptrdiff_t>(word.size()));
}

// Length of the longest suffix of `ids` that is a proper prefix of `word`.
size_t PartialMatch(std::span<const int32_t> ids, std::span<const int32_t> word) {
  for (size_t length = std::min(ids.size(), word.size() - 1); length > 0; --length) {
    if (EndsWith(ids, word.first(length))) return length;
  }
  return 0;
}

bool Contains(const TokenIds& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::string_view FinishReasonText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

StopResult Combine(StopResult rules, StopResult other) {
  if (rules.finish == other.finish) {
    return {rules.finish, std::min(rules.num_visible, other.num_visible)};
  }
  if (other.finish == FinishReason::kStop) return other;
  return rules.finish == FinishReason::kNone ? other : rules;
}

StopResult CheckStop(const StopCriteria& rules, std::span<const int32_t> output_ids) {
  const auto num_output = static_cast<int32_t>(output_ids.size());
  if (num_output > rules.min_tokens) {
    if (Contains(rules.end_ids, output_ids.back())) return {FinishReason::kStop, num_output - 1};
    size_t longest = 0;
    for (const TokenIds& word : rules.stop_words) {
      if (!word.empty() && EndsWith(output_ids, word)) longest = std::max(longest, word.size());
    }
    if (longest > 0) return {FinishReason::kStop, num_output - static_cast<int32_t>(longest)};
  }
  if (num_output >= rules.max_tokens) return {FinishReason::kLength, num_output};
  size_t held_back = 0;
  for (const TokenIds& word : rules.stop_words) {
    if (!word.empty()) held_back = std::max(held_back, PartialMatch(output_ids, word));
  }
  return {FinishReason::kNone, num_output - static_cast<int32_t>(held_back)};
}

}  // namespace nereid::llm
