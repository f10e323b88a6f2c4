// Any bytes as the small words that come from a command line, in a header or from a collector of
// traces: a verdict, never a crash. The first byte chooses the reader: F a flag with its value, R a
// restriction, T a traceparent, V a model's version, C the name of a compression, U a collector's
// URL, A a collector's answer. What is accepted as a traceparent is what it says; an answer says
// the same however the network cut it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/model_version.h"
#include "host/frontend/restricted_apis.h"
#include "host/frontend/tracing/http_post.h"
#include "host/frontend/tracing/span_ids.h"
#include "host/options.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void FuzzTraceParent(const std::string& text) {
  const auto parent = nereid::ParseTraceParent(text);
  if (!parent) return;
  const auto again = nereid::ParseTraceParent(nereid::FormatTraceParent(*parent));
  Require(again && again->trace_id == parent->trace_id && again->span_id == parent->span_id);
}

void FuzzUrl(const std::string& text) {
  const auto url = nereid::ParseHttpUrl(text);
  if (!url.ok()) return;
  Require(!url->host.empty() && !url->port.empty() && url->path.starts_with('/'));
}

void FuzzAnswer(std::string_view text) {
  const nereid::Result<int> whole = nereid::ReadHttpStatus(text);
  for (size_t size = 0; size < text.size(); ++size) {
    const nereid::Result<int> part = nereid::ReadHttpStatus(text.substr(0, size));
    if (part.ok() && *part == 0) continue;  // more is needed
    Require(part.ok() == whole.ok());
    if (part.ok()) Require(*part == *whole && (*part / 100 != 1));
    break;
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
    case 'V':
      if (const auto version = nereid::ParseModelVersion(text); version.ok()) {
        Require(*version >= 0 || text.empty());
      }
      break;
    case 'C':
      (void)nereid::http::ParseContentEncoding(text);
      (void)nereid::http::ChooseEncoding(text);
      break;
    case 'U':
      FuzzUrl(text);
      break;
    case 'A':
      FuzzAnswer(text);
      break;
  }
  return 0;
}
