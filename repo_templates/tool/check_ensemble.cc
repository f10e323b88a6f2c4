#include "repo_templates/tool/check.h"

#include <algorithm>
#include <set>

#include "backends/ensemble/validate.h"
#include "base/closest_name.h"

namespace nereid::repo {
namespace {

using Location = ensemble::ValidationIssue::Location;

// Returns an incomplete spec if the model's configuration cannot be read, because that error was
// already reported. The validation then trusts the step's maps.
Result<ensemble::ModelSpec> SpecOf(const core::EnsembleStep& step, const Repository& repository) {
  const RepositoryModel* model = FindModel(repository, step.model_name);
  if (model == nullptr) {
    std::vector<std::string> names;
    for (const RepositoryModel& known : repository) names.push_back(known.folder.name);
    return NotFoundError("which is not in the repository", DidYouMean(step.model_name, names));
  }
  ensemble::ModelSpec unknown;
  unknown.is_complete = false;
  if (!model->config.has_value()) return unknown;
  if (step.model_version >= 0 && std::find(model->versions.begin(), model->versions.end(),
                                           step.model_version) == model->versions.end()) {
    return NotFoundError("whose required version ", step.model_version,
                         " is not in the repository");
  }
  if (model->config->inputs.empty() || model->config->outputs.empty()) return unknown;
  return ensemble::ParseModelSpec(core::config::JsonText(*model->config));
}

std::string StepKey(int step, const char* field) {
  const std::string path = StrCat("ensemble_scheduling.step[", step, "]");
  return field[0] == '\0' ? path : StrCat(path, ".", field);
}

std::string TensorKey(const std::vector<core::TensorConfig>& tensors, const char* field,
                      const std::string& name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return StrCat(field, "[", i, "].name");
  }
  return field;
}

Finding LocateIssue(const RepositoryModel& model, const ensemble::ValidationIssue& issue) {
  switch (issue.location) {
    case Location::kInput:
      return FindingAt(model.folder, TensorKey(model.config->inputs, "input", issue.key),
                       issue.message);
    case Location::kOutput:
      return FindingAt(model.folder, TensorKey(model.config->outputs, "output", issue.key),
                       issue.message);
    case Location::kModel:
      return FindingAt(model.folder, StepKey(issue.step, issue.key.c_str()), issue.message);
    case Location::kInputMap:
      return FindingAtMapEntry(model.folder, StepKey(issue.step, "input_map"), issue.key,
                               issue.message);
    case Location::kOutputMap:
      return FindingAtMapEntry(model.folder, StepKey(issue.step, "output_map"), issue.key,
                               issue.message);
    case Location::kEnsemble:
      break;
  }
  return FindingAt(model.folder, "ensemble_scheduling", issue.message);
}

// Appends to `path` the models through which the last of them reaches `goal`. Each model is visited
// once, so that the time is bounded by the number of steps.
bool FindPath(const Repository& repository, const std::string& goal, std::set<std::string>& visited,
              std::vector<std::string>& path) {
  const RepositoryModel* model = FindModel(repository, path.back());
  if (model == nullptr || !model->config.has_value() || !model->config->is_ensemble()) return false;
  for (const core::EnsembleStep& step : model->config->ensemble_scheduling->steps) {
    const bool is_goal = step.model_name == goal;
    if (!is_goal && !visited.insert(step.model_name).second) continue;
    path.push_back(step.model_name);
    if (is_goal || FindPath(repository, goal, visited, path)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace

void CheckEnsembleCycles(const Repository& repository, Findings& findings) {
  for (const RepositoryModel& model : repository) {
    if (!model.config.has_value() || !model.config->is_ensemble()) continue;
    const std::string& name = model.folder.name;
    const std::vector<core::EnsembleStep>& steps = model.config->ensemble_scheduling->steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      std::vector<std::string> path{steps[i].model_name};
      std::set<std::string> visited{steps[i].model_name};
      if (path.back() != name && !FindPath(repository, name, visited, path)) continue;
      std::string text = name;
      for (const std::string& next : path) text += " -> " + next;
      findings.push_back(FindingAt(
          model.folder, StepKey(static_cast<int>(i), "model_name"),
          StrCat("ensemble '", name, "' calls itself: ", text, "; remove one of these steps")));
    }
  }
}

void CheckEnsemble(const RepositoryModel& model, const Repository& repository, Findings& findings) {
  const Result<ensemble::EnsembleConfig> config =
      ensemble::ParseEnsembleConfig(core::config::JsonText(*model.config));
  if (!config.ok()) {
    findings.push_back(FindingAt(model.folder, "ensemble_scheduling", config.status().message()));
    return;
  }
  std::vector<Result<ensemble::ModelSpec>> models;
  for (const core::EnsembleStep& step : model.config->ensemble_scheduling->steps) {
    models.push_back(SpecOf(step, repository));
  }
  for (const ensemble::ValidationIssue& issue : ensemble::Validate(*config, models)) {
    Finding finding = LocateIssue(model, issue);
    finding.is_warning = issue.is_warning;
    findings.push_back(std::move(finding));
  }
}

}  // namespace nereid::repo
