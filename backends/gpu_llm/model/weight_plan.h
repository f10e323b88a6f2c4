// Plans where the weights of a model lie: assigns consecutive offsets of one allocation to matrices
// and vectors, and collects the jobs that fill them. Pointers of planned matrices are encoded
// offsets until the memory is allocated (WeightPlan::Relocate). [load thread]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/model/weight_upload.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Weights whose rows a matrix has, and how many of each.
using KindsAndRows = std::vector<std::pair<llm::WeightKind, int64_t>>;

class WeightPlan {
 public:
  // Borrowed for the plan's life. `dummy`: the weights need not be mapped.
  WeightPlan(const llm::DecoderModel& model, const Sharding& sharding,
             const std::optional<DummyWeights>& dummy)
      : model_(model), sharding_(sharding), dummy_(dummy) {}

  // A vector of biases, concatenated or interleaved as in Matrix().
  const __nv_bfloat16* Vector(int32_t layer, const KindsAndRows& kinds_and_rows,
                              int64_t interleave = 0, float added = 0.0f);
  // A norm's weight, with one value for each input column; dummy weights have 1.
  const __nv_bfloat16* NormVector(int32_t layer, llm::WeightKind kind, int64_t size);
  GpuNorm Norm(int32_t layer, llm::WeightKind weight, llm::WeightKind bias);
  // One matrix for each expert.
  GpuExperts Experts(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                     int64_t interleave = 0);
  // Concatenates the rows of the weights. With `interleave`, groups of so many rows of each weight
  // alternate. `num_padding` rows of zeros follow. `expert_layout`: of an expert's matrix.
  GpuMatrix Matrix(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                   int64_t interleave = 0, int64_t num_padding = 0, int32_t expert = llm::kNoExpert,
                   const MatrixLayout& expert_layout = {});

  // The first error of planning.
  const Status& status() const { return status_; }
  int64_t size_bytes() const { return next_; }
  const std::vector<UploadJob>& jobs() const { return uploads_; }
  struct PlannedVector {
    int64_t offset, count;
    float dummy_value;  // value with dummy weights
    float dummy_bound;  // above 0: they are random up to this magnitude instead
  };
  const std::vector<PlannedVector>& vectors() const { return vectors_; }
  // Matrices that GpuWeights::matrices() does not list; pointers are encoded offsets.
  const std::vector<GpuMatrix>& dummy_matrices() const { return dummy_matrices_; }
  void AddDummyMatrix(const GpuMatrix& matrix) { dummy_matrices_.push_back(matrix); }

  // Replaces an encoded offset by the address of its place; null stays null.
  template <typename T>
  static void Relocate(const T*& pointer, const WeightPlace& place) {
    if (pointer != nullptr)
      pointer = reinterpret_cast<const T*>(place(reinterpret_cast<intptr_t>(pointer) - 1));
  }

 private:
  MatrixSource SourceOf(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                        int64_t interleave, int32_t expert) const;
  void CheckMapped(const MatrixSource& source);
  // The layout of one matrix of every expert: int4 if all experts are, with equal groups of columns
  // in the input's order; fp8 if all are and their inputs are quantized; else bf16.
  MatrixLayout ExpertsLayout(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                             int64_t interleave);
  // Whether the kernels of experts can read this quantized layout (not for bf16).
  bool IsExpertLayout(const MatrixLayout& layout, int64_t num_rows, int64_t columns) const;
  MatrixLayout Layout(int32_t layer, const MatrixSource& source);
  int64_t Reserve(int64_t size_bytes);
  template <typename T>
  static const T* OffsetPointer(int64_t offset) {
    return reinterpret_cast<const T*>(offset + 1);  // never null
  }
  template <typename T>
  const T* Array(int64_t count, std::function<void(uint8_t*)> fill);
  // Splits the matrix into jobs of whole rows or tiles, a few MiB each.
  void AddJobs(const std::shared_ptr<const MatrixSource>& source,
               const std::shared_ptr<const MatrixLayout>& layout, int64_t offset);

  const llm::DecoderModel& model_;
  const Sharding& sharding_;
  const std::optional<DummyWeights>& dummy_;
  int64_t next_ = 0;
  std::vector<UploadJob> uploads_;
  std::vector<PlannedVector> vectors_;
  std::vector<GpuMatrix> dummy_matrices_;
  Status status_;
};

}  // namespace nereid::gpu
