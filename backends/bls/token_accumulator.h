// For `accumulate_tokens`: each response of the engine's stream is passed on with all tokens of its
// sequence so far, so that each text of the stream is the whole text up to then. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"

namespace nereid::bls {

// Stands between a request's runner and the models that it calls. One object for each request.
class TokenAccumulator : public ensemble::StepModels {
 public:
  // `models` and `plan` outlive this object. `engine_step` is an index into Graph::steps.
  TokenAccumulator(ensemble::StepModels& models, const ensemble::Plan& plan, int engine_step)
      : models_(models), plan_(plan), engine_step_(engine_step) {}

  Result<std::shared_ptr<ensemble::StepCall>> Start(
      const ensemble::StepRequest& request, std::shared_ptr<ensemble::StepEvents> events) override;

 private:
  ensemble::StepModels& models_;
  const ensemble::Plan& plan_;
  const int engine_step_;
};

}  // namespace nereid::bls
