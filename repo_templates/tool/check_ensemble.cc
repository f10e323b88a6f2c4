#include "repo_templates/tool/check_ensemble.h"

#include <algorithm>

#include "backends/ensemble/closest_name.h"
#include "backends/ensemble/validate.h"
#include "repo_templates/tool/place.h"

namespace nereid::repo {
namespace {

using Place = ensemble::Fault::Place;

// Falls back to what the step's map says when a model's configuration cannot be read: that fault
// was found already.
Result<ensemble::ModelSpec> SpecOf(const EnsembleStep& step, const Repository& repository) {
  const RepositoryModel* model = FindModel(repository, step.model_name);
  if (model == nullptr) {
    std::vector<std::string> names;
    for (const RepositoryModel& known : repository) names.push_back(known.folder.name);
    return NotFoundError("which is not in the repository",
                         ensemble::DidYouMean(step.model_name, names));
  }
  ensemble::ModelSpec unknown;
  unknown.is_complete = false;
  if (!model->config.has_value()) return unknown;
  if (step.model_version >= 0 && std::find(model->versions.begin(), model->versions.end(),
                                           step.model_version) == model->versions.end()) {
    return NotFoundError("whose required version ", step.model_version, " is not there");
  }
  if (model->config->inputs.empty() || model->config->outputs.empty()) return unknown;
  return ensemble::ParseModelSpec(config::JsonText(*model->config));
}

std::string InStep(int step, const char* field) {
  const std::string path = StrCat("ensemble_scheduling.step[", step, "]");
  return field[0] == '\0' ? path : StrCat(path, ".", field);
}

std::string TensorKey(const std::vector<TensorSpec>& tensors, const char* field,
                      const std::string& name) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == name) return StrCat(field, "[", i, "].name");
  }
  return field;
}

Finding PlaceFault(const RepositoryModel& model, const ensemble::Fault& fault) {
  switch (fault.place) {
    case Place::kInput:
      return At(model.folder, TensorKey(model.config->inputs, "input", fault.key), fault.message);
    case Place::kOutput:
      return At(model.folder, TensorKey(model.config->outputs, "output", fault.key), fault.message);
    case Place::kModel:
      return At(model.folder, InStep(fault.step, fault.key.c_str()), fault.message);
    case Place::kInputMap:
      return AtEntry(model.folder, InStep(fault.step, "input_map"), fault.key, fault.message);
    case Place::kOutputMap:
      return AtEntry(model.folder, InStep(fault.step, "output_map"), fault.key, fault.message);
    case Place::kEnsemble:
      break;
  }
  return At(model.folder, "ensemble_scheduling", fault.message);
}

}  // namespace

void CheckEnsemble(const RepositoryModel& model, const Repository& repository, Findings& findings) {
  const Result<ensemble::EnsembleConfig> config =
      ensemble::ParseEnsembleConfig(config::JsonText(*model.config));
  if (!config.ok()) {
    findings.push_back(At(model.folder, "ensemble_scheduling", config.status().message()));
    return;
  }
  std::vector<Result<ensemble::ModelSpec>> models;
  for (const EnsembleStep& step : model.config->ensemble_scheduling->steps) {
    models.push_back(SpecOf(step, repository));
  }
  for (const ensemble::Fault& fault : ensemble::Validate(*config, models)) {
    Finding finding = PlaceFault(model, fault);
    finding.is_warning = fault.is_warning;
    findings.push_back(std::move(finding));
  }
}

}  // namespace nereid::repo
