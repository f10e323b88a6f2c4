// The linear modules of a decoder that an adapter may change, by the names that the family has in
// Hugging Face's code, and the matrices of the decoder that each of them holds. Derived from the
// weight map of the architecture. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::llm {

struct LoraModule {
  int64_t rows = 0;     // outputs of the module
  int64_t columns = 0;  // its inputs
  // The decoder's matrices whose rows the module holds: one, or those of a fused projection.
  struct Part {
    WeightKey key;
    WeightSource source;
  };
  std::vector<Part> parts;
};

class LoraTargets {
 public:
  // With fused projections of the Llama family (qkv_proj, gate_up_proj), adapters of the separate
  // ones are known as well, and the other way round.
  static LoraTargets Of(const WeightMap& map, int32_t num_layers);

  int32_t num_layers() const { return num_layers_; }
  // The module with this path, such as "model.layers.0.self_attn.q_proj". UNSUPPORTED names
  // embeddings and experts; INVALID_ARG an unknown module.
  Result<const LoraModule*> Find(std::string_view path) const;
  // The matrix of a layer, or null. All its rows are one part.
  const LoraModule* FindMatrix(int32_t layer, WeightKind kind) const;

 private:
  void Add(const WeightKey& key, const WeightSource& source);
  void AddFused(const std::string& fused, const std::vector<std::string>& split);
  const LoraModule* FindModule(std::string_view path) const;
  // The path in the map's own names, with an alternative prefix replaced.
  std::vector<std::string> Spellings(std::string_view path) const;

  int32_t num_layers_ = 0;
  std::map<std::string, LoraModule, std::less<>> modules_;
  std::map<WeightKey, LoraModule> matrices_;
  std::vector<WeightMap::PrefixRename> prefix_renames_;
};

}  // namespace nereid::llm
