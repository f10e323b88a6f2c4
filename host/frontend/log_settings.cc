// See log_settings.h.
#include "host/frontend/log_settings.h"

#include <limits>

#include "nereid/error.h"

namespace nereid {
namespace {

// The setters ignore the options object: the log belongs to the process.
constexpr TRITONSERVER_ServerOptions* kNoOptions = nullptr;

template <typename Wanted, typename T, typename Setter>
Status Take(const std::optional<Wanted>& wanted, T& value, const Setter& set) {
  if (!wanted.has_value()) return {};
  NEREID_RETURN_IF_ERROR(ToStatus(set(kNoOptions, *wanted)));
  value = static_cast<T>(*wanted);
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
  NEREID_RETURN_IF_ERROR(Take(change.info, values_.info, TRITONSERVER_ServerOptionsSetLogInfo));
  NEREID_RETURN_IF_ERROR(
      Take(change.warning, values_.warning, TRITONSERVER_ServerOptionsSetLogWarn));
  NEREID_RETURN_IF_ERROR(Take(change.error, values_.error, TRITONSERVER_ServerOptionsSetLogError));
  NEREID_RETURN_IF_ERROR(
      Take(change.verbose_level, values_.verbose_level, [](auto* options, uint64_t level) {
        return TRITONSERVER_ServerOptionsSetLogVerbose(options, static_cast<int>(level));
      }));
  return changes_format ? Take(change.format, values_.format, SetFormat) : Status::Ok();
}

}  // namespace nereid
