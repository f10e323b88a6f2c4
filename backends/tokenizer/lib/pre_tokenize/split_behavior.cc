// See split_behavior.h.
#include "backends/tokenizer/lib/pre_tokenize/split_behavior.h"

namespace nereid::tokenizer {

Result<SplitBehavior> ParseSplitBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return InvalidArgError("pre_tokenizer Split.behavior: '", name, "' is unknown");
}

// Whether the next span is appended to the pending one.
bool BehaviorSink::ExtendsPending(bool is_delimiter) const {
  if (!has_pending_) return false;
  switch (behavior_) {
    case SplitBehavior::kMergedWithPrevious:
      return is_delimiter && !previous_is_delimiter_;
    case SplitBehavior::kMergedWithNext:
      return !is_delimiter && previous_is_delimiter_;
    case SplitBehavior::kContiguous:
      return is_delimiter == previous_is_delimiter_;
    default:
      return false;
  }
}

bool BehaviorSink::Add(std::string_view span, bool is_match) {
  const bool is_delimiter = is_match != invert_;
  if (behavior_ == SplitBehavior::kRemoved) return is_delimiter || out_.Add(span, false);
  if (ExtendsPending(is_delimiter)) {
    pending_ = {pending_.data(), pending_.size() + span.size()};
  } else {
    if (has_pending_ && !out_.Add(pending_, false)) return false;
    pending_ = span;
    has_pending_ = true;
  }
  previous_is_delimiter_ = is_delimiter;
  return true;
}

bool BehaviorSink::Finish() {
  return !has_pending_ || out_.Add(pending_, false);
}

}  // namespace nereid::tokenizer
