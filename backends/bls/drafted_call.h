// Answers one request of the engine's step by calls of the draft model and of the engine in turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "backends/bls/drafted_outputs.h"
#include "backends/bls/drafted_text.h"
#include "backends/bls/drafting_models.h"
#include "backends/bls/named_inputs.h"
#include "backends/ensemble/step_models.h"
#include "nereid/status.h"

namespace nereid::bls {

// Each call starts from the event that ends the one before. Owned by the calls' events. [any
// thread; the calls of one text never overlap]
class DraftedCall : public ensemble::StepCall, public std::enable_shared_from_this<DraftedCall> {
 public:
  // `models`, `target` and `draft` outlive the call. `inputs`: of the engine's step.
  DraftedCall(const DraftingModels& models, ensemble::StepModels& target,
              ensemble::StepModels& draft, NamedInputs inputs, DraftedText text,
              std::shared_ptr<ensemble::StepEvents> events)
      : models_(models),
        target_models_(target),
        draft_models_(draft),
        inputs_(std::move(inputs)),
        text_(std::move(text)),
        outputs_(*models.target.step),
        events_(std::move(events)) {}

  // Calls the draft model if it shall propose tokens now, else the target model. No event follows
  // for a returned error.
  Status Next() { return text_.NumToDraft() > 0 ? StartDraft() : StartTarget({}); }
  void Cancel() override;

 private:
  enum class Kind : uint8_t { kDraft, kTarget };
  class CallEvents;

  Status StartDraft();
  Status StartTarget(std::span<const int32_t> proposed);
  // Sets the inputs that change from call to call.
  void SetTokens(NamedInputs& inputs, std::span<const int32_t> prompt,
                 std::span<const int32_t> draft, int32_t num_tokens, size_t num_output) const;
  Status Start(ensemble::StepModels& models, const NamedInputs& inputs, Kind kind);
  // Reads the tokens of a response and starts the next call, or answers.
  Status Take(Kind kind, std::span<const ensemble::TensorRef> response);
  // Returns the token ids of a response without those of the prompt.
  Result<TokenIds> GeneratedIds(const DraftingModel& model,
                                std::span<const ensemble::TensorRef> response,
                                size_t num_prompt) const;
  // The request's input precedes the configuration.
  bool ExcludesPrompt(const DraftingModel& model) const;
  void Answer();
  void Fail(Status error);
  // This object lives while somebody holds a reference: each call, as long as the called model may
  // read its inputs, and the request, until it is answered.
  void DropReference();

  const DraftingModels& models_;
  ensemble::StepModels& target_models_;
  ensemble::StepModels& draft_models_;
  const NamedInputs inputs_;  // of the engine's step, as the runner gave them
  DraftedText text_;
  DraftedOutputs outputs_;
  const std::shared_ptr<ensemble::StepEvents> events_;
  std::atomic<int> num_references_{1};
  uint64_t num_calls_ = 0;

  std::mutex mutex_;  // guards all below
  std::shared_ptr<ensemble::StepCall> call_;
  uint64_t newest_call_ = 0;
  bool is_cancelled_ = false;
};

}  // namespace nereid::bls
