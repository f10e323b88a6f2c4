// What becomes of the delimiters when a pattern cuts a text. [any thread]
#pragma once

#include <string_view>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<SplitBehavior> ParseSplitBehavior(std::string_view name);

// Takes the spans of a pattern and adds the pieces that the behaviour makes of them. Spans must be
// neighbours in one text. Call Finish after the last span.
class BehaviorSink final : public PieceSink {
 public:
  // `invert`: the pattern matches what lies between delimiters.
  BehaviorSink(SplitBehavior behavior, bool invert, PieceSink& out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  bool Add(std::string_view span, bool is_match) override;
  bool Finish();

 private:
  bool JoinsHeld(bool is_delimiter) const;

  const SplitBehavior behavior_;
  const bool invert_;
  PieceSink& out_;
  std::string_view held_;  // a span that the next one may extend
  bool holds_ = false;
  bool previous_ = false;  // the span before was a delimiter
};

}  // namespace nereid::tokenizer
