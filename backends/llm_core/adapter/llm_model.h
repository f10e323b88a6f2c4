// The `tensorrt_llm` model of a host: reads parameters and checkpoint at load, hands requests to
// the engine, which answers through the response thread. An LLM backend derives from it and brings
// its executor.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/adapter/cancel_watch.h"
#include "backends/llm_core/adapter/generation.h"
#include "backends/llm_core/adapter/lazy_tokenizer.h"
#include "backends/llm_core/adapter/llm_metrics.h"
#include "backends/llm_core/adapter/llm_parameters.h"
#include "backends/llm_core/adapter/request_reader.h"
#include "backends/llm_core/adapter/response_thread.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

class LlmModel : public Model {
 public:
  Status AutoComplete(ConfigDraft& draft) override;
  Status Initialize() override;
  // Returns at once: requests are queued with the engine.
  Status Execute(nereid::Batch& batch) override;
  Status Ready() override;
  void Finalize() override;

 protected:
  // The backend's part. The executor keeps the checkpoint as long as it needs it. [load thread]
  virtual Result<std::unique_ptr<llm::Executor>> MakeExecutor(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
      const LlmParameters& parameters) = 0;
  // Whether that executor knows quantised weights; a backend that does not refuses them by name.
  virtual bool TakesQuantised() const { return false; }
  // Whether it can make weights up, for measurements of a shape.
  virtual bool MakesUpWeights() const { return false; }
  // SchedulerOptions::mixed_step_tokens where the configuration does not say.
  virtual int32_t MixedStepTokens() const { return 0; }
  // Whether it has what `cuda_graph_mode` switches.
  virtual bool RecordsSteps() const { return false; }

 private:
  void Accept(Request request);
  Status CheckServable(const ClientRequest& client) const;
  void Generate(Request request, ClientRequest client);
  void Stop(Request request, const std::string& id);
  void Remember(const std::shared_ptr<Generation>& generation);

  std::optional<LazyTokenizer> tokenizer_;
  RequestDefaults defaults_;
  std::optional<ConfiguredOutputs> outputs_;

  std::mutex live_mutex_;  // guards live_, sweep_at_
  // Of the requests that have an id: who is to be cancelled by a stop request.
  std::unordered_multimap<std::string, std::weak_ptr<Generation>> live_;
  size_t sweep_at_ = 64;

  std::unique_ptr<LlmMetrics> metrics_;  // null where the host has none
  // In the order of creation: the engine stops first and answers through the response thread.
  std::unique_ptr<ResponseThread> responses_;
  std::unique_ptr<llm::Engine> engine_;
  std::unique_ptr<CancelWatch> watch_;
};

}  // namespace nereid::llm_adapter
