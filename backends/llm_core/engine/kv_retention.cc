// Looks up and checks retention priorities.
#include "backends/llm_core/engine/kv_retention.h"

#include <algorithm>

namespace nereid::llm {
namespace {

BlockRetention Retention(int32_t priority, int32_t duration_ms) {
  return {static_cast<uint8_t>(priority), std::max(0, duration_ms)};
}

Status CheckPriority(const char* name, int32_t priority) {
  if (priority >= 0 && priority <= kMaxRetentionPriority) return {};
  return InvalidArgError("'", name, "' is ", priority, ", expected 0 to ", kMaxRetentionPriority);
}

Status CheckDuration(const char* name, int32_t duration_ms) {
  if (duration_ms == -1 || duration_ms > 0) return {};
  return InvalidArgError("'", name, "' is ", duration_ms,
                         ", expected 1 or more milliseconds, or -1 for no end");
}

Status CheckTokenRange(const TokenRangeRetention& range, int32_t num_prompt) {
  if (range.begin < 0 || range.begin >= num_prompt) {
    return InvalidArgError("'retention_token_range_starts' has ", range.begin, ", expected 0 to ",
                           num_prompt - 1, ": the prompt has ", num_prompt, " tokens");
  }
  if (range.end != -1 && (range.end <= range.begin || range.end > num_prompt)) {
    return InvalidArgError("'retention_token_range_ends' has ", range.end, " for the start ",
                           range.begin, ", expected ", range.begin + 1, " to ", num_prompt,
                           ", or -1 for the end of the prompt");
  }
  NEREID_RETURN_IF_ERROR(CheckPriority("retention_token_range_priorities", range.priority));
  return CheckDuration("retention_token_range_durations_ms", range.duration_ms);
}

}  // namespace

std::optional<BlockRetention> KvRetention::Of(int32_t position, int32_t num_prompt) const {
  if (position >= num_prompt) {
    if (!decode_priority) return std::nullopt;
    return Retention(*decode_priority, decode_duration_ms);
  }
  for (const TokenRangeRetention& range : ranges) {
    if (position >= range.begin && (range.end == -1 || position < range.end))
      return Retention(range.priority, range.duration_ms);
  }
  return std::nullopt;
}

Status CheckRetention(const KvRetention& retention, int32_t num_prompt) {
  if (retention.ranges.size() > kMaxRetentionRanges) {
    return InvalidArgError("'retention_token_range_starts' has ", retention.ranges.size(),
                           " values, expected at most ", kMaxRetentionRanges);
  }
  for (const TokenRangeRetention& range : retention.ranges) {
    NEREID_RETURN_IF_ERROR(CheckTokenRange(range, num_prompt));
  }
  std::vector<TokenRangeRetention> sorted = retention.ranges;
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const int32_t end = sorted[i - 1].end == -1 ? num_prompt : sorted[i - 1].end;
    if (sorted[i].begin >= end) continue;
    return InvalidArgError("'retention_token_range_starts' has ", sorted[i].begin,
                           ", within the range from ", sorted[i - 1].begin, " to ", end,
                           ": ranges must not overlap");
  }
  if (retention.decode_priority) {
    NEREID_RETURN_IF_ERROR(CheckPriority("retention_decode_priority", *retention.decode_priority));
  }
  return CheckDuration("retention_decode_duration_ms", retention.decode_duration_ms);
}

}  // namespace nereid::llm
