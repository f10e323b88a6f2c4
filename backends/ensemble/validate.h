// Validates an ensemble's configuration against the models that it calls, before any request runs.
// It finds all issues, not only the first, and gives each a location, so that nereid-repo can point
// at the line. No side effects. [any thread]
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/ensemble/ensemble_config.h"
#include "nereid/status.h"

namespace nereid::ensemble {

struct ValidationIssue {
  enum class Location { kEnsemble, kInput, kOutput, kModel, kInputMap, kOutputMap };

  std::string message;  // names the ensemble, the step, the tensors and both values
  Location location = Location::kEnsemble;
  int step = -1;            // for kModel, kInputMap, kOutputMap
  std::string key;          // the entry of the map, or the tensor of kInput, kOutput
  bool is_warning = false;  // the ensemble works, but probably not as intended
};

// `models` has one entry for each step: its model, or the reason why there is none. The reason's
// text continues "ensemble 'a' depends on 'b' ".
std::vector<ValidationIssue> Validate(const EnsembleConfig& config,
                                      std::span<const Result<ModelSpec>> models);

// Ok if no issue is an error; otherwise INVALID_ARG with the text of all of them.
Status StatusOf(std::span<const ValidationIssue> issues);

}  // namespace nereid::ensemble
