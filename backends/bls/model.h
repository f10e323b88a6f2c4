// A loaded `bls` model: it answers each request by calling preprocessing, the engine and
// postprocessing, as the model tensorrt_llm_bls of inflight_batcher_llm repositories does.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/bls/chain.h"
#include "backends/bls/drafted_engine.h"
#include "backends/ensemble/capi_step_models.h"
#include "backends/ensemble/composed_model.h"
#include "backends/ensemble/plan_cache.h"

namespace nereid::bls {

class BlsModel : public ensemble::ComposedModel {
 public:
  // Reads the configuration. The called models may be loaded later. `monitor` outlives the model.
  // [load thread]
  static Result<std::unique_ptr<ensemble::ComposedModel>> Load(
      TRITONBACKEND_Model* model, ensemble::CancellationMonitor& monitor);

  Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) override;

 private:
  using Clock = std::chrono::steady_clock;

  // The chain for one state of the called models. Immutable; plans are added.
  struct LoadedChain {
    // The JSON of the called models' configurations: by ChainStep, then the draft model.
    std::vector<std::string> step_configs;
    std::set<std::string> unused_inputs;
    std::shared_ptr<ensemble::PlanCache> plans;
    std::shared_ptr<const ensemble::CallContext> context;
    std::shared_ptr<const DraftingModels> drafting;  // null without a draft model
  };

  BlsModel(TRITONSERVER_Server* server, ensemble::ModelSpec spec,
           ensemble::CancellationMonitor& monitor)
      : server_(server), spec_(std::move(spec)), monitor_(monitor) {}

  // Returns the chain for the models as they are loaded now; looks at most once in a second.
  Result<std::shared_ptr<const LoadedChain>> CurrentChain();
  Result<std::shared_ptr<const LoadedChain>> MakeLoadedChain(
      std::vector<std::string> step_configs) const;
  // What drafting needs, with `target`, the graph of the chain. `called` are the chain's models and
  // the draft model.
  Result<std::shared_ptr<const DraftingModels>> MakeDrafting(
      const ensemble::Graph& target, const std::vector<std::string>& step_configs,
      std::vector<ensemble::ModelSpec> called) const;

  TRITONSERVER_Server* const server_;  // outlives the model
  const ensemble::ModelSpec spec_;
  ensemble::CancellationMonitor& monitor_;
  ChainModels called_;
  std::string draft_model_;  // proposes tokens for the engine; empty: none
  bool accumulates_tokens_ = false;

  std::mutex mutex_;  // guards all below
  std::shared_ptr<const LoadedChain> chain_;
  Clock::time_point next_look_;
};

}  // namespace nereid::bls
