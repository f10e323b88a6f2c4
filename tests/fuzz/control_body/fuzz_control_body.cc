// Any bytes as the bodies by which clients steer a server: a verdict, never a crash. The first byte
// chooses the reader: L a load, U an unload, X the question for the index, O log settings, T trace
// settings, S a load of SageMaker's platform, P a path of its own, E an error's text. What is
// accepted holds together: files have names, settings stay in their ranges, and what is refused
// changes nothing.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/cloud/sagemaker_request.h"
#include "host/frontend/http/bodies/repository_body.h"
#include "host/frontend/http/bodies/settings_body.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxDepth = 64;

void Require(bool condition) {
  if (!condition) std::abort();
}

void FuzzLoad(std::string_view text) {
  const Result<LoadBody> load = ReadLoadBody(text, kMaxDepth);
  if (!load.ok()) return;
  if (load->config) Require(load->config->find('\0') == std::string::npos);
  for (size_t i = 0; i < load->files.size(); ++i) {
    const std::string& name = load->files[i].name;
    Require(name.starts_with("file:") && name.find('\0') == std::string::npos);
    for (size_t j = 0; j < i; ++j) Require(load->files[j].name != name);
  }
}

bool AreEqual(const LogValues& a, const LogValues& b) {
  return a.file == b.file && a.info == b.info && a.warning == b.warning && a.error == b.error &&
         a.verbose_level == b.verbose_level && a.format == b.format;
}

void FuzzLogChange(std::string_view text) {
  const Result<LogChange> change = ReadLogChange(text, kMaxDepth);
  if (!change.ok()) return;
  const LogValues before;
  LogSettings settings(before);
  const bool is_taken = settings.Apply(*change).ok();
  const LogValues after = settings.values();
  if (!is_taken) return Require(AreEqual(before, after));
  Require(after.verbose_level <= INT32_MAX);
  Require(after.format == "default" || after.format == "ISO8601");
  if (change->info) Require(after.info == *change->info);
}

bool AreEqual(const TraceValues& a, const TraceValues& b) {
  return a.level == b.level && a.rate == b.rate && a.count == b.count &&
         a.log_frequency == b.log_frequency;
}

// The same change to the server and to a model of it.
void FuzzTraceChange(std::string_view text) {
  const Result<TraceChange> change = ReadTraceChange(text, kMaxDepth);
  if (!change.ok()) return;
  for (const std::string model : {"", "m"}) {
    const TraceValues before{TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 1, 2, 0};
    TraceSettings settings(before);
    const bool is_taken = settings.Apply(model, *change).ok();
    const TraceValues after = settings.values(model);
    if (!is_taken) Require(AreEqual(before, after));
    if (!model.empty()) Require(AreEqual(settings.values(""), before));
    Require(after.rate >= 1 && after.count >= -1);
    const bool is_traced = after.level != 0 && after.count != 0 && after.rate == 1;
    if (after.rate == 1) Require(settings.Sample("m", false).has_value() == is_traced);
  }
}

void FuzzModelsPath(std::string_view text) {
  const std::string path = "/models" + std::string(text);
  const ModelsPath parts = ReadModelsPath(path);
  Require(parts.name.find('/') == std::string_view::npos);
  Require(path.ends_with(parts.action));
}

void FuzzSageMakerLoad(std::string_view text) {
  const Result<SageMakerLoad> load = ReadSageMakerLoad(text, kMaxDepth);
  if (load.ok()) Require(!load->name.empty() && !load->url.empty());
}

}  // namespace
}  // namespace nereid::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::http;
  if (size == 0) return 0;
  // A copy of exact size, so that a read beyond the end is seen.
  const std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'L':
      FuzzLoad(copy);
      break;
    case 'U':
      (void)ReadUnloadBody(copy, kMaxDepth);
      break;
    case 'X':
      (void)ReadIndexBody(copy, kMaxDepth);
      break;
    case 'O':
      FuzzLogChange(copy);
      break;
    case 'T':
      FuzzTraceChange(copy);
      break;
    case 'S':
      FuzzSageMakerLoad(copy);
      break;
    case 'P':
      FuzzModelsPath(copy);
      break;
    case 'E':
      (void)SageMakerStatusOf(nereid::InternalError(copy));
      break;
  }
  return 0;
}
