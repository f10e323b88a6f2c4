// See split_behavior.h.
#include "backends/tokenizer/lib/split/split_behavior.h"

namespace nereid::tokenizer {

Result<SplitBehavior> ParseSplitBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return InvalidArgError("pre_tokenizer Split.behavior: '", name, "' is unknown");
}

// Whether the coming span becomes part of the held one.
bool BehaviorSink::JoinsHeld(bool is_delimiter) const {
  if (!holds_) return false;
  switch (behavior_) {
    case SplitBehavior::kMergedWithPrevious:
      return is_delimiter && !previous_;
    case SplitBehavior::kMergedWithNext:
      return !is_delimiter && previous_;
    case SplitBehavior::kContiguous:
      return is_delimiter == previous_;
    default:
      return false;
  }
}

bool BehaviorSink::Add(std::string_view span, bool is_match) {
  const bool is_delimiter = is_match != invert_;
  if (behavior_ == SplitBehavior::kRemoved) return is_delimiter || out_.Add(span, false);
  if (JoinsHeld(is_delimiter)) {
    held_ = {held_.data(), held_.size() + span.size()};
  } else {
    if (holds_ && !out_.Add(held_, false)) return false;
    held_ = span;
    holds_ = true;
  }
  previous_ = is_delimiter;
  return true;
}

bool BehaviorSink::Finish() {
  return !holds_ || out_.Add(held_, false);
}

}  // namespace nereid::tokenizer
