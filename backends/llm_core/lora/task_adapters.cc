// Turns the rows of TensorRT-LLM's two tensors into matrices, and forgets the least recently used.
#include "backends/llm_core/lora/task_adapters.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace nereid::llm {
namespace {

struct TaskModule {
  const char* name;
  std::vector<WeightKind> kinds;  // the matrices that it holds, by rows; empty: not adapted
};

// The modules by TensorRT-LLM's numbers. In a gated MLP, mlp_h_to_4h is the gate and mlp_gate the
// projection beside it, whose rows come first in mlp_gate_up.
std::vector<TaskModule> TaskModules(bool is_gated) {
  using enum WeightKind;
  return {{"attn_qkv", {kQ, kK, kV}},
          {"attn_q", {kQ}},
          {"attn_k", {kK}},
          {"attn_v", {kV}},
          {"attn_dense", {kAttentionOut}},
          {"mlp_h_to_4h", {is_gated ? kGate : kUp}},
          {"mlp_4h_to_h", {kDown}},
          {"mlp_gate", is_gated ? std::vector{kUp} : std::vector<WeightKind>{}},
          {"cross_attn_qkv", {}},
          {"cross_attn_q", {}},
          {"cross_attn_k", {}},
          {"cross_attn_v", {}},
          {"cross_attn_dense", {}},
          {"moe_h_to_4h", {}},
          {"moe_4h_to_h", {}},
          {"moe_gate", {}},
          {"moe_router", {kRouter}},
          {"mlp_router", {}},
          {"mlp_gate_up", is_gated ? std::vector{kUp, kGate} : std::vector<WeightKind>{}},
          {"shared_expert_h_to_4h", {}},
          {"shared_expert_4h_to_h", {}},
          {"shared_expert_gate", {}},
          {"mamba_in_proj", {}},
          {"mamba_out_proj", {}},
          {"moe_latent_fc1", {}},
          {"moe_latent_fc2", {}}};
}

// One row of the tensors, checked.
struct TaskRow {
  std::string label;  // for messages
  std::vector<WeightKey> keys;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t rank = 0;
};

Result<TaskRow> ReadRow(const TaskWeights& weights, int64_t index, const LoraTargets& targets,
                        const std::vector<TaskModule>& modules, int32_t max_rank) {
  const std::span<const int32_t> config =
      weights.config.subspan(index * weights.config_width, weights.config_width);
  const int32_t number = config[0], layer = config[1];
  const auto num_modules = static_cast<int32_t>(modules.size());
  if (number < 0 || number >= num_modules) {
    return InvalidArgError("input 'lora_config', row ", index, ": module ", number,
                           ", expected 0 to ", num_modules - 1);
  }
  TaskRow row;
  row.label = StrCat("row ", index, ", ", modules[number].name, " of layer ", layer);
  if (layer < 0 || layer >= targets.num_layers()) {
    return InvalidArgError("input 'lora_config', ", row.label, ": expected a layer from 0 to ",
                           targets.num_layers() - 1);
  }
  row.rank = config[2];
  if (row.rank < 1 || row.rank > max_rank) {
    return InvalidArgError("input 'lora_config', ", row.label, ": rank ", row.rank,
                           ", expected 1 to ", max_rank, " (lora_cache_max_adapter_size)");
  }
  if (weights.config_width > 3 && config[3] != 0) {
    return UnsupportedError("input 'lora_config', ", row.label, ": DoRA is not supported");
  }
  for (const WeightKind kind : modules[number].kinds) {
    const LoraModule* matrix = targets.FindMatrix(layer, kind);
    if (matrix == nullptr) break;
    row.keys.push_back({layer, kind, kNoExpert});
    row.rows += matrix->rows;
    row.columns = matrix->columns;
  }
  if (row.keys.empty() || row.keys.size() != modules[number].kinds.size()) {
    return UnsupportedError("input 'lora_config', ", row.label,
                            ": this model has no such module that adapters may change");
  }
  const int64_t needed = row.rank * (row.columns + row.rows);
  if (needed <= weights.width) return row;
  return InvalidArgError("input 'lora_weights', ", row.label, ": ", weights.width,
                         " numbers, expected at least ", needed, ", A [", row.rank, ", ",
                         row.columns, "] and B [", row.rows, ", ", row.rank, "]");
}

CheckpointTensor HalfTensor(std::span<const uint16_t> values, int64_t rows, int64_t columns) {
  return {CheckpointDataType::kF16,
          {rows, columns},
          {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()}};
}

Status AddRow(const TaskRow& row, std::span<const uint16_t> values, const LoraTargets& targets,
              LoraBuilder& builder) {
  const int64_t a_size = row.rank * row.columns, b_size = row.rows * row.rank;
  const std::string name = StrCat("lora_weights, ", row.label);
  NEREID_ASSIGN_OR_RETURN(
      const LoraMatrix a,
      LoraBuilder::View(name, HalfTensor(values.first(a_size), row.rank, row.columns)));
  NEREID_ASSIGN_OR_RETURN(
      const LoraMatrix b,
      LoraBuilder::View(name, HalfTensor(values.subspan(a_size, b_size), row.rows, row.rank)));
  LoraDelta delta;
  delta.a = builder.Copy(a);
  int64_t first = 0;
  for (const WeightKey& key : row.keys) {
    const int64_t rows = targets.FindMatrix(key.layer, key.kind)->rows;
    delta.b = builder.CopyRows(b, RowsOf("", row.rows, row.rank, first, rows));
    first += rows;
    NEREID_RETURN_IF_ERROR(builder.Add(key, row.label, delta));
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<const LoraAdapter>> ReadTaskAdapter(uint64_t task_id,
                                                           const TaskWeights& weights,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank) {
  if (weights.num_rows == 0) {
    return InvalidArgError("input 'lora_weights' has no rows, expected one for each module");
  }
  bool is_gated = false;
  for (int32_t layer = 0; layer < targets.num_layers(); ++layer) {
    is_gated = is_gated || targets.FindMatrix(layer, WeightKind::kGate) != nullptr;
  }
  const std::vector<TaskModule> modules = TaskModules(is_gated);
  LoraBuilder builder(StrCat("task ", task_id), targets.num_layers());
  for (int64_t i = 0; i < weights.num_rows; ++i) {
    NEREID_ASSIGN_OR_RETURN(const TaskRow row, ReadRow(weights, i, targets, modules, max_rank));
    const auto values = weights.weights.subspan(i * weights.width, weights.width);
    NEREID_RETURN_IF_ERROR(AddRow(row, values, targets, builder));
  }
  return builder.Finish();
}

std::shared_ptr<const LoraAdapter> TaskAdapters::Find(uint64_t task_id) {
  const std::lock_guard lock(mutex_);
  const auto found = tasks_.find(task_id);
  if (found == tasks_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second.place);
  return found->second.adapter;
}

Result<std::shared_ptr<const LoraAdapter>> TaskAdapters::Add(uint64_t task_id,
                                                             const TaskWeights& weights) {
  if (std::shared_ptr<const LoraAdapter> found = Find(task_id)) return found;
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const LoraAdapter> adapter,
                          ReadTaskAdapter(task_id, weights, targets_, max_rank_));
  if (adapter->size_bytes() > max_bytes_) {
    return InvalidArgError("input 'lora_weights' takes ", adapter->size_bytes(),
                           " bytes, the cache of LoRA adapters has ", max_bytes_,
                           " (lora_cache_host_memory_bytes)");
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = tasks_.find(task_id); found != tasks_.end()) return found->second.adapter;
  size_bytes_ += adapter->size_bytes();
  while (size_bytes_ > max_bytes_) {
    const auto oldest = tasks_.find(by_use_.back());
    size_bytes_ -= oldest->second.adapter->size_bytes();
    tasks_.erase(oldest);
    by_use_.pop_back();
  }
  by_use_.push_front(task_id);
  tasks_[task_id] = {adapter, by_use_.begin()};
  return adapter;
}

int64_t TaskAdapters::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_;
}

}  // namespace nereid::llm
