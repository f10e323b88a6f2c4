// Fuzzes short texts from the command line and from headers. The first byte selects the parser: F a
// flag with its value, R an API restriction, T a traceparent, V a model version, C a compression
// name, U a collector's URL, K a file of API keys. Arbitrary bytes must not crash. An accepted
// traceparent survives a round trip.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/api_keys.h"
#include "host/frontend/client_input.h"
#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/restricted_apis.h"
#include "host/frontend/tracing/otlp_exporter.h"
#include "host/frontend/tracing/span_ids.h"
#include "host/options.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void FuzzTraceParent(const std::string& text) {
  const auto parent = nereid::ParseTraceParent(text);
  if (!parent) return;
  const auto reparsed = nereid::ParseTraceParent(nereid::FormatTraceParent(*parent));
  Require(reparsed && reparsed->trace_id == parent->trace_id &&
          reparsed->span_id == parent->span_id);
}

void FuzzUrl(const std::string& text) {
  if (nereid::CheckCollectorUrl(text).ok()) Require(text.find(' ') == std::string::npos);
}

// Whatever the file says, a text without the secret is no key.
void FuzzApiKeys(const std::string& text) {
  const nereid::Result<nereid::ApiKeys> keys = nereid::ApiKeys::Parse(text);
  if (keys.ok()) Require(keys->Find("app.guess", 0) == nullptr);
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
    case 'K':
      FuzzApiKeys(text);
      break;
  }
  return 0;
}
