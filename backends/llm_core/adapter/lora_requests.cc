// Finds adapters by name, and by the tensors of TensorRT-LLM's tasks.
#include "backends/llm_core/adapter/lora_requests.h"

#include <limits>
#include <optional>
#include <string_view>

#include "backends/llm_core/lora/adapter_list.h"
#include "backends/llm_core/lora/task_folder.h"

namespace nereid::llm {
namespace {

constexpr std::chrono::milliseconds kFolderPeriod(500);
constexpr char kName[] = "lora_name";

// The text of the tensor lora_name, or of the request parameter of that name. Empty: none.
Result<std::string> ReadName(Request& request, BatchInputs& inputs, int64_t row) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<std::string_view> text, inputs.Text(kName, row));
  if (text) return std::string(*text);
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                          request.FindParameter(kName));
  if (!parameter) return std::string();
  if (parameter->type != TRITONSERVER_PARAMETER_STRING) {
    return InvalidArgError("parameter 'lora_name': expected a string");
  }
  return std::string(parameter->AsString());
}

// The last two dims of a tensor, for one row of the batch.
struct RowShape {
  int64_t rows = 0, columns = 0;
};

RowShape ShapeOf(const TensorView* view) {
  if (view == nullptr || view->shape().size() < 2) return {};
  const auto shape = view->shape();
  return {shape[shape.size() - 2], shape[shape.size() - 1]};
}

Result<TaskWeights> ReadTaskWeights(BatchInputs& inputs, int64_t row) {
  TaskWeights weights;
  NEREID_ASSIGN_OR_RETURN(const std::span<const Fp16> halves,
                          inputs.Row<Fp16>("lora_weights", row));
  NEREID_ASSIGN_OR_RETURN(weights.config, inputs.Row<int32_t>("lora_config", row));
  const RowShape shape = ShapeOf(inputs.Find("lora_weights"));
  const RowShape config = ShapeOf(inputs.Find("lora_config"));
  if (config.columns < 3 || config.columns > 4 || shape.rows != config.rows ||
      static_cast<int64_t>(halves.size()) != shape.rows * shape.columns ||
      static_cast<int64_t>(weights.config.size()) != config.rows * config.columns) {
    return InvalidArgError("input 'lora_weights' is [", shape.rows, ", ", shape.columns,
                           "] and 'lora_config' [", config.rows, ", ", config.columns,
                           "], expected [n, numbers] and [n, 3], a row for each module");
  }
  static_assert(sizeof(Fp16) == sizeof(uint16_t));
  weights.weights = {reinterpret_cast<const uint16_t*>(halves.data()), halves.size()};
  weights.num_rows = shape.rows;
  weights.width = shape.columns;
  weights.config_width = config.columns;
  return weights;
}

}  // namespace

Result<LoraParameters> ReadLoraParameters(const ModelContext& context) {
  const ConfigParameters& parameters = context.parameters();
  LoraParameters result;
  NEREID_ASSIGN_OR_RETURN(result.adapters, ParseAdapterList(parameters.String("lora_adapters")));
  for (auto& [name, folder] : result.adapters) {
    folder = (context.directory() / folder).lexically_normal().string();
  }
  if (const std::string folder = parameters.String("lora_dir"); !folder.empty()) {
    result.folder = (context.directory() / folder).lexically_normal().string();
  }
  if (const std::string folder = parameters.String("lora_prefetch_dir"); !folder.empty()) {
    result.prefetch_folder = (context.directory() / folder).lexically_normal().string();
  }
  NEREID_ASSIGN_OR_RETURN(const int64_t max_rank,
                          parameters.Int("lora_cache_max_adapter_size", result.max_rank));
  if (max_rank < 1 || max_rank > kMaxAdapterRank) {
    return InvalidArgError("parameter 'lora_cache_max_adapter_size' is ", max_rank,
                           ", expected 1 to ", kMaxAdapterRank);
  }
  result.max_rank = static_cast<int32_t>(max_rank);
  NEREID_ASSIGN_OR_RETURN(result.host_bytes,
                          parameters.Int("lora_cache_host_memory_bytes", result.host_bytes));
  if (result.host_bytes < 0) {
    return InvalidArgError("parameter 'lora_cache_host_memory_bytes' is ", result.host_bytes,
                           ", expected 0 or more");
  }
  return result;
}

