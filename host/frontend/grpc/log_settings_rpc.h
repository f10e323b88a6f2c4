// The LogSettings call. [any thread]
#pragma once

#include "grpc_service.pb.h"
#include "host/frontend/log_settings.h"

namespace nereid {

// Changes what `request` names, then tells all settings. INVALID_ARG, without any change, names an
// unknown setting or a value of the wrong type; UNSUPPORTED for log_file.
Status AnswerLogSettings(LogSettings& settings, const inference::LogSettingsRequest& request,
                         inference::LogSettingsResponse& response);

}  // namespace nereid
