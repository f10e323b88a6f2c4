// The ops, compiled for the best instruction set of this processor. [any thread]
#pragma once

#include <string_view>
#include <vector>

#include "backends/cpu_reference/ops/activation.h"
#include "backends/cpu_reference/ops/embedding.h"
#include "backends/cpu_reference/ops/fixed_point.h"
#include "backends/cpu_reference/ops/kv_cache_view.h"
#include "backends/cpu_reference/ops/layer_norm.h"
#include "backends/cpu_reference/ops/matmul.h"
#include "backends/cpu_reference/ops/paged_attention.h"
#include "backends/cpu_reference/ops/rms_norm.h"
#include "backends/cpu_reference/ops/rope.h"

namespace nereid::cpu {

struct OpTable {
  std::string_view isa;
  void (*activation)(const ActivationParams&);
  void (*embedding)(const EmbeddingParams&);
  void (*fixed_point)(const FixedPointParams&);
  void (*layer_norm)(const LayerNormParams&);
  void (*matmul)(const MatmulParams&);
  void (*paged_attention)(const PagedAttentionParams&);
  void (*paged_kv_write)(const PagedKvWriteParams&);
  void (*rms_norm)(const RmsNormParams&);
  void (*rope)(const RopeParams&);
};

// All op tables that this processor can run, best first. Never empty: the baseline is x86-64-v2.
const std::vector<const OpTable*>& AvailableOps();
inline const OpTable& BestOps() {
  return *AvailableOps().front();
}

}  // namespace nereid::cpu
