// The calls LogSettings and TraceSetting of InferenceService.
#include <optional>
#include <string>
#include <vector>

#include "grpc_service.pb.h"
#include "host/frontend/client_input.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/inference_service.h"

namespace nereid {
namespace {

using Value = inference::LogSettingsRequest::SettingValue;

Status AddBoolChange(const std::string& key, const Value& value, std::optional<bool>& setting) {
  if (!value.has_bool_param()) return InvalidArgError("expect boolean for '", key, "'");
  setting = value.bool_param();
  return {};
}

Status AddChange(const std::string& key, const Value& value, LogChange& change) {
  if (key == "log_info") return AddBoolChange(key, value, change.info);
  if (key == "log_warning") return AddBoolChange(key, value, change.warning);
  if (key == "log_error") return AddBoolChange(key, value, change.error);
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

// Applies the settings in `request`, then returns all settings. Without changing anything:
// INVALID_ARG for an unknown setting or a value of the wrong type; UNSUPPORTED for log_file.
Status AnswerLogSettings(LogSettings& settings, const inference::LogSettingsRequest& request,
                         inference::LogSettingsResponse& response) {
  LogChange change;
  for (const auto& [key, value] : request.settings()) {
    NEREID_RETURN_IF_ERROR(AddChange(key, value, change));
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

// Applies the settings in `request`, then returns all settings. A setting without values is reset.
// On an error nothing is changed.
Status AnswerTraceSetting(const Server& server, Tracer& tracer,
                          const inference::TraceSettingRequest& request,
                          inference::TraceSettingResponse& response) {
  const std::string& model = request.model_name();
  NEREID_RETURN_IF_ERROR(RejectZeroByte("model_name", model));
  if (!model.empty() && !server.IsBatched(model.c_str(), -1).ok()) {
    return InvalidArgError("Request for unknown model : ", model);
  }
  TraceChange change;
  for (const auto& [key, setting] : request.settings()) {
    std::optional<std::vector<std::string>> values;
    if (setting.value_size() != 0) values.emplace(setting.value().begin(), setting.value().end());
    change.emplace_back(key, std::move(values));
  }
  NEREID_RETURN_IF_ERROR(tracer.Apply(model, change));
  for (const auto& [key, values] : tracer.Describe(model)) {
    auto& setting = (*response.mutable_settings())[key];
    for (const std::string& value : values) setting.add_value(value);
  }
  return {};
}

}  // namespace

ApiOperation OperationOf(ApiOperation, const inference::LogSettingsRequest& request) {
  return request.settings().empty() ? ApiOperation::kReadLogSettings
                                    : ApiOperation::kChangeLogSettings;
}

ApiOperation OperationOf(ApiOperation, const inference::TraceSettingRequest& request) {
  return request.settings().empty() ? ApiOperation::kReadTraceSettings
                                    : ApiOperation::kChangeTraceSettings;
}

void InferenceService::AddSettings(MethodTable& table) const {
  AddInlineCall<inference::LogSettingsRequest, inference::LogSettingsResponse>(
      table, "LogSettings", ApiOperation::kReadLogSettings,
      [this](const auto& request, auto& response) {
        return AnswerLogSettings(context_.options().state->log_settings, request, response);
      });
  AddInlineCall<inference::TraceSettingRequest, inference::TraceSettingResponse>(
      table, "TraceSetting", ApiOperation::kReadTraceSettings,
      [this](const auto& request, auto& response) {
        return AnswerTraceSetting(server_, *context_.options().state->tracer, request, response);
      });
}

}  // namespace nereid
