#include "backends/ensemble/composed_model.h"

#include "nereid/error.h"
#include "nereid/handles.h"

namespace nereid::ensemble {

Result<std::string> ConfigOf(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* handle = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelConfig(model, /*config_version=*/1, &handle)));
  const Message message(handle);
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message.Json());
  return std::string(json);
}

Result<std::string> ConfigOfStep(const Server& server, const StepConfig& step) {
  Result<Message> message = server.ModelConfig(step.target.c_str(), step.model_version);
  if (!message.ok()) {
    const std::string missing =
        step.model_version < 0
            ? "which has no loaded version"
            : StrCat("whose required version ", step.model_version, " is not loaded");
    return NotFoundError(missing, ": ", message.status().message());
  }
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message->Json());
  return std::string(json);
}

}  // namespace nereid::ensemble
