// The `tensorrt_llm` model. It reads parameters and checkpoint at load and passes requests to the
// engine, which answers through the response thread. LLM backends derive from it and provide the
// executor.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/llm_core/adapter/active_request.h"
#include "backends/llm_core/adapter/adapter_commands.h"
#include "backends/llm_core/adapter/client_request.h"
#include "backends/llm_core/adapter/lazy_tokenizer.h"
#include "backends/llm_core/adapter/llm_metrics.h"
#include "backends/llm_core/adapter/llm_parameters.h"
#include "backends/llm_core/adapter/open_requests.h"
#include "backends/llm_core/adapter/request_notes.h"
#include "backends/llm_core/adapter/request_threads.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/grammar/compiler.h"
#include "backends/llm_core/model/architecture.h"
#include "backends/llm_core/prompt/virtual_tokens.h"
#include "backends/llm_core/speculation/draft_chains.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "backends/llm_core/speculation/medusa_heads.h"
#include "backends/llm_core/speculation/medusa_weights.h"
#include "nereid/backend.h"

namespace nereid::llm {

class LlmModel : public Model {
 public:
  Status AutoComplete(ConfigDraft& draft) override;
  Status Initialize() override;
  // Returns at once, because requests are queued in the engine.
  Status Execute(nereid::Batch& batch) override;
  Status Ready() override;
  void Finalize() override;

 protected:
  // Creates the backend's executor. The executor keeps the checkpoint as long as it needs it. [load
  // thread]
  virtual Result<std::unique_ptr<llm::Executor>> MakeExecutor(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
      const LlmParameters& parameters) = 0;
  // Whether the executor supports quantized weights. If not, they are rejected at load.
  virtual bool SupportsQuantizedWeights() const { return false; }
  // Whether MakeExecutor can be called for a second model, which drafts for the first.
  virtual bool SupportsDraftModels() const { return false; }
  // Creates what runs an EAGLE-3 head. `target_model` has the embedding of `target`. [load thread]
  virtual Result<std::unique_ptr<llm::DraftChains>> MakeEagle3Head(
      std::shared_ptr<const llm::Checkpoint> /*checkpoint*/, llm::Eagle3Head /*head*/,
      std::shared_ptr<const llm::Checkpoint> /*target*/, const llm::DecoderModel& /*target_model*/,
      const LlmParameters& /*parameters*/) {
    return UnsupportedError(
        "this backend runs no EAGLE-3 heads, expected off, auto, ngram or suffix");
  }
  // Creates what runs Medusa heads. `target_model` has the final norm and the lm_head of `target`.
  // [load thread]
  virtual Result<std::unique_ptr<llm::MedusaHeads>> MakeMedusaHeads(
      std::shared_ptr<const llm::Checkpoint> /*checkpoint*/, llm::MedusaWeights /*heads*/,
      std::shared_ptr<const llm::Checkpoint> /*target*/, const llm::DecoderModel& /*target_model*/,
      const LlmParameters& /*parameters*/) {
    return UnsupportedError(
        "this backend runs no Medusa heads, expected off, auto, ngram or suffix");
  }
  // Whether the executor can create dummy weights, for performance measurements.
  virtual bool SupportsDummyWeights() const { return false; }
  // Whether an EAGLE-3 head drafts trees where neither `eagle_choices` nor `max_draft_tokens` asks
  // for them.
  virtual bool DraftsEagle3Trees() const { return true; }
  // Default of SchedulerOptions::mixed_step_tokens.
  virtual int32_t DefaultMixedStepTokens() const { return 0; }
  // Whether the executor runs on a GPU, where parameters have an effect that have none on the CPU.
  virtual bool RunsOnGpu() const { return false; }

 private:
  // The model for which a drafter is made.
  struct DraftTarget {
    std::shared_ptr<const llm::Checkpoint> checkpoint;
    llm::DecoderModel model;
    llm::Executor& executor;
  };
  // The parts of Initialize. [load thread]
  Result<std::shared_ptr<const llm::Checkpoint>> OpenCheckpoint(
      const LlmParameters& parameters) const;
  Status OpenTokenizer(const LlmParameters& parameters, int64_t vocab_size);
  Status OpenAdapters(const LlmParameters& parameters, LoraTargets targets,
                      const llm::Executor& executor);
  // Sets what requests and responses need of the executor.
  Status ApplyLimits(const llm::ExecutorLimits& limits);
  // `drafter` may be null.
  Result<llm::EngineOptions> MakeEngineOptions(const LlmParameters& parameters, int32_t block_size,
                                               const std::shared_ptr<llm::Drafter>& drafter);
  void StartCompiler(const LlmParameters& parameters);
  // The drafter that the parameters name; null for "off". [load thread]
  Result<std::shared_ptr<llm::Drafter>> MakeDrafter(const LlmParameters& parameters,
                                                    const DraftTarget& target);
  Result<std::shared_ptr<llm::Drafter>> MakeModelDrafter(const LlmParameters& parameters,
                                                         const DraftTarget& target);
  Result<std::shared_ptr<llm::Drafter>> MakeEagle3Drafter(const LlmParameters& parameters,
                                                          const DraftTarget& target);
  Result<std::shared_ptr<llm::Drafter>> MakeMedusaDrafter(const LlmParameters& parameters,
                                                          const DraftTarget& target);
  void Accept(Request request);
  // Whether the request was a command for LoRA adapters, which is taken then.
  bool TakeAdapterCommand(Request& request);
  Status CheckServable(const ClientRequest& client) const;
  void Generate(Request request, ClientRequest client);
  // Compiles the guide, then queues the request.
  void CompileAndEnqueue(const std::shared_ptr<ActiveRequest>& active_request, size_t item,
                         grammar::Guide guide, std::unique_ptr<llm::GenerationRequest> request);
  void Stop(Request request, const std::string& id);

  std::optional<LazyTokenizer> tokenizer_;
  std::unique_ptr<LoraRequests> lora_;
  std::unique_ptr<AdapterCommands> adapter_commands_;  // null: the executor has no adapters
  RequestDefaults defaults_;
  std::optional<VirtualTokens> virtual_tokens_;
  std::optional<ConfiguredOutputs> outputs_;
  RequestNotes notes_;
  OpenRequests open_requests_;
  std::unique_ptr<LlmMetrics> metrics_;  // null if the host has no metrics
  // In order of creation. Shutdown is in reverse: the engine stops first and still answers through
  // the response thread.
  std::unique_ptr<ResponseThread> responses_;
  std::unique_ptr<llm::Engine> engine_;
  std::unique_ptr<CancellationPoller> cancellation_poller_;
  std::unique_ptr<grammar::GrammarCompiler> compiler_;
};

}  // namespace nereid::llm
