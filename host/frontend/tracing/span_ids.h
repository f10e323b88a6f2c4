// Identifiers of spans, and the W3C trace context that carries them from process to process.
// [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nereid {

std::string NewTraceId();  // 32 hexadecimal digits
std::string NewSpanId();   // 16

struct TraceParent {
  std::string trace_id;
  std::string span_id;
};

// "00-<trace id>-<span id>-<flags>"; none when it is not that.
std::optional<TraceParent> ParseTraceParent(std::string_view header);
std::string FormatTraceParent(const TraceParent& parent);

}  // namespace nereid
