// A LoRA adapter: for some matrices W of a decoder, two small matrices A and B that change the
// product W x to W x + scale * B (A x). Immutable once it is built. It owns its weights, so that
// files that change later do not change a running request. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint_data_type.h"
#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::llm {

// A row-major matrix in F32, F16 or BF16. Borrows the memory of its adapter.
struct LoraMatrix {
  CheckpointDataType type = CheckpointDataType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  const uint8_t* data = nullptr;

  // Element `index` of the matrix, converted to float.
  float At(int64_t index) const;
  int64_t row_bytes() const { return columns * static_cast<int64_t>(Info(type).size_bytes); }
};

// The change of one matrix of the decoder.
struct LoraDelta {
  LoraMatrix a;  // [rank, columns of the decoder's matrix]
  LoraMatrix b;  // [rows of the decoder's matrix, rank]
  float scale = 1.0f;

  int32_t rank() const { return static_cast<int32_t>(a.rows); }
};

class LoraAdapter {
 public:
  const std::string& name() const { return name_; }
  // Different for every adapter that this process has built, also if it is loaded again under the
  // same name; at least 1. Part of the key of cached prefixes.
  uint64_t serial() const { return serial_; }
  // The largest rank of all matrices.
  int32_t max_rank() const { return max_rank_; }
  int64_t size_bytes() const { return size_bytes_; }
  // Null if the adapter does not change the matrix. The LM head has layer kNoLayer.
  const LoraDelta* Find(int32_t layer, WeightKind kind) const {
    const int16_t place = places_[PlaceOf(layer, kind)];
    return place < 0 ? nullptr : &deltas_[place];
  }
  size_t num_deltas() const { return deltas_.size(); }

 private:
  friend class LoraBuilder;
  static constexpr size_t kNumKinds = static_cast<size_t>(WeightKind::kDownBias) + 1;
  static size_t PlaceOf(int32_t layer, WeightKind kind) {
    return static_cast<size_t>(layer + 1) * kNumKinds + static_cast<size_t>(kind);
  }

  LoraAdapter() = default;

  std::string name_;
  uint64_t serial_ = 0;
  int32_t max_rank_ = 0;
  int64_t size_bytes_ = 0;
  std::vector<LoraDelta> deltas_;
  std::vector<int16_t> places_;  // [num_layers + 1, kNumKinds]: index of the delta, or -1
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

// Collects the matrices of an adapter. Errors of its functions are INVALID_ARG; callers add the
// adapter's name.
class LoraBuilder {
 public:
  LoraBuilder(std::string name, int32_t num_layers);

  // A view of a tensor with two dims. The error names `tensor` if its type is not supported or an
  // element is not finite.
  static Result<LoraMatrix> View(const std::string& tensor, const CheckpointTensor& from);
  // Copies into the adapter's memory.
  LoraMatrix Copy(const LoraMatrix& from);
  // The same for some rows: those that `source` selects of the decoder's stored tensor.
  LoraMatrix CopyRows(const LoraMatrix& from, const WeightSource& source);
  // Adds the change of one matrix; `module` is for the message if there is one already.
  Status Add(const WeightKey& key, const std::string& module, const LoraDelta& delta);

  std::shared_ptr<const LoraAdapter> Finish();

 private:
  uint8_t* Allocate(int64_t num_bytes);

  std::shared_ptr<LoraAdapter> adapter_;
};

}  // namespace nereid::llm
