// How the Split pre-tokenizer treats the delimiters that a pattern matches. [any thread]
#pragma once

#include <string_view>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Receives the spans of a pattern and adds the resulting pre-tokens to another sink. The spans must
// be contiguous in one text. Call Finish after the last span. [one thread at a time]
class BehaviorSink final : public SpanSink {
 public:
  // With `invert`, the matches are the text between delimiters.
  BehaviorSink(SplitBehavior behavior, bool invert, SpanSink& out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  bool Add(std::string_view span, bool is_match) override;
  bool Finish();

 private:
  bool ExtendsPending(bool is_delimiter) const;

  const SplitBehavior behavior_;
  const bool invert_;
  SpanSink& out_;
  std::string_view pending_;  // a span that the next one may extend
  bool has_pending_ = false;
  bool previous_is_delimiter_ = false;  // whether the previous span was a delimiter
};

}  // namespace nereid::tokenizer
