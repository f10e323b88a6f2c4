// Any bytes as the small words that come from a command line or in a header: a verdict, never a
// crash. The first byte chooses the reader: F a flag with its value, R a restriction, T a
// traceparent. What is accepted as a traceparent is what it says.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/restricted_apis.h"
#include "host/frontend/tracing/span_ids.h"
#include "host/options.h"

namespace {

void FuzzTraceParent(const std::string& text) {
  const auto parent = nereid::ParseTraceParent(text);
  if (!parent) return;
  const auto again = nereid::ParseTraceParent(nereid::FormatTraceParent(*parent));
  if (!again || again->trace_id != parent->trace_id || again->span_id != parent->span_id) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'F':
      (void)nereid::ParseOptions({"--model-repository=/models", text});
      break;
    case 'R':
      (void)nereid::RestrictedApis().Add(text);
      break;
    case 'T':
      FuzzTraceParent(text);
      break;
  }
  return 0;
}
