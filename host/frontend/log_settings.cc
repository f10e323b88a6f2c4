// See log_settings.h.
#include "host/frontend/log_settings.h"

#include <limits>

#include "nereid/error.h"

namespace nereid {
namespace {

// The setters ignore the options object, because the log belongs to the process.
constexpr TRITONSERVER_ServerOptions* kNoOptions = nullptr;

template <typename Requested, typename T, typename Setter>
Status ApplySetting(const std::optional<Requested>& requested, T& value, const Setter& set) {
  if (!requested.has_value()) return {};
  NEREID_RETURN_IF_ERROR(ToStatus(set(kNoOptions, *requested)));
  value = static_cast<T>(*requested);
  return {};
}

TRITONSERVER_Error* SetFormat(TRITONSERVER_ServerOptions* options, const std::string& format) {
  return TRITONSERVER_ServerOptionsSetLogFormat(
      options, format == "ISO8601" ? TRITONSERVER_LOG_ISO8601 : TRITONSERVER_LOG_DEFAULT);
}

}  // namespace

LogValues LogSettings::values() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

Status LogSettings::Apply(const LogChange& change) {
  constexpr uint32_t kMaxLevel = std::numeric_limits<int>::max();
  if (change.verbose_level.value_or(0) > kMaxLevel) {
    return InvalidArgError("invalid argument for log_verbose_level, got: ", *change.verbose_level,
                           ", expected at most ", kMaxLevel);
  }
  const std::lock_guard lock(mutex_);
  const bool changes_format = change.format.has_value() && *change.format != values_.format;
  if (changes_format && *change.format != "default" && *change.format != "ISO8601") {
    return InvalidArgError("invalid argument for log_format, got: ", *change.format);
  }
  NEREID_RETURN_IF_ERROR(
      ApplySetting(change.info, values_.info, TRITONSERVER_ServerOptionsSetLogInfo));
  NEREID_RETURN_IF_ERROR(
      ApplySetting(change.warning, values_.warning, TRITONSERVER_ServerOptionsSetLogWarn));
  NEREID_RETURN_IF_ERROR(
      ApplySetting(change.error, values_.error, TRITONSERVER_ServerOptionsSetLogError));
  NEREID_RETURN_IF_ERROR(
      ApplySetting(change.verbose_level, values_.verbose_level, [](auto* options, uint64_t level) {
        return TRITONSERVER_ServerOptionsSetLogVerbose(options, static_cast<int>(level));
      }));
  return changes_format ? ApplySetting(change.format, values_.format, SetFormat) : Status::Ok();
}

}  // namespace nereid
