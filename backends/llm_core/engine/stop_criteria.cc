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

// Returns the index of the longest stop word with which `ids` end, or -1.
int32_t FindStopWord(const StopCriteria& rules, std::span<const int32_t> ids) {
  int32_t found = -1;
  size_t longest = 0;
  for (size_t i = 0; i < rules.stop_words.size(); ++i) {
    const TokenIds& word = rules.stop_words[i];
    if (word.size() <= longest || !EndsWith(ids, word)) continue;
    longest = word.size();
    found = static_cast<int32_t>(i);
  }
  return found;
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
    rules.num_visible = std::min(rules.num_visible, other.num_visible);
    return rules;
  }
  if (other.finish == FinishReason::kStop) return other;
  return rules.finish == FinishReason::kNone ? other : rules;
}

StopResult CheckStop(const StopCriteria& rules, std::span<const int32_t> output_ids) {
  const auto num_output = static_cast<int32_t>(output_ids.size());
  if (num_output > rules.min_tokens) {
    if (Contains(rules.end_ids, output_ids.back())) {
      const int32_t num_visible = rules.includes_stop ? num_output : num_output - 1;
      return {FinishReason::kStop, num_visible, output_ids.back()};
    }
    const int32_t word = FindStopWord(rules, output_ids);
    if (word >= 0) {
      const auto size = static_cast<int32_t>(rules.stop_words[word].size());
      return {FinishReason::kStop, rules.includes_stop ? num_output : num_output - size, -1, word};
    }
  }
  if (num_output >= rules.max_tokens) return {FinishReason::kLength, num_output};
  if (rules.includes_stop) return {FinishReason::kNone, num_output};
  size_t held_back = 0;
  for (const TokenIds& word : rules.stop_words) {
    if (!word.empty()) held_back = std::max(held_back, PartialMatch(output_ids, word));
  }
  return {FinishReason::kNone, num_output - static_cast<int32_t>(held_back)};
}

}  // namespace nereid::llm
