// Makes the drafter that a model's parameters name. [load thread]
#include <algorithm>

#include "backends/llm_core/adapter/llm_model.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "backends/llm_core/speculation/lookup_drafters.h"
#include "backends/llm_core/speculation/medusa_drafter.h"
#include "backends/llm_core/speculation/model_drafter.h"

namespace nereid::llm {

Result<std::shared_ptr<llm::Drafter>> LlmModel::MakeDrafter(const LlmParameters& parameters,
                                                            const DraftTarget& target) {
  const SpeculationMethod& method = parameters.speculation;
  if (method.kind == DrafterKind::kOff) return std::shared_ptr<llm::Drafter>();
  if (method.kind == DrafterKind::kLookahead) {
    if (!target.executor.features().draft_trees) {
      return UnsupportedError("parameter 'speculative_decoding' is '",
                              parameters.speculative_decoding,
                              "': this executor verifies no trees of draft tokens, expected off, "
                              "auto, ngram, suffix, draft=FOLDER or eagle3=FOLDER");
    }
    return std::shared_ptr<llm::Drafter>(std::make_shared<LookaheadDrafter>(method.lookahead));
  }
  if (!method.has_weights()) return MakeLookupDrafter(method);
  const auto make = [&]() -> Result<std::shared_ptr<llm::Drafter>> {
    if (method.kind == DrafterKind::kEagle3) return MakeEagle3Drafter(parameters, target);
    if (method.kind == DrafterKind::kMedusa) return MakeMedusaDrafter(parameters, target);
    return MakeModelDrafter(parameters, target);
  };
  Result<std::shared_ptr<llm::Drafter>> drafter = make();
  if (drafter.ok()) return drafter;
  return std::move(drafter).status().WithContext(
      StrCat("parameter 'speculative_decoding' is '", parameters.speculative_decoding, "'"));
}

Result<std::shared_ptr<llm::Drafter>> LlmModel::MakeModelDrafter(const LlmParameters& parameters,
                                                                 const DraftTarget& target) {
  if (!SupportsDraftModels()) {
    return UnsupportedError(
        "this backend has no draft models, expected off, auto, ngram or suffix");
  }
  const llm::ExecutorLimits& limits = target.executor.limits();
  LlmParameters own = parameters;
  own.checkpoint_directory = parameters.speculation.folder;
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::Checkpoint::Open(own.checkpoint_directory));
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel decoder,
                          llm::ReadDecoder(*checkpoint, SupportsQuantizedWeights()));
  if (decoder.spec.vocab_size != limits.vocab_size) {
    return InvalidArgError("the draft model has a vocabulary of ", decoder.spec.vocab_size,
                           " tokens, and '", parameters.checkpoint_directory, "' one of ",
                           limits.vocab_size, ": expected the same vocabulary");
  }
  own.max_positions = std::min(limits.max_positions, decoder.spec.max_positions);
  own.is_draft_model = true;
  own.tiers = {};  // of the model's own cache
  own.max_cache_tokens = int64_t{limits.num_blocks} * limits.block_size;
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::Executor> executor,
                          MakeExecutor(checkpoint, std::move(decoder), own));
  NEREID_RETURN_IF_ERROR(checkpoint->CheckIntact());
  NEREID_RETURN_IF_ERROR(executor->PrepareSteps());
  auto drafter = std::make_shared<ModelDrafter>(std::move(executor));
  NEREID_RETURN_IF_ERROR(drafter->WarmUp());
  return std::shared_ptr<llm::Drafter>(std::move(drafter));
}

Result<std::shared_ptr<llm::Drafter>> LlmModel::MakeEagle3Drafter(const LlmParameters& parameters,
                                                                  const DraftTarget& target) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened,
                          llm::Checkpoint::Open(parameters.speculation.folder));
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::Eagle3Head head, ReadEagle3Head(*checkpoint, target.model.spec));
  const std::vector<int32_t> layers = head.aux_layers;
  NEREID_ASSIGN_OR_RETURN(
      std::unique_ptr<llm::DraftChains> chains,
      MakeEagle3Head(checkpoint, std::move(head), target.checkpoint, target.model, parameters));
  NEREID_RETURN_IF_ERROR(checkpoint->CheckIntact());
  NEREID_RETURN_IF_ERROR(target.executor.CaptureHiddenStates(layers, chains->place()));
  const bool takes_trees = chains->gives_siblings() && target.executor.features().draft_trees;
  auto drafter = std::make_shared<Eagle3Drafter>(std::move(chains));
  if (!parameters.eagle_choices.empty()) {
    if (!takes_trees) {
      return UnsupportedError("parameter 'eagle_choices' is '", parameters.eagle_choices,
                              "': this backend drafts and verifies chains only");
    }
    Result<std::vector<TreeChoice>> choices =
        ParseCombChoices(parameters.eagle_choices, kMaxDraftTokens, kMaxMedusaTokens);
    if (!choices.ok()) return std::move(choices).status().WithContext("parameter 'eagle_choices'");
    drafter->DraftTrees(std::move(*choices));
  } else if (takes_trees &&
             (DraftsEagle3Trees() || parameters.max_draft_tokens > drafter->default_max_drafts())) {
    drafter->DraftTrees();
  }
  return std::shared_ptr<llm::Drafter>(std::move(drafter));
}

Result<std::shared_ptr<llm::Drafter>> LlmModel::MakeMedusaDrafter(const LlmParameters& parameters,
                                                                  const DraftTarget& target) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened,
                          llm::OpenMedusaCheckpoint(parameters.speculation.folder));
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::MedusaWeights weights,
                          llm::ReadMedusaWeights(*checkpoint, target.model.spec));
  std::vector<TreeChoice> choices;
  if (!parameters.medusa_choices.empty()) {
    if (!target.executor.features().draft_trees) {
      return UnsupportedError("parameter 'medusa_choices' is '", parameters.medusa_choices,
                              "': this backend verifies chains of drafts only");
    }
    Result<std::vector<TreeChoice>> parsed =
        ParseTreeChoices(parameters.medusa_choices, weights.num_heads, kMaxMedusaTokens);
    if (!parsed.ok()) {
      return std::move(parsed).status().WithContext("parameter 'medusa_choices'");
    }
    choices = std::move(*parsed);
  }
  NEREID_ASSIGN_OR_RETURN(
      std::unique_ptr<llm::MedusaHeads> heads,
      MakeMedusaHeads(checkpoint, std::move(weights), target.checkpoint, target.model, parameters));
  NEREID_RETURN_IF_ERROR(checkpoint->CheckIntact());
  const int32_t last = target.model.spec.num_layers();  // its output
  NEREID_RETURN_IF_ERROR(target.executor.CaptureHiddenStates(std::span(&last, 1), heads->place()));
  return std::shared_ptr<llm::Drafter>(
      std::make_shared<MedusaDrafter>(std::move(heads), std::move(choices)));
}

}  // namespace nereid::llm
