// Plans: which loads and unloads bring what serves to what should serve. Pure functions of their
// arguments, without disk, threads and locks; model_repository.h carries the plans out. [any
// thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/repository/folders.h"
#include "nereid/status.h"

namespace nereid::core {

class AgentChain;  // agents.h

// What to load for a model: the versions that shall serve afterwards, and the data that decides
// whether the load is needed. A version that already serves with the same files and configuration
// is kept. If only its instance groups differ, they are changed in place.
struct LoadPlan {
  std::string name;  // the key of the model (folders.h)
  std::string model_path;
  std::vector<int64_t> versions;
  ModelConfig config;
  std::shared_ptr<void> files;  // owns temporary files; released with the last model object
  // The model was requested at the start or by a poll. A model that a client requests is required
  // once it has served, so that no client makes the server not ready by loads that fail.
  bool is_required = true;
  bool is_poll = false;       // see FailureLog
  bool is_requested = false;  // requested by its own name, not only as a step of an ensemble
  bool is_renamed = false;    // its directory has another name
  uint64_t fingerprint = 0;   // of the directory
  // Fingerprints of the versions' files. A version is loaded anew if its fingerprint changed or
  // is missing.
  std::map<int64_t, uint64_t> fingerprints;
  std::optional<std::string> config_override;  // from the load parameter `config`
  std::vector<std::string> steps;              // keys of the models that an ensemble calls, ordered
  std::vector<std::string> notes;      // for the log: skipped version directories and the reasons
  Status version_error;                // not Ok: no version can be loaded
  std::shared_ptr<AgentChain> agents;  // null before ApplyAgents and without agents
};

// Both maps are keyed by name; a name is in at most one of them.
struct LoadList {
  bool is_required = true;  // see LoadPlan
  bool is_poll = false;     // see FailureLog
  std::map<std::string, LoadPlan> plans = {};
  std::map<std::string, Status> failures = {};
};

// What the serving versions of a model were loaded from.
struct LoadedModel {
  uint64_t fingerprint = 0;
  bool is_overridden = false;  // the configuration came with a load call
  bool is_requested = false;   // loaded by its own name since it was last unloaded
  std::vector<std::string> steps;
};
using LoadedModels = std::map<std::string, LoadedModel>;

// Whether the model of a key has a serving version.
using Serves = std::function<bool(const std::string& name)>;
// The requested ensembles, whether they serve or wait for a step.
using EnsemblePlans = std::map<std::string, std::shared_ptr<const LoadPlan>>;

// A request to an ensemble whose steps support inline execution executes all of them on the stack
// of the thread that brings it. One level of nesting takes about 2.7 KiB of a stack of 8 MiB.
inline constexpr size_t kMaxEnsembleDepth = 32;

// ---- one model ----

// Returns the versions of `available` (ascending) that `policy` selects, ascending. Adds a note for
// each selected version that does not exist. INVALID_ARG if none is left.
Result<std::vector<int64_t>> SelectVersions(const VersionPolicy& policy,
                                            const std::vector<int64_t>& available,
                                            const std::string& model_path,
                                            std::vector<std::string>* notes);

// Returns the key of each step's model. With model namespacing, the repository of `ensemble` takes
// precedence over the other `repositories`; `exists` tells whether they have a model.
Result<std::vector<std::string>> ResolveSteps(
    const std::string& ensemble, const std::vector<EnsembleStep>& steps,
    const std::vector<std::string>& repositories,
    const std::function<bool(const std::string&)>& exists);

// True if the load would change nothing: the directory is unchanged and its steps resolve to the
// same models.
bool IsUnchanged(const LoadPlan& plan, const LoadedModel& loaded);

// What a load does with a version that serves.
enum class VersionAction { kReplace, kKeep, kUpdateInstances };
// `fingerprint` and `config`: those of the version's last load.
VersionAction PlanVersion(const LoadPlan& plan, int64_t version,
                          std::optional<uint64_t> fingerprint, const ModelConfig& config);

// ---- loads that depend on each other ----

struct NextLoads {
  std::vector<std::string> start;
  std::map<std::string, Status> failures;
};
// The `waiting` plans that can start or have failed, because all models that they call are settled.
// `running`: those being loaded. `failures`: the loads that failed. Plans that wait for each other
// fail, too.
NextLoads FindNextLoads(const std::map<std::string, LoadPlan>& waiting,
                        const std::map<std::string, LoadPlan>& running,
                        const std::map<std::string, Status>& failures, const Serves& serves);

bool AllStepsServe(const LoadPlan& plan, const Serves& serves);

// The plans that must not be loaded, with the errors: the ensembles that are nested too deep or, if
// there are none, the first one that is part of a cycle. `requested` has the plans' ensembles, too.
std::map<std::string, Status> FindRefused(const std::map<std::string, LoadPlan>& plans,
                                          const EnsemblePlans& requested);
// The requested ensembles that call one of `steps` and are not part of a cycle.
EnsemblePlans CallersOf(const std::set<std::string>& steps, const EnsemblePlans& requested);

// ---- unloads ----

// The names in `loaded` of the ensembles that call `step`.
std::vector<std::string> EnsemblesCalling(const std::string& step, const LoadedModels& loaded);

// The steps to unload with an ensemble, by the ensemble after which they are unloaded: those that
// were not requested by name and that no other loaded ensemble calls.
std::map<std::string, std::vector<std::string>> FindUnusedSteps(const std::string& ensemble,
                                                                const LoadedModels& loaded);

// The models in `loaded` that a poll unloads: those without a directory, and those that a second
// directory of the same name has made ambiguous.
std::vector<std::string> FindRemoved(const ScannedModels& scanned, const LoadedModels& loaded);

// ---- texts ----

// INTERNAL lists the failures; Ok if there are none.
Status SummarizeFailures(const std::map<std::string, Status>& failures);

}  // namespace nereid::core
