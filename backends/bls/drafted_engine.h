// For `num_draft_tokens`: answers the engine's step by calls of a draft model and of the engine in
// turn, with one response, whose text is that of the engine alone. The other steps pass through.
// [any thread]
#pragma once

#include <memory>

#include "backends/bls/drafting_models.h"
#include "backends/ensemble/step_models.h"

namespace nereid::bls {

// Stands between a request's runner and the models that it calls. One object for each request.
class DraftedEngine : public ensemble::StepModels {
 public:
  // All outlive this object and its calls. `others` calls the steps of the request's plan, `target`
  // those of TargetPlan, `draft` those of DraftPlan.
  DraftedEngine(const DraftingModels& models, int32_t num_draft_tokens,
                ensemble::StepModels& others, ensemble::StepModels& target,
                ensemble::StepModels& draft)
      : models_(models),
        num_draft_tokens_(num_draft_tokens),
        others_(others),
        target_(target),
        draft_(draft) {}

  Result<std::shared_ptr<ensemble::StepCall>> Start(
      const ensemble::StepRequest& request, std::shared_ptr<ensemble::StepEvents> events) override;

 private:
  const DraftingModels& models_;
  const int32_t num_draft_tokens_;
  ensemble::StepModels& others_;
  ensemble::StepModels& target_;
  ensemble::StepModels& draft_;
};

}  // namespace nereid::bls
