#include "backends/python_like_scripted/settings.h"

#include <charconv>
#include <cstdlib>

namespace nereid::scripted {
namespace {

class Keys {
 public:
  explicit Keys(const Json& backend_config) : cmdline_(backend_config["cmdline"]) {}

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

Result<Settings> Settings::Parse(const Json& backend_config) {
  const Keys keys(backend_config);
  Settings settings;
  const char* named = std::getenv("NEREID_PYTHON");
  settings.interpreter =
      keys.Text("interpreter", named != nullptr && *named != '\0' ? named : "python3");
  settings.region_prefix = keys.Text("shm-region-prefix-name", settings.region_prefix);
  NEREID_ASSIGN_OR_RETURN(settings.region_bytes,
                          keys.Number("shm-default-byte-size", settings.region_bytes, 1));
  NEREID_ASSIGN_OR_RETURN(settings.region_growth_bytes,
                          keys.Number("shm-growth-byte-size", settings.region_growth_bytes, 1));
  NEREID_ASSIGN_OR_RETURN(const uint64_t start_s, keys.Number("stub-timeout-seconds", 30, 1));
  NEREID_ASSIGN_OR_RETURN(const uint64_t execute_s, keys.Number("execute-timeout-seconds", 0, 0));
  NEREID_RETURN_IF_ERROR(keys.Number("thread-pool-size", 32, 1).status());
  NEREID_RETURN_IF_ERROR(keys.Number("shm_message_queue_size", 1000, 1).status());
  constexpr uint64_t kMaxSeconds = 1'000'000;  // what poll's milliseconds hold
  settings.start_timeout = std::chrono::seconds(std::min(start_s, kMaxSeconds));
  settings.execute_timeout = std::chrono::seconds(std::min(execute_s, kMaxSeconds));
  return settings;
}

}  // namespace nereid::scripted
