// `nereid-repo check`: finds the errors of a model repository without loading anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/core/config/config_error.h"
#include "host/core/config/config_loader.h"

namespace nereid::repo {

// ---- findings

// A finding of the checker: an error or a warning with its location in the repository. A warning
// does not prevent the model from working.
struct Finding {
  core::config::ConfigError error;
  bool is_warning = false;
};
using Findings = std::vector<Finding>;

// One line for each: "error: <file>:<line>:<column>: <key>: <message>".
std::string ToText(const Findings& findings);
// A JSON array of objects with severity, file, line, column, key and message.
std::string ToJson(const Findings& findings);
bool HasError(const Findings& findings);

// An error at a field, such as "ensemble_scheduling.step[0].model_name". "" means the whole file.
Finding FindingAt(const core::config::ConfigSource& folder, const std::string& key,
                  const std::string& message);

// An error at the entry of a map field whose key has this text: ("parameters", "tokenizer_dir").
Finding FindingAtMapEntry(const core::config::ConfigSource& folder, const std::string& map,
                          const std::string& entry, const std::string& message);

Finding AsWarning(Finding finding);

// ---- the check

struct CheckOptions {
  // Where to look for backends; empty: the check is skipped.
  std::vector<std::string> backend_directories;
  // The GPUs of this machine; not set: whether GPUs exist is not checked.
  std::optional<std::vector<int32_t>> gpus = std::nullopt;
  // Whether the interpreters of Python models are started, which finds those without NumPy and
  // files that do not compile.
  bool runs_interpreters = false;
};

Findings CheckRepository(const std::string& path, const CheckOptions& options);

// "3 models, no faults" or "3 models, 1 error, 2 warnings".
std::string Summarize(size_t num_models, const Findings& findings);
// The number of model folders of a repository; 0 if it cannot be read.
size_t CountModels(const std::string& path);

// ---- parts of the check

// A repository as the checker reads it: each model folder with its configuration and versions.
struct RepositoryModel {
  core::config::ConfigSource folder;
  std::optional<core::ModelConfig> config;  // empty if it cannot be read
  std::vector<int64_t> versions;            // ascending

  // <model>/<latest version>, or the model's folder if it has no version.
  std::string VersionFolder() const;
};

using Repository = std::vector<RepositoryModel>;

// Sorted by name. An unreadable model becomes a finding.
Repository ReadRepository(const std::string& path, Findings& findings);

// nullptr if there is no such model.
const RepositoryModel* FindModel(const Repository& repository, const std::string& name);

// The file with the code of a model of backend `python`, which may be missing; empty for any other
// model.
std::optional<std::string> PythonFile(const RepositoryModel& model);

// Starts the interpreter of each model of backend `python`. Names the interpreters that are missing
// or have no NumPy, and with file and line what does not compile. Runs no code of a model.
void CheckPythonModels(const Repository& repository, Findings& findings);

// Runs the ensemble backend's own validation on the configurations of the steps' models.
void CheckEnsemble(const RepositoryModel& model, const Repository& repository, Findings& findings);

// Names every step through which an ensemble calls itself. Such ensembles are not loaded.
void CheckEnsembleCycles(const Repository& repository, Findings& findings);

// Names the GPUs of instance_group and gpu_device_ids that are not among `gpus`.
void CheckGpus(const RepositoryModel& model, const std::vector<int32_t>& gpus, Findings& findings);

// Names the tokenizers that have tokens which the checkpoint of the engine that they serve does not
// know: those of the engines themselves, and those of the models that an ensemble calls beside one.
void CheckTokenizersFit(const Repository& repository, Findings& findings);

// Whether the model is served by one of the LLM engines.
bool IsLlmEngine(const core::ModelConfig& config);
// The path in the parameter, relative to the model's folder. If it is unset, the version's folder.
std::string ResolvePath(const RepositoryModel& model, const std::string& key);

// The value of a parameter; empty if it is unset or was not filled in.
std::string ValueOf(const RepositoryModel& model, std::string_view key);

// Names the parameters that were not filled in: one finding for a file, because the documents'
// command lines leave most placeholders as they are.
void NameUnfilledParameters(const RepositoryModel& model, Findings& findings);

// Checks the parameters of a model of backend `bls`, and names the models that it calls and that
// are not there.
void CheckBlsModel(const RepositoryModel& model, const Repository& repository, Findings& findings);

// Checks what the LLM models need beyond a valid configuration: names and types of tensors, known
// parameters, and a tokenizer and a checkpoint at the given paths. Does nothing for models of other
// backends.
void CheckLlmModel(const RepositoryModel& model, Findings& findings);

}  // namespace nereid::repo
