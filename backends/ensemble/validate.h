// Checks an ensemble against the models that it calls, before anything runs. Finds every fault, not
// the first alone, and says where each stands, so that nereid-repo can point at the line. Pure.
// [any thread]
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/ensemble/ensemble_config.h"
#include "nereid/status.h"

namespace nereid::ensemble {

struct Fault {
  enum class Place { kEnsemble, kInput, kOutput, kModel, kInputMap, kOutputMap };

  std::string message;  // names the ensemble, the step, the tensors and both values
  Place place = Place::kEnsemble;
  int step = -1;            // of kModel, kInputMap, kOutputMap
  std::string key;          // the entry of the map, or the tensor of kInput, kOutput
  bool is_warning = false;  // works, but hardly as meant
};

// `models`: one a step, or the reason why it is not there, which goes on from "ensemble 'a' depends
// on 'b'".
std::vector<Fault> Validate(const EnsembleConfig& config,
                            std::span<const Result<ModelSpec>> models);

// Ok when no fault is an error; else INVALID_ARG with all of them.
Status StatusOf(std::span<const Fault> faults);

}  // namespace nereid::ensemble
