// Builds the table of modules.
#include "backends/llm_core/lora/lora_targets.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {
namespace {

bool IsLinear(const WeightKey& key) {
  switch (key.kind) {
    case WeightKind::kQ:
    case WeightKind::kK:
    case WeightKind::kV:
    case WeightKind::kAttentionOut:
    case WeightKind::kGate:
    case WeightKind::kUp:
    case WeightKind::kDown:
    case WeightKind::kRouter:
    case WeightKind::kLmHead:
      return key.expert == kNoExpert;
    default:
      return false;
  }
}

// All rows of a matrix in order.
LoraModule WholeMatrix(const WeightKey& key, int64_t rows, int64_t columns) {
  return {rows, columns, {{key, Matrix("", rows, columns)}}};
}

constexpr std::string_view kWeightSuffix = ".weight";

std::string ModuleOf(const std::string& tensor) {
  return tensor.ends_with(kWeightSuffix) ? tensor.substr(0, tensor.size() - kWeightSuffix.size())
                                         : tensor;
}

bool IsEmbeddingName(std::string_view path) {
  const std::string_view last = path.substr(path.rfind('.') + 1);
  return last == "embed_tokens" || last == "wte" || last == "wpe" || last == "embed_in";
}

}  // namespace

LoraTargets LoraTargets::Of(const WeightMap& map, int32_t num_layers) {
  LoraTargets targets;
  targets.num_layers_ = num_layers;
  targets.prefix_renames_ = map.prefix_renames;
  for (const auto& [key, source] : map.sources) {
    if (IsLinear(key) && source.tensor_shape.size() == 2) targets.Add(key, source);
  }
  // A tied head is a module of its own in Hugging Face's code.
  const auto embedding = map.sources.find({kNoLayer, WeightKind::kTokenEmbedding, kNoExpert});
  if (!map.tied_head.empty() && embedding != map.sources.end()) {
    const std::vector<int64_t>& shape = embedding->second.tensor_shape;
    targets.Add({kNoLayer, WeightKind::kLmHead, kNoExpert},
                Matrix(map.tied_head, shape[0], shape[1]));
  }
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    const std::string prefix = StrCat("model.layers.", layer, ".");
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    targets.AddFused(attention + "qkv_proj",
                     {attention + "q_proj", attention + "k_proj", attention + "v_proj"});
    targets.AddFused(mlp + "gate_up_proj", {mlp + "gate_proj", mlp + "up_proj"});
  }
  return targets;
}

void LoraTargets::Add(const WeightKey& key, const WeightSource& source) {
  const std::vector<int64_t>& shape = source.tensor_shape;
  LoraModule& module = modules_[ModuleOf(source.tensor)];
  module.rows = shape[source.transposed ? 1 : 0];
  module.columns = shape[source.transposed ? 0 : 1];
  module.parts.push_back({key, source});
  matrices_[key] = WholeMatrix(key, source.num_rows(), module.columns);
}

void LoraTargets::AddFused(const std::string& fused, const std::vector<std::string>& split) {
  if (const auto found = modules_.find(fused); found != modules_.end()) {
    const LoraModule whole = found->second;
    if (whole.parts.size() != split.size()) return;
    // The parts are in the order of their rows, as `split` is.
    for (size_t i = 0; i < split.size(); ++i) {
      const WeightSource& source = whole.parts[i].source;
      modules_.emplace(split[i], WholeMatrix(whole.parts[i].key, source.num_rows(), whole.columns));
    }
    return;
  }
  LoraModule whole;
  for (const std::string& name : split) {
    const auto part = modules_.find(name);
    if (part == modules_.end() || part->second.parts.size() != 1) return;
    whole.rows += part->second.rows;
    whole.columns = part->second.columns;
  }
  int64_t first = 0;
  for (const std::string& name : split) {
    const LoraModule& part = modules_.at(name);
    whole.parts.push_back(
        {part.parts[0].key, RowsOf(fused, whole.rows, whole.columns, first, part.rows)});
    first += part.rows;
  }
  modules_.emplace(fused, std::move(whole));
}

const LoraModule* LoraTargets::FindModule(std::string_view path) const {
  const auto found = modules_.find(path);
  return found == modules_.end() ? nullptr : &found->second;
}

std::vector<std::string> LoraTargets::Spellings(std::string_view path) const {
  std::vector<std::string> spellings = {std::string(path)};
  for (const auto& [from, to] : prefix_renames_) {
    if (path.starts_with(to)) spellings.push_back(from + std::string(path.substr(to.size())));
  }
  return spellings;
}

Result<const LoraModule*> LoraTargets::Find(std::string_view path) const {
  for (const std::string& spelling : Spellings(path)) {
    if (const LoraModule* module = FindModule(spelling)) return module;
  }
  if (IsEmbeddingName(path)) {
    return UnsupportedError("module '", path, "' is an embedding: not supported");
  }
  if (path.find(".experts.") != std::string_view::npos || path.ends_with(".experts")) {
    return UnsupportedError("module '", path, "' belongs to a mixture of experts: not supported");
  }
  return InvalidArgError("module '", path, "' is not one of the model's linear modules, such as '",
                         modules_.empty() ? "" : modules_.begin()->first, "'");
}

const LoraModule* LoraTargets::FindMatrix(int32_t layer, WeightKind kind) const {
  const auto found = matrices_.find({layer, kind, kNoExpert});
  return found == matrices_.end() ? nullptr : &found->second;
}

}  // namespace nereid::llm
