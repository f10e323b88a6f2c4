// See trace_rpc.h. A setting without values is cleared.
#include "host/frontend/grpc/trace_rpc.h"

#include "host/frontend/zero_byte.h"

namespace nereid {

Status AnswerTraceSetting(const Server& server, Tracer& tracer,
                          const inference::TraceSettingRequest& request,
                          inference::TraceSettingResponse& response) {
  const std::string& model = request.model_name();
  NEREID_RETURN_IF_ERROR(RefuseZeroByte("model_name", model));
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

}  // namespace nereid
