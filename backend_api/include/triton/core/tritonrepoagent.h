// The repository agent API: a shared object `libtritonrepoagent_<name>.so` that may check or
// replace a model's files before they are loaded (decrypt, verify, convert). The functions
// marked ISPEC are the agent's to implement. The rules at the top of tritonserver.h hold here
// too.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// On what the host exports, and on what a plug-in exports.
#define TRITONREPOAGENT_DECLSPEC __attribute__((visibility("default")))
#define TRITONREPOAGENT_ISPEC TRITONREPOAGENT_DECLSPEC

// Of this header; see TRITONREPOAGENT_ApiVersion.
#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

// Opaque handles.
struct TRITONREPOAGENT_Agent;
struct TRITONREPOAGENT_AgentModel;

// ---- Types

typedef enum TRITONREPOAGENT_artifacttype_enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,         // a local folder; the location is its path
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1,  // storage that the host knows by its address
} TRITONREPOAGENT_ArtifactType;

// The life of a model as an agent sees it: LOAD, then LOAD_COMPLETE or LOAD_FAIL; after a
// completed load UNLOAD, then UNLOAD_COMPLETE.
typedef enum TRITONREPOAGENT_actiontype_enum {
  TRITONREPOAGENT_ACTION_LOAD = 0,
  TRITONREPOAGENT_ACTION_LOAD_COMPLETE = 1,
  TRITONREPOAGENT_ACTION_LOAD_FAIL = 2,
  TRITONREPOAGENT_ACTION_UNLOAD = 3,
  TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE = 4,
} TRITONREPOAGENT_ActionType;

// The host's version of this API.
//   major, minor  out
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ApiVersion(uint32_t* major,
                                                                               uint32_t* minor);

// ---- The model's files
//
// Calls for one model never overlap.

// Where the model's files are now; an earlier agent may have moved them.
//   location  out; the model's, dies with the action
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ArtifactType* artifact_type, const char** location);

// A new empty folder for the model's files; the host deletes it with the model, or when it is
// released.
//   location  out; the model's
//   Errors: UNSUPPORTED, an artifact type other than FILESYSTEM.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char** location);

// Deletes a folder that was acquired.
//   Errors: INVALID_ARG, not acquired by this model.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const char* location);

// The model is to be loaded from here. During LOAD only.
//   Errors: INVALID_ARG, another action.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char* location);

// ---- The model

// Parameters of this agent in the model's configuration.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model, uint32_t* count);

// One of them.
//   parameter_name, parameter_value  out; the model's
//   Errors: INVALID_ARG, index out of range.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t index, const char** parameter_name, const char** parameter_value);

// The configuration as it was read, as JSON; an empty message when the model has no
// config.pbtxt.
//   config_version  1
//   model_config    out; the caller's (MessageDelete)
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t config_version, struct TRITONSERVER_Message** model_config);

// The agent's pointer of this model.
//   state  out; what SetState was given, null before
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelState(
    struct TRITONREPOAGENT_AgentModel* model, void** state);

// A pointer of the agent's that the host keeps and never touches.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelSetState(
    struct TRITONREPOAGENT_AgentModel* model, void* state);

// The agent's pointer.
//   state  out; what SetState was given, null before
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_State(
    struct TRITONREPOAGENT_Agent* agent, void** state);

// A pointer of the agent's that the host keeps and never touches.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_SetState(
    struct TRITONREPOAGENT_Agent* agent, void* state);

// ---- Entry points of an agent
//
// All but ModelAction are optional. On load threads.

// Once for each library, before the first of its models.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Initialize(
    struct TRITONREPOAGENT_Agent* agent);

// Before the library is closed.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Finalize(
    struct TRITONREPOAGENT_Agent* agent);

// Before the model's first action.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);

// After the model's last action; state may be null.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);

// Required. An error in answer to LOAD fails the load; other errors are logged.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
}  // extern "C"
#endif
