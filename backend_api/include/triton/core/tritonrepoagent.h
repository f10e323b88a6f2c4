// The repository agent API: a shared library `libtritonrepoagent_<name>.so` that may check or
// replace a model's files before they are loaded (decrypt, verify, convert). The agent implements
// the functions marked ISPEC. The rules at the top of tritonserver.h apply here too.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// For functions that the host exports, and for functions that a plug-in exports.
#define TRITONREPOAGENT_DECLSPEC __attribute__((visibility("default")))
#define TRITONREPOAGENT_ISPEC TRITONREPOAGENT_DECLSPEC

// The version of this header; see TRITONREPOAGENT_ApiVersion.
#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

// Opaque handles.
struct TRITONREPOAGENT_Agent;
struct TRITONREPOAGENT_AgentModel;

// ---- Types

typedef enum TRITONREPOAGENT_artifacttype_enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,         // a local folder; the location is its path
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1,  // remote storage, whose address the host knows
} TRITONREPOAGENT_ArtifactType;

// The actions on a model, in order: LOAD, then LOAD_COMPLETE or LOAD_FAIL; after a completed load
// UNLOAD, then UNLOAD_COMPLETE.
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

// Returns the current location of the model's files; an earlier agent may have changed it.
//   location  out; owned by the model, valid during the action
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    TRITONREPOAGENT_ArtifactType* artifact_type, const char** location);

// Creates an empty folder for the model's files. The host deletes it with the model, or when it is
// released.
//   location  out; owned by the model
//   Errors: UNSUPPORTED, an artifact type other than FILESYSTEM.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char** location);

// Deletes a folder that was acquired.
//   Errors: INVALID_ARG, this model has not acquired it.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const char* location);

// Sets the location from which the model is loaded. Only during LOAD.
//   Errors: INVALID_ARG, another action.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ArtifactType artifact_type, const char* location);

// ---- The model

// Reads the number of this agent's parameters in the model's configuration.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model, uint32_t* count);

// Reads one parameter.
//   parameter_name, parameter_value  out; owned by the model
//   Errors: INVALID_ARG, index out of range.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t index, const char** parameter_name, const char** parameter_value);

// Returns the configuration as it was read, as JSON; an empty message if the model has no
// config.pbtxt.
//   config_version  1
//   model_config    out; owned by the caller (MessageDelete)
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const uint32_t config_version, struct TRITONSERVER_Message** model_config);

// Reads the agent's pointer for this model.
//   state  out; the pointer of SetState, null before
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelState(
    struct TRITONREPOAGENT_AgentModel* model, void** state);

// Stores a pointer of the agent, which the host does not use.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelSetState(
    struct TRITONREPOAGENT_AgentModel* model, void* state);

// Reads the agent's pointer.
//   state  out; the pointer of SetState, null before
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_State(
    struct TRITONREPOAGENT_Agent* agent, void** state);

// Stores a pointer of the agent, which the host does not use.
TRITONREPOAGENT_DECLSPEC struct TRITONSERVER_Error* TRITONREPOAGENT_SetState(
    struct TRITONREPOAGENT_Agent* agent, void* state);

// ---- Entry points of an agent
//
// All but ModelAction are optional. They are called on load threads.

// Called once for each library, before the first of its models.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Initialize(
    struct TRITONREPOAGENT_Agent* agent);

// Called before the library is closed.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_Finalize(
    struct TRITONREPOAGENT_Agent* agent);

// Called before the model's first action.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);

// Called after the model's last action; the state may be null.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model);

// Required. An error of LOAD fails the load; errors of other actions are logged.
TRITONREPOAGENT_ISPEC struct TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    struct TRITONREPOAGENT_Agent* agent, struct TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ActionType action_type);

#ifdef __cplusplus
}  // extern "C"
#endif
