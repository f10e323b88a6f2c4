// A repository agent that appends the name of every call to the file of its parameter `log`.
// Parameter `move`: at LOAD it copies the model's files to an acquired folder, appends the
// parameter `append` to config.pbtxt there, and makes that folder the model's location. Parameter
// `fault`: the call that fails. Parameter `throw`: the call that throws an exception. Parameter
// `hang`: ModelFinalize does not return before this file exists.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "nereid/error.h"
#include "triton/core/tritonrepoagent.h"

namespace {

namespace fs = std::filesystem;
using nereid::Result;
using nereid::Status;
using nereid::ToStatus;

using Parameters = std::map<std::string, std::string>;

Result<Parameters> ReadParameters(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONREPOAGENT_ModelParameterCount(agent, model, &count)));
  Parameters parameters;
  for (uint32_t i = 0; i < count; ++i) {
    const char *key = nullptr, *value = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONREPOAGENT_ModelParameter(agent, model, i, &key, &value)));
    parameters[key] = value;
  }
  return parameters;
}

Status LogCall(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, const char* call) {
  NEREID_ASSIGN_OR_RETURN(Parameters parameters, ReadParameters(agent, model));
  std::ofstream(parameters["log"], std::ios::app) << call << '\n';
  if (parameters["fault"] == call) return nereid::UnavailableError("recorder: ", call, " fails");
  return {};
}

void ThrowIfRequested(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
                      const std::string& call) {
  const auto parameters = ReadParameters(agent, model);
  const auto found = parameters.ok() ? parameters->find("throw") : Parameters::const_iterator();
  if (!parameters.ok() || found == parameters->end() || found->second != call) return;
  throw std::runtime_error("recorder: " + call + " throws");
}

Status HangIfRequested(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  NEREID_ASSIGN_OR_RETURN(Parameters parameters, ReadParameters(agent, model));
  if (parameters.count("hang") == 0) return {};
  while (!fs::exists(parameters["hang"])) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {};
}

Status MoveModel(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  NEREID_ASSIGN_OR_RETURN(Parameters parameters, ReadParameters(agent, model));
  if (parameters.count("move") == 0) return {};
  TRITONREPOAGENT_ArtifactType type = TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
  const char *from = nullptr, *to = nullptr;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &from)));
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, model, type, &to)));
  fs::copy(from, to, fs::copy_options::recursive);
  std::ofstream(fs::path(to) / "config.pbtxt", std::ios::app) << parameters["append"];
  std::ofstream(parameters["log"], std::ios::app) << "moved to " << to << '\n';
  return ToStatus(TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, type, to));
}

}  // namespace

extern "C" {

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent* agent) {
  static int state;
  return TRITONREPOAGENT_SetState(agent, &state);
}

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent* agent) {
  void* state = nullptr;
  TRITONSERVER_Error* error = TRITONREPOAGENT_State(agent, &state);
  if (error != nullptr || state != nullptr) return error;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "recorder: the state is lost");
}

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  return nereid::GuardCBoundary("recorder",
                                [&] { return LogCall(agent, model, "ModelInitialize"); });
}

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  ThrowIfRequested(agent, model, "ModelFinalize");
  return nereid::GuardCBoundary("recorder", [&]() -> Status {
    NEREID_RETURN_IF_ERROR(HangIfRequested(agent, model));
    return LogCall(agent, model, "ModelFinalize");
  });
}

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ActionType action_type) {
  static const char* const kNames[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD",
                                       "UNLOAD_COMPLETE"};
  return nereid::GuardCBoundary("recorder", [&]() -> Status {
    NEREID_RETURN_IF_ERROR(LogCall(agent, model, kNames[action_type]));
    return action_type == TRITONREPOAGENT_ACTION_LOAD ? MoveModel(agent, model) : Status();
  });
}

}  // extern "C"
