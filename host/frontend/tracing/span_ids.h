// Span identifiers, and the W3C trace context header that passes them between processes. [any
// thread]
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

// Parses "00-<trace id>-<span id>-<flags>"; nullopt if it is invalid.
std::optional<TraceParent> ParseTraceParent(std::string_view header);
std::string FormatTraceParent(const TraceParent& parent);

}  // namespace nereid
