// Fuzzes the request bodies that control a server. The first byte selects the parser: L a model
// load, U an unload, X a repository index request, O log settings, T trace settings, S a SageMaker
// load, P a SageMaker path, E an error text. Arbitrary bytes must not crash. An accepted body must
// mean the same as nlohmann::json parses it. Settings stay in range, unnamed settings keep their
// values, and a rejected change has no effect.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/frontend/cloud/sagemaker_request.h"
#include "host/frontend/http/bodies/control_bodies.h"

namespace nereid::http {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;

void Require(bool condition) {
  if (!condition) std::abort();
}

// Parses an accepted body with nlohmann::json, which must accept its syntax, too. Returns none if
// the two parsers may rightly read different values: a member is repeated, or a number exceeds the
// range of a double (nlohmann::json refuses the text, our readers skip such a number where no value
// is read from it).
std::optional<Json> ParseWithNlohmann(std::string_view text) {
  std::vector<std::set<std::string>> names;
  bool is_repeated = false;
  const auto note_names = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      is_repeated |= !names.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  try {
    const Json json = Json::parse(text, note_names);
    if (is_repeated) return std::nullopt;
    return json;
  } catch (const Json::out_of_range&) {
    return std::nullopt;
  } catch (const Json::parse_error&) {
    std::abort();
  }
}

// Returns the member, or null.
Json Member(const Json& object, const char* name) {
  return object.contains(name) ? object.at(name) : Json();
}

void FuzzLoad(std::string_view text) {
  const Result<LoadBody> load = ReadLoadBody(text, kMaxDepth);
  if (!load.ok()) return;
  if (load->config) Require(load->config->find('\0') == std::string::npos);
  if (text.empty()) return Require(!load->config && load->files.empty());
  const std::optional<Json> json = ParseWithNlohmann(text);
  if (!json) return;
  const Json parameters = Member(*json, "parameters");
  Require(parameters.size() == load->files.size() + load->config.has_value());
  if (load->config) Require(parameters.at("config") == *load->config);
  for (const LoadFile& file : load->files) {
    Require(file.name.starts_with("file:") && file.name.find('\0') == std::string::npos);
    const auto& encoded = parameters.at(file.name).get_ref<const std::string&>();
    Require(file.bytes.size() <= encoded.size() * 3 / 4);
  }
}

void FuzzUnload(std::string_view text) {
  const Result<bool> with_dependents = ReadUnloadBody(text, kMaxDepth);
  if (!with_dependents.ok()) return;
  if (text.empty()) return Require(!*with_dependents);
  const std::optional<Json> json = ParseWithNlohmann(text);
  if (!json) return;
  const Json given = Member(Member(*json, "parameters"), "unload_dependents");
  Require(given.is_null() ? !*with_dependents : given == *with_dependents);
}

void FuzzIndex(std::string_view text) {
  const Result<bool> ready_only = ReadIndexBody(text, kMaxDepth);
  if (!ready_only.ok()) return;
  if (text.empty()) return Require(!*ready_only);
  const std::optional<Json> json = ParseWithNlohmann(text);
  if (!json) return;
  const Json given = Member(*json, "ready");
  Require(given.is_null() ? !*ready_only : given == *ready_only);
}

bool AreEqual(const LogValues& a, const LogValues& b) {
  return a.file == b.file && a.info == b.info && a.warning == b.warning && a.error == b.error &&
         a.verbose_level == b.verbose_level && a.format == b.format;
}

void FuzzLogChange(std::string_view text) {
  const Result<LogChange> change = ReadLogChange(text, kMaxDepth);
  if (!change.ok()) return;
  const std::optional<Json> json = ParseWithNlohmann(text);
  const LogValues before;
  LogSettings settings(before);
  const bool is_accepted = settings.Apply(*change).ok();
  const LogValues after = settings.values();
  if (!is_accepted) return Require(AreEqual(before, after));
  Require(after.verbose_level <= INT32_MAX);
  Require(after.format == "default" || after.format == "ISO8601");
  if (!json) return;
  LogValues expected = before;
  const auto read = [&](const char* name, auto& value) {
    if (const Json given = Member(*json, name); !given.is_null()) given.get_to(value);
  };
  read("log_info", expected.info);
  read("log_warning", expected.warning);
  read("log_error", expected.error);
  read("log_verbose_level", expected.verbose_level);
  read("log_format", expected.format);
  Require(AreEqual(after, expected));
}

bool AreEqual(const TraceValues& a, const TraceValues& b) {
  return a.level == b.level && a.rate == b.rate && a.count == b.count &&
         a.log_frequency == b.log_frequency;
}

// Checks an accepted change: each named member appears once, and unnamed settings keep their
// values.
void CheckTraceMembers(const TraceChange& change, const Json& json, const TraceValues& before,
                       const TraceValues& after) {
  std::set<std::string> named;
  for (const auto& [name, values] : change) {
    Require(named.insert(name).second);
    const Json& given = json.at(name);
    if (!values) {
      Require(given.is_null());
    } else {
      Require(given.is_array() ? given == Json(*values) : given == values->front());
    }
  }
  for (const auto& [name, given] : json.items()) {
    Require(named.count(name) == !(given.is_array() && given.empty()));
  }
  if (named.count("trace_level") == 0) Require(after.level == before.level);
  if (named.count("trace_rate") == 0) Require(after.rate == before.rate);
  if (named.count("trace_count") == 0) Require(after.count == before.count);
  if (named.count("log_frequency") == 0) Require(after.log_frequency == before.log_frequency);
}

// Applies the change to the server's settings and to those of a model.
void FuzzTraceChange(std::string_view text) {
  const Result<TraceChange> change = ReadTraceChange(text, kMaxDepth);
  if (!change.ok()) return;
  const std::optional<Json> json = ParseWithNlohmann(text);
  for (const std::string model : {"", "m"}) {
    const TraceValues before{TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 1, 2, 0};
    TraceSettings settings(before);
    const bool is_accepted = settings.Apply(model, *change).ok();
    const TraceValues after = settings.values(model);
    if (!is_accepted) Require(AreEqual(before, after));
    if (is_accepted && json) CheckTraceMembers(*change, *json, before, after);
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
  if (text.starts_with('/')) text.remove_prefix(1);
  const std::string joined = StrCat(parts.name, "/", parts.action);
  Require(text == joined || (parts.action.empty() && text == parts.name));
}

void FuzzSageMakerLoad(std::string_view text) {
  const Result<SageMakerLoad> load = ReadSageMakerLoad(text, kMaxDepth);
  if (!load.ok()) return;
  for (const std::string* part : {&load->name, &load->url}) {
    Require(!part->empty() && part->find('\0') == std::string::npos);
  }
  const std::optional<Json> json = ParseWithNlohmann(text);
  if (json) Require(json->at("model_name") == load->name && json->at("url") == load->url);
}

void FuzzError(const std::string& text) {
  const int status = SageMakerStatusOf(InternalError(text));
  Require(status == 500 || status == 507);
}

}  // namespace
}  // namespace nereid::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::http;
  if (size == 0) return 0;
  // A copy of the exact size, so that sanitizers detect a read beyond the end.
  const std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'L':
      FuzzLoad(copy);
      break;
    case 'U':
      FuzzUnload(copy);
      break;
    case 'X':
      FuzzIndex(copy);
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
      FuzzError(copy);
      break;
  }
  return 0;
}
