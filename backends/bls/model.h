// A loaded `bls` model: it answers each request by calling preprocessing, the engine and
// postprocessing, as the model tensorrt_llm_bls of inflight_batcher_llm repositories does.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/bls/chain.h"
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
    std::vector<std::string> step_configs;  // the JSON of the called models' configurations
    std::set<std::string> unused_inputs;
    std::shared_ptr<ensemble::PlanCache> plans;
    std::shared_ptr<const ensemble::CallContext> context;
  };

  BlsModel(TRITONSERVER_Server* server, ensemble::ModelSpec spec,
           ensemble::CancellationMonitor& monitor)
      : server_(server), spec_(std::move(spec)), monitor_(monitor) {}

  // Returns the chain for the models as they are loaded now; looks at most once in a second.
  Result<std::shared_ptr<const LoadedChain>> CurrentChain();
  Result<std::shared_ptr<const LoadedChain>> MakeLoadedChain(
      std::vector<std::string> step_configs) const;

  TRITONSERVER_Server* const server_;  // outlives the model
  const ensemble::ModelSpec spec_;
  ensemble::CancellationMonitor& monitor_;
  ChainModels called_;
  bool accumulates_tokens_ = false;

  std::mutex mutex_;  // guards all below
  std::shared_ptr<const LoadedChain> chain_;
  Clock::time_point next_look_;
};

}  // namespace nereid::bls
