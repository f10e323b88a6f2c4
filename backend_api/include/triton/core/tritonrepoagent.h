#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRITONREPOAGENT_DECLSPEC __attribute__((visibility("default")))
#define TRITONREPOAGENT_ISPEC TRITONREPOAGENT_DECLSPEC

struct TRITONREPOAGENT_Agent;
struct TRITONREPOAGENT_AgentModel;

#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

typedef enum TRITONREPOAGENT_artifacttype_enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1,
} TRITONREPOAGENT_ArtifactType;

typedef enum TRITONREPOAGENT_actiontype_enum {
  TRITONREPOAGENT_ACTION_LOAD = 0,
  TRITONREPOAGENT_ACTION_LOAD_COMPLETE = 1,
  TRITONREPOAGENT_ACTION_LOAD_FAIL = 2,
  TRITONREPOAGENT_ACTION_UNLOAD = 3,
  TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE = 4,
} TRITONREPOAGENT_ActionType;

TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ApiVersion(uint32_t* major,
                                                                               uint32_t* minor);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ArtifactType* artifact_type, const char** location);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char** location);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const char* location);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char* location);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model, uint32_t* count);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t index, const char** parameter_name, const char** parameter_value);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t config_version, struct TRITONSERVER_Message** model_config);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelState(
    struct TRITONREPOAGENT_AgentModel* model, void** state);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelSetState(
    struct TRITONREPOAGENT_AgentModel* model, void* state);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_State(
    struct TRITONREPOAGENT_Agent* agent, void** state);
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_SetState(
    struct TRITONREPOAGENT_Agent* agent, void* state);
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Initialize(
    struct TRITONREPOAGENT_Agent* agent);
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Finalize(
    struct TRITONREPOAGENT_Agent* agent);
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
}
#endif
