#include "backends/python_like_scripted/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace nereid::python {
namespace {

constexpr std::string_view kKeys[] = {"interpreter",
                                      "shm-default-byte-size",
                                      "shm-growth-byte-size",
                                      "shm-max-byte-size",
                                      "shm-region-prefix-name",
                                      "stub-timeout-seconds",
                                      "execute-timeout-seconds",
                                      "thread-pool-size",
                                      "shm_message_queue_size"};
// Keys that the host passes to every backend.
constexpr std::string_view kHostKeys[] = {"auto-complete-config", "backend-directory",
                                          "min-compute-capability", "default-max-batch-size",
                                          "runtime_modeldir"};

class BackendConfig {
 public:
  explicit BackendConfig(const Json& backend_config) : cmdline_(backend_config["cmdline"]) {}

  std::vector<std::string> Unknown() const {
    const auto is_in = [](const auto& keys, const std::string& key) {
      return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
    };
    std::vector<std::string> unknown;
    for (const auto& [key, value] : cmdline_.members()) {
      if (!is_in(kKeys, key) && !is_in(kHostKeys, key)) unknown.push_back(key);
    }
    return unknown;
  }
  bool Has(const char* key) const { return !cmdline_[key].is_null(); }
  std::string Text(const char* key, const std::string& otherwise) const {
    const Json& value = cmdline_[key];
    return value.AsString().empty() ? otherwise : value.AsString();
  }
  Result<uint64_t> Number(const char* key, uint64_t otherwise, uint64_t least) const {
    const Json& value = cmdline_[key];
    if (value.is_null()) return otherwise;
    const std::string& text = value.AsString();
    uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && stop == end && number >= least && number <= uint64_t{1} << 40) {
      return number;
    }
    return InvalidArgError("--backend-config=python,", key, ": expected a number of ", least,
                           " or more, got '", text, "'");
  }

 private:
  const Json& cmdline_;
};

}  // namespace

std::string Settings::KnownKeys() {
  std::string text;
  for (const std::string_view key : kKeys) {
    if (!text.empty()) text += ", ";
    text += key;
  }
  return text;
}

Result<Settings> Settings::Parse(const Json& backend_config) {
  const BackendConfig keys(backend_config);
  Settings settings;
  settings.unknown_keys = keys.Unknown();
  const char* named = std::getenv("NEREID_PYTHON");
  settings.interpreter = keys.Text("interpreter", named != nullptr ? named : "");
  settings.is_interpreter_configured = !settings.interpreter.empty();
  if (!settings.is_interpreter_configured) settings.interpreter = "python3";
  settings.region_prefix = keys.Text("shm-region-prefix-name", settings.region_prefix);
  NEREID_ASSIGN_OR_RETURN(settings.region_bytes,
                          keys.Number("shm-default-byte-size", settings.region_bytes, 1));
  NEREID_ASSIGN_OR_RETURN(settings.region_growth_bytes,
                          keys.Number("shm-growth-byte-size", settings.region_growth_bytes, 1));
  NEREID_ASSIGN_OR_RETURN(settings.region_max_bytes, keys.Number("shm-max-byte-size", 0, 0));
  if (settings.region_max_bytes != 0 && settings.region_max_bytes < settings.region_bytes) {
    return InvalidArgError("--backend-config=python,shm-max-byte-size: expected at least the ",
                           settings.region_bytes, " of shm-default-byte-size, got ",
                           settings.region_max_bytes);
  }
  NEREID_ASSIGN_OR_RETURN(const uint64_t start_s, keys.Number("stub-timeout-seconds", 30, 1));
  NEREID_ASSIGN_OR_RETURN(const uint64_t execute_s, keys.Number("execute-timeout-seconds", 0, 0));
  NEREID_RETURN_IF_ERROR(keys.Number("thread-pool-size", 32, 1).status());
  NEREID_RETURN_IF_ERROR(keys.Number("shm_message_queue_size", 1000, 1).status());
  constexpr uint64_t kMaxSeconds = 1'000'000;  // so that poll's timeout in ms fits an int
  settings.start_timeout = std::chrono::seconds(std::min(start_s, kMaxSeconds));
  // Without the key, loading has no time limit: a model may have to read large weights.
  if (keys.Has("stub-timeout-seconds")) settings.load_timeout = settings.start_timeout;
  settings.execute_timeout = std::chrono::seconds(std::min(execute_s, kMaxSeconds));
  return settings;
}

}  // namespace nereid::python
