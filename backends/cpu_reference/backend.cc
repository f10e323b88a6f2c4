// libtriton_cpu_reference.so: an LLM served by the engine on the CPU.
#include "backends/cpu_reference/cpu_executor.h"
#include "backends/cpu_reference/model/eagle3_layer.h"
#include "backends/cpu_reference/model/medusa_layers.h"
#include "backends/llm_core/adapter/llm_model.h"

namespace nereid {
namespace {

class CpuModel : public llm::LlmModel {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    return attributes.AddPreferredInstanceGroup(TRITONSERVER_INSTANCEGROUPKIND_CPU, 1);
  }

 protected:
  bool SupportsQuantizedWeights() const override { return true; }
  bool SupportsDraftModels() const override { return true; }
  Result<std::unique_ptr<llm::Executor>> MakeExecutor(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
      const llm::LlmParameters& parameters) override {
    cpu::CpuExecutorOptions options;
    options.num_threads = parameters.num_threads;
    options.max_num_sequences = parameters.max_num_sequences;
    options.max_num_tokens = parameters.max_num_tokens;
    options.max_positions = parameters.max_positions;
    options.max_cache_tokens = parameters.max_cache_tokens;
    options.tiers = parameters.tiers;
    options.on_warning = [model = std::string(name())](const std::string& what) {
      LogWarning(StrCat("model '", model, "': ", what));
    };
    NEREID_ASSIGN_OR_RETURN(options.kv_format, cpu::ParseKvFormat(parameters.kv_cache_dtype));
    NEREID_ASSIGN_OR_RETURN(
        std::unique_ptr<llm::Executor> executor,
        cpu::CpuExecutor::Create(std::move(checkpoint), std::move(model), options));
    return executor;
  }
  Result<std::unique_ptr<llm::DraftChains>> MakeEagle3Head(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::Eagle3Head head,
      std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
      const llm::LlmParameters& parameters) override {
    NEREID_ASSIGN_OR_RETURN(
        std::unique_ptr<llm::DraftHead> layer,
        cpu::Eagle3Layer::Create(std::move(checkpoint), std::move(head), std::move(target),
                                 target_model, parameters.num_threads));
    return llm::MakeHostChains(std::move(layer));
  }
  Result<std::unique_ptr<llm::MedusaHeads>> MakeMedusaHeads(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::MedusaWeights heads,
      std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
      const llm::LlmParameters& parameters) override {
    NEREID_ASSIGN_OR_RETURN(
        std::unique_ptr<llm::MedusaHeads> layers,
        cpu::MedusaLayers::Create(std::move(checkpoint), std::move(heads), std::move(target),
                                  target_model, parameters.num_threads));
    return layers;
  }
};

}  // namespace

NEREID_BACKEND(CpuModel);

}  // namespace nereid
