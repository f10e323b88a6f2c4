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
};

Findings CheckRepository(const std::string& path, const CheckOptions& options);

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

// Runs the ensemble backend's own validation on the configurations of the steps' models.
void CheckEnsemble(const RepositoryModel& model, const Repository& repository, Findings& findings);

// Checks what the LLM models need beyond a valid configuration: names and types of tensors, known
// parameters, and a tokenizer and a checkpoint at the given paths. Does nothing for models of other
// backends.
void CheckLlmModel(const RepositoryModel& model, Findings& findings);

}  // namespace nereid::repo
