// libtriton_gpu_llm.so: the backend that serves an LLM with the engine on GPUs.
#include <cstdlib>

#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/companion_memory.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/model/device_medusa_heads.h"
#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/adapter/llm_model.h"

namespace nereid {
namespace {

// TensorRT-LLM's default of lora_cache_gpu_memory_fraction.
constexpr double kAdapterMemoryFraction = 0.05;

// Reads a fraction, more than 0 and up to 1.
Result<double> ReadFraction(const ConfigParameters& given, const char* name, double unset) {
  const std::string* const text = given.Find(name);
  if (text == nullptr || text->empty()) return unset;
  char* end = nullptr;
  const double fraction = std::strtod(text->c_str(), &end);
  if (*end == '\0' && fraction > 0.0 && fraction <= 1.0) return fraction;
  return InvalidArgError("parameter '", name, "' is '", *text, "', expected more than 0, up to 1");
}

// Memory for LoRA adapters is taken only from a model that has a parameter of them.
bool UsesAdapters(const ConfigParameters& given, const llm::LlmParameters& parameters) {
  if (parameters.lora.names_adapters()) return true;
  for (const char* name : {"lora_cache_gpu_memory_fraction", "lora_cache_max_adapter_size",
                           "lora_cache_host_memory_bytes"}) {
    if (!given.String(name).empty()) return true;
  }
  return false;
}

// Reads the GPU parameters of TensorRT-LLM's `tensorrt_llm` model, and our own.
Result<gpu::GpuExecutorOptions> ReadOptions(const ConfigParameters& given,
                                            const llm::LlmParameters& parameters) {
  gpu::GpuExecutorOptions options;
  if (parameters.kv_cache_dtype == "fp8") {
    options.cache_format = gpu::CacheFormat::kFp8;
  } else if (parameters.kv_cache_dtype == "int8") {
    options.cache_format = gpu::CacheFormat::kInt8;
  } else if (parameters.kv_cache_dtype != "auto") {
    return UnsupportedError("parameter 'kv_cache_dtype' is '", parameters.kv_cache_dtype,
                            "', expected auto (bf16), fp8 or int8");
  }
  if (given.Find("max_num_sequences") != nullptr)
    options.max_num_sequences = parameters.max_num_sequences;
  if (given.Find("max_num_tokens") != nullptr) options.max_num_tokens = parameters.max_num_tokens;
  options.max_positions = parameters.max_positions;
  options.max_cache_tokens = parameters.max_cache_tokens;
  NEREID_ASSIGN_OR_RETURN(
      options.cache_memory_fraction,
      ReadFraction(given, "kv_cache_free_gpu_mem_fraction", options.cache_memory_fraction));
  options.is_cache_fraction_requested = given.Find("kv_cache_free_gpu_mem_fraction") != nullptr;
  options.caches_prefixes = parameters.scheduler.prefix_cache;
  NEREID_ASSIGN_OR_RETURN(
      const double adapter_fraction,
      ReadFraction(given, "lora_cache_gpu_memory_fraction", kAdapterMemoryFraction));
  if (UsesAdapters(given, parameters)) options.adapter_memory_fraction = adapter_fraction;
  options.max_adapter_rank = parameters.lora.max_rank;
  if (parameters.uses_dummy_weights) options.dummy = gpu::DummyWeights{};
  NEREID_ASSIGN_OR_RETURN(options.resident_weights_fraction,
                          ReadFraction(given, "gpu_weights_percent", 1.0));
  NEREID_ASSIGN_OR_RETURN(options.uses_graphs, given.Bool("cuda_graph_mode", true));
  NEREID_ASSIGN_OR_RETURN(const int64_t profile_steps, given.Int("profile_steps", 0));
  options.profile_steps = static_cast<int32_t>(std::clamp<int64_t>(profile_steps, 0, 1'000'000));
  options.is_batch_invariant = parameters.is_batch_invariant;
  NEREID_ASSIGN_OR_RETURN(const int64_t warm_up_seconds, given.Int("warm_up_seconds", 10));
  options.most_warm_up_time = std::chrono::seconds(std::clamp<int64_t>(warm_up_seconds, 0, 3600));
  NEREID_ASSIGN_OR_RETURN(options.fuses_decode, given.Bool("fused_decode", true));
  return options;
}

// A draft model gets the blocks that its model has, as far as the memory goes that was left for it.
void FitDraftModel(const llm::LlmParameters& parameters, gpu::GpuExecutorOptions& options) {
  options.adapter_memory_fraction = 0.0;
  options.max_cache_blocks = gpu::BlocksFor(parameters.max_cache_tokens);
  options.max_cache_tokens = 0;
  options.cache_memory_fraction = 0.95;
  options.is_cache_fraction_requested = options.caches_prefixes = true;
  options.profile_steps = 0;
  options.resident_weights_fraction = 1.0;
}

// What the drafter of a model on `num_gpus` GPUs will take of the first one. What is wrong with its
// folder is said when it is loaded.
Result<gpu::CompanionMemory> MemoryOfDrafter(const llm::DecoderModel& model,
                                             const llm::LlmParameters& parameters,
                                             const gpu::GpuExecutorOptions& options,
                                             size_t num_gpus) {
  const llm::SpeculationMethod& method = parameters.speculation;
  if (!method.has_weights() || parameters.is_draft_model) return gpu::CompanionMemory();
  if (method.kind == llm::DrafterKind::kMedusa) {
    NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint,
                            llm::OpenMedusaCheckpoint(method.folder));
    NEREID_ASSIGN_OR_RETURN(llm::MedusaWeights heads,
                            llm::ReadMedusaWeights(checkpoint, model.spec));
    if (num_gpus > 1) NEREID_RETURN_IF_ERROR(gpu::TakeLmHead(model, heads));
    return gpu::MemoryOfMedusaHeads(heads, options.max_num_tokens, options.max_num_sequences);
  }
  NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint, llm::Checkpoint::Open(method.folder));
  if (method.kind == llm::DrafterKind::kEagle3) {
    NEREID_ASSIGN_OR_RETURN(const llm::Eagle3Head head,
                            llm::ReadEagle3Head(checkpoint, model.spec));
    return gpu::MemoryOfHead(head, model.spec, gpu::Eagle3Layer::BlockBytes(head),
                             options.max_num_tokens, options.max_num_sequences);
  }
  NEREID_ASSIGN_OR_RETURN(const llm::DecoderModel draft, llm::ReadDecoder(checkpoint, true));
  return gpu::MemoryOfDraftModel(draft,
                                 gpu::Decoder::CacheBlockBytes(draft.spec, options.cache_format),
                                 options.max_num_tokens, options.max_num_sequences);
}