void AdapterUsage::Add(const std::string& name, int num_waiting, int num_running) {
  const std::lock_guard lock(mutex_);
  Counts& counts = counts_[name];
  counts.waiting += num_waiting;
  counts.running += num_running;
  if (counts.waiting == 0 && counts.running == 0) counts_.erase(name);
}

AdapterUsage::Names AdapterUsage::names() const {
  const std::lock_guard lock(mutex_);
  Names names;
  const auto append = [](std::string& list, const std::string& name) {
    list += StrCat(list.empty() ? "" : ",", name);
  };
  for (const auto& [name, counts] : counts_) {
    if (counts.running > 0) append(names.running, name);
    if (counts.waiting > 0) append(names.waiting, name);
  }
  return names;
}

Result<std::unique_ptr<LoraRequests>> LoraRequests::Create(const LoraParameters& parameters,
                                                           LoraTargets targets,
                                                           const std::string& model) {
  std::unique_ptr<LoraRequests> requests(new LoraRequests(parameters, std::move(targets)));
  for (const auto& [name, folder] : parameters.adapters) {
    Status loaded = requests->registry_.Load(name, folder);
    if (!loaded.ok()) return std::move(loaded).WithContext("parameter 'lora_adapters'");
  }
  const auto warn = [model](const Status& error) {
    LogWarning(StrCat("model '", model, "': ", error.message()));
  };
  if (!parameters.prefetch_folder.empty()) {
    PrefetchTasks(parameters.prefetch_folder, requests->tasks_, warn);
  }
  if (parameters.folder.empty()) return requests;
  Result<std::unique_ptr<AdapterFolder>> opened =
      AdapterFolder::Open(parameters.folder, requests->registry_, warn, kFolderPeriod);
  if (!opened.ok()) return std::move(opened).status().WithContext("parameter 'lora_dir'");
  requests->folder_ = std::move(*opened);
  return requests;
}

Result<std::shared_ptr<const LoraAdapter>> LoraRequests::Find(Request& request, BatchInputs& inputs,
                                                              int64_t row) {
  NEREID_ASSIGN_OR_RETURN(const std::string name, ReadName(request, inputs, row));
  if (name.empty()) return FindTask(inputs, row);
  if (inputs.Find("lora_task_id") != nullptr || inputs.Find("lora_weights") != nullptr) {
    return InvalidArgError("the request has 'lora_name' '", name,
                           "' and the tensors of a LoRA task, expected one of them");
  }
  return registry_.Find(name);
}

Result<std::shared_ptr<const LoraAdapter>> LoraRequests::FindTask(BatchInputs& inputs,
                                                                  int64_t row) {
  const TensorView* weights = inputs.Find("lora_weights");
  const TensorView* config = inputs.Find("lora_config");
  const bool has_weights = weights != nullptr && weights->size_bytes() > 0;
  if (has_weights != (config != nullptr && config->size_bytes() > 0)) {
    return InvalidArgError("input '", has_weights ? "lora_weights" : "lora_config", "' needs '",
                           has_weights ? "lora_config" : "lora_weights", "'");
  }
  const TensorView* id = inputs.Find("lora_task_id");
  if (id == nullptr || id->size_bytes() == 0) {
    if (!has_weights) return std::shared_ptr<const LoraAdapter>();
    return InvalidArgError("input 'lora_weights' needs 'lora_task_id'");
  }
  uint64_t task_id = 0;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<uint64_t>("lora_task_id", row, task_id));
  if (has_weights) {
    NEREID_ASSIGN_OR_RETURN(const TaskWeights sent, ReadTaskWeights(inputs, row));
    Result<std::shared_ptr<const LoraAdapter>> added = tasks_.Add(task_id, sent);
    if (added.ok()) return added;
    return std::move(added).status().WithContext(StrCat("LoRA task ", task_id));
  }
  std::shared_ptr<const LoraAdapter> found = tasks_.Find(task_id);
  // Clients send 0 for requests without an adapter.
  if (found != nullptr || task_id == 0) return found;
  return InvalidArgError("LoRA task ", task_id,
                         " not found in cache. Please send LoRA weights with request");
}

std::unique_ptr<AdapterUse> LoraRequests::Use(const LoraAdapter* adapter) const {
  if (adapter == nullptr) return nullptr;
  return std::make_unique<AdapterUse>(usage_, adapter->name());
}

}  // namespace nereid::llm
