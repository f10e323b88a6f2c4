// TRITONREPOAGENT_*: access of a repository agent to a model during an action. [the thread of the
// action]
#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/repository/agents.h"

using nereid::Status;
using nereid::core::AgentModel;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::ToHandle;

namespace {

Status CheckFilesystem(TRITONREPOAGENT_ArtifactType type) {
  if (type == TRITONREPOAGENT_ARTIFACT_FILESYSTEM) return Status::Ok();
  return nereid::UnsupportedError("artifact type: expected FILESYSTEM, got ",
                                  static_cast<int>(type));
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ArtifactType* artifact_type, const char** location) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(artifact_type);
  NEREID_RETURN_IF_NULL(location);
  *artifact_type = TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
  *location = FromHandle(model)->location().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char** location) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(location);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckFilesystem(artifact_type));
    NEREID_ASSIGN_OR_RETURN(*location, FromHandle(model)->AcquireFolder());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char* location) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(location);
  return AtCBoundary([&] { return FromHandle(model)->ReleaseFolder(location); });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char* location) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(location);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(CheckFilesystem(artifact_type));
    return FromHandle(model)->MoveTo(location);
  });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(TRITONREPOAGENT_Agent* agent,
                                                        TRITONREPOAGENT_AgentModel* model,
                                                        uint32_t* count) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(model)->parameters().size());
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(TRITONREPOAGENT_Agent* agent,
                                                   TRITONREPOAGENT_AgentModel* model,
                                                   const uint32_t index,
                                                   const char** parameter_name,
                                                   const char** parameter_value) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(parameter_name);
  NEREID_RETURN_IF_NULL(parameter_value);
  return AtCBoundary([&]() -> Status {
    const AgentModel::Parameters& parameters = FromHandle(model)->parameters();
    if (index >= parameters.size()) {
      return nereid::InvalidArgError("out of bounds index ", index, ": agent has ",
                                     parameters.size(), " parameters");
    }
    *parameter_name = parameters[index].first.c_str();
    *parameter_value = parameters[index].second.c_str();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(TRITONREPOAGENT_Agent* agent,
                                                TRITONREPOAGENT_AgentModel* model,
                                                const uint32_t config_version,
                                                TRITONSERVER_Message** model_config) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(model_config);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(nereid::core::CheckConfigVersion(config_version));
    *model_config = ToHandle(new nereid::core::JsonMessage(FromHandle(model)->config_json()));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel* model, void** state) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(state);
  *state = FromHandle(model)->state();
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel* model, void* state) {
  NEREID_RETURN_IF_NULL(model);
  FromHandle(model)->set_state(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_State(TRITONREPOAGENT_Agent* agent, void** state) {
  NEREID_RETURN_IF_NULL(agent);
  NEREID_RETURN_IF_NULL(state);
  *state = FromHandle(agent)->state();
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent* agent, void* state) {
  NEREID_RETURN_IF_NULL(agent);
  FromHandle(agent)->set_state(state);
  return nullptr;
}

}  // extern "C"
