// See log_settings_rpc.h.
#include "host/frontend/grpc/log_settings_rpc.h"

namespace nereid {
namespace {

using Value = inference::LogSettingsRequest::SettingValue;

Status TakeBool(const std::string& key, const Value& value, std::optional<bool>& setting) {
  if (!value.has_bool_param()) return InvalidArgError("expect boolean for '", key, "'");
  setting = value.bool_param();
  return {};
}

Status Take(const std::string& key, const Value& value, LogChange& change) {
  if (key == "log_info") return TakeBool(key, value, change.info);
  if (key == "log_warning") return TakeBool(key, value, change.warning);
  if (key == "log_error") return TakeBool(key, value, change.error);
  if (key == "log_verbose_level") {
    if (!value.has_uint32_param()) return InvalidArgError("expect int32 for '", key, "'");
    change.verbose_level = value.uint32_param();
    return {};
  }
  if (key == "log_format") {
    if (!value.has_string_param()) return InvalidArgError("expect string for '", key, "'");
    change.format = value.string_param();
    return {};
  }
  if (key == "log_file") {
    return UnsupportedError("log file location can not be updated through network protocol");
  }
  return InvalidArgError("unknown log setting '", key, "'");
}

}  // namespace

Status AnswerLogSettings(LogSettings& settings, const inference::LogSettingsRequest& request,
                         inference::LogSettingsResponse& response) {
  LogChange change;
  for (const auto& [key, value] : request.settings()) {
    NEREID_RETURN_IF_ERROR(Take(key, value, change));
  }
  NEREID_RETURN_IF_ERROR(settings.Apply(change));
  const LogValues values = settings.values();
  auto& answer = *response.mutable_settings();
  answer["log_file"].set_string_param(values.file);
  answer["log_info"].set_bool_param(values.info);
  answer["log_warning"].set_bool_param(values.warning);
  answer["log_error"].set_bool_param(values.error);
  answer["log_verbose_level"].set_uint32_param(values.verbose_level);
  answer["log_format"].set_string_param(values.format);
  return {};
}

}  // namespace nereid