// The model's own setting, or else that of the server's environment, which launch scripts set.
std::string DeviceIds(const ConfigParameters& given) {
  if (const std::string* text = given.Find("gpu_device_ids"); text != nullptr) return *text;
  const char* const common = std::getenv("NEREID_GPU_DEVICE_IDS");
  return common != nullptr ? common : "";
}

class GpuModel : public llm::LlmModel {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    return attributes.AddPreferredInstanceGroup(TRITONSERVER_INSTANCEGROUPKIND_CPU, 1);
  }

 protected:
  bool SupportsQuantizedWeights() const override { return true; }
  bool SupportsDraftModels() const override { return true; }
  bool SupportsDummyWeights() const override { return true; }
  // A step that verifies a chain of up to 8 tokens is one launch, and costs less than a tree.
  bool DraftsEagle3Trees() const override { return false; }
  // Steps of about 10 ms for an 8B model, and whole tiles of cuBLASLt.
  int32_t DefaultMixedStepTokens() const override { return 384; }
  bool RunsOnGpu() const override { return true; }
  Result<std::unique_ptr<llm::Executor>> MakeExecutor(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
      const llm::LlmParameters& parameters) override {
    NEREID_ASSIGN_OR_RETURN(gpu::GpuExecutorOptions options,
                            ReadOptions(context().parameters(), parameters));
    options.on_profile = [model = std::string(name())](const std::string& table) {
      LogInfo(StrCat("model '", model, "': operator times\n", table));
    };
    options.tiers = parameters.tiers;
    options.checkpoint = checkpoint.get();
    options.on_warning = [model = std::string(name())](const std::string& what) {
      LogWarning(StrCat("model '", model, "': ", what));
    };
    std::vector<int32_t> devices = {options.device};
    if (const std::string text = DeviceIds(context().parameters()); !text.empty()) {
      NEREID_ASSIGN_OR_RETURN(devices, gpu::ParseDeviceIds(text));
      options.device = devices[0];
    }
    if (parameters.is_draft_model) {  // on the first GPU of its model
      FitDraftModel(parameters, options);
      devices.resize(1);
    } else if (Result<gpu::CompanionMemory> memory =
                   MemoryOfDrafter(model, parameters, options, devices.size());
               memory.ok()) {
      options.companion_memory = *memory;
    }
    if (devices.size() > 1) {
      NEREID_ASSIGN_OR_RETURN(std::unique_ptr<gpu::ShardedExecutor> sharded,
                              gpu::ShardedExecutor::Create(model, options, devices));
      executor_ = &sharded->rank(0);
      return std::unique_ptr<llm::Executor>(std::move(sharded));
    }
    NEREID_ASSIGN_OR_RETURN(std::unique_ptr<gpu::GpuExecutor> executor,
                            gpu::GpuExecutor::Create(std::move(model), options));
    if (!parameters.is_draft_model) executor_ = executor.get();
    LogInfo(StrCat("model '", name(), "': GPU ", options.device, " runs ", executor->kernels()));
    if (const std::string& why = executor->decode_refusal(); !why.empty()) {
      LogWarning(
          StrCat("model '", name(), "': small decode steps are not fused into one launch: ", why));
    }
    return std::unique_ptr<llm::Executor>(std::move(executor));
  }
  Result<std::unique_ptr<llm::DraftChains>> MakeEagle3Head(
      std::shared_ptr<const llm::Checkpoint> /*checkpoint*/, llm::Eagle3Head head,
      std::shared_ptr<const llm::Checkpoint> /*target*/, const llm::DecoderModel& target_model,
      const llm::LlmParameters& /*parameters*/) override {
    if (executor_ == nullptr) return InternalError("an EAGLE-3 head without a model");
    const llm::ExecutorLimits& limits = executor_->limits();
    gpu::Eagle3LayerOptions options;
    options.device = executor_->device();
    options.form = executor_->form();
    // The rows of drafts come on top of those of the sequences' tokens.
    options.num_blocks = limits.num_blocks + limits.max_num_sequences;
    options.max_num_entries = std::min(limits.max_num_sequences, 256);
    options.max_positions = limits.max_positions;
    options.token_embedding = executor_->token_embedding();
    options.embedding_scale = target_model.spec.embedding_scale;
    options.target = &executor_->decoder();
    options.stream = executor_->stream();
    options.num_kept_rows = gpu::NumKeptRows(limits.max_num_tokens);
    NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::DraftChains> layer,
                            gpu::Eagle3Layer::Create(std::move(head), options));
    return layer;
  }
  Result<std::unique_ptr<llm::MedusaHeads>> MakeMedusaHeads(
      std::shared_ptr<const llm::Checkpoint> /*checkpoint*/, llm::MedusaWeights heads,
      std::shared_ptr<const llm::Checkpoint> /*target*/, const llm::DecoderModel& target_model,
      const llm::LlmParameters& /*parameters*/) override {
    if (executor_ == nullptr) return InternalError("Medusa heads without a model");
    if (executor_->num_gpus() > 1) NEREID_RETURN_IF_ERROR(gpu::TakeLmHead(target_model, heads));
    gpu::MedusaOptions options;
    options.device = executor_->device();
    options.num_kept_rows = executor_->limits().max_num_sequences;
    options.norm = target_model.spec.norm;
    options.final_norm = executor_->weights().final_norm;
    options.lm_head = &executor_->weights().lm_head;
    options.lm_head_bias = executor_->weights().lm_head_bias;
    options.captured = [&decoder = executor_->decoder()] { return decoder.captured(); };
    options.stream = executor_->stream();
    NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::MedusaHeads> made,
                            gpu::DeviceMedusaHeads::Create(heads, options));
    return made;
  }

 private:
  // Of the model, on its first GPU; the engine owns it. Read during the load.
  gpu::GpuExecutor* executor_ = nullptr;
};

}  // namespace

NEREID_BACKEND(GpuModel);

}  // namespace nereid
