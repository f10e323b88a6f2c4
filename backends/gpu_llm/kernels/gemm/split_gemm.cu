// Launcher of the split-K GEMM: chooses the split, encodes the tensor maps.
#include "backends/gpu_llm/kernels/gemm/gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/tensor_map.h"
#include "backends/gpu_llm/kernels/gemm/split_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace split_gemm;

static_assert(kMaxSplitGroups == kGroups);

// Estimated nanoseconds that the exchange of partial sums takes: kExchange in every cluster of
// several blocks, and kExchangeBlock more for each of its blocks after the first.
constexpr int kExchange = 400, kExchangeBlock = 100;
// Equal shares are used where a tile is divided among at most so many blocks. One block adds the
// partial sums of all of them, so that slices are faster where there are more.
constexpr int kMaxPieces = 32;

int Ceil(int a, int b) {
  return (a + b - 1) / b;
}

KernelVariant VariantFor(const SplitGemmParams& p) {
  const int tile_rows = SplitGemmTile(p.num_rows);
  const bool has_blocks = p.weights.block_scales != nullptr;
  const bool finishes =
      p.bias != nullptr || p.output == GemmEpilogue::kActivate || p.output == GemmEpilogue::kGate;
  switch (p.weights.format) {
    case WeightFormat::kInt4:
      return Int4Variant(tile_rows, finishes);
    case WeightFormat::kFp8:
      return has_blocks ? Fp8BlocksVariant(std::min(tile_rows, kMaxBlocksRows), finishes)
                        : Fp8Variant(tile_rows, finishes);
    case WeightFormat::kBf16:
      break;
  }
  return Bf16Variant(tile_rows, finishes);
}

struct LaunchConfig {
  std::array<cudaLaunchAttribute, 2> attributes = {};
  cudaLaunchConfig_t config = {};

  // Adjacent blocks have the same outputs: they read the same weights.
  LaunchConfig(const KernelVariant& variant, int output_tiles, int row_tiles, int split,
               cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(split), 1, 1};
    config.gridDim = {static_cast<unsigned>(split), static_cast<unsigned>(row_tiles),
                      static_cast<unsigned>(output_tiles)};
    config.blockDim = static_cast<unsigned>(variant.threads);
    config.dynamicSmemBytes = static_cast<size_t>(variant.shared_bytes);
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = 2;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;
};

// Maximum number of concurrent clusters for each cluster size, 1 to kMaxSplit. Assumes that all
// devices of the process are equal.
std::array<int, kMaxSplit + 1> MaxActiveClusters(const KernelVariant& variant) {
  static std::mutex mutex;
  static std::map<const void*, std::array<int, kMaxSplit + 1>> cached_counts;
  const auto* kernel = reinterpret_cast<const void*>(variant.kernel);
  const std::lock_guard lock(mutex);
  if (const auto found = cached_counts.find(kernel); found != cached_counts.end())
    return found->second;
  std::array<int, kMaxSplit + 1> counts = {};
  bool all_known = true;
  for (int split = 1; split <= kMaxSplit; ++split) {
    const LaunchConfig launch(variant, 1, 1, split, nullptr);
    if (cudaOccupancyMaxActiveClusters(&counts[static_cast<size_t>(split)], kernel,
                                       &launch.config) != cudaSuccess) {
      counts[static_cast<size_t>(split)] = 0;
      all_known = false;
      (void)cudaGetLastError();
    }
  }
  if (all_known) cached_counts.emplace(kernel, counts);  // otherwise the next call queries again
  return counts;
}

// How the blocks of a launch divide a product: the number of slices of the depth, and the number of
// groups of outputs that a block computes. With few groups a block exchanges fewer partial sums.
// With many groups fewer blocks read the same rows of the input.
struct Division {
  int split, groups;
};

// Returns the division with the least estimated time. Where the parameters say the number of slices
// or of groups, only divisions with that number are compared.
Division ChooseDivision(const KernelVariant& variant, const SplitGemmParams& p) {
  const auto at_once = MaxActiveClusters(variant);
  const BlockTimes& times = variant.times;
  const int row_tiles = Ceil(p.num_rows, variant.rows),
            num_steps = Ceil(p.weights.depth, variant.step_columns);
  const int fixed_split = p.split == kEqualShares ? 0 : std::min(p.split, num_steps);
  Division best = {1, p.groups == 0 ? kGroups : p.groups};
  int64_t least = INT64_MAX;
  for (int groups = 1; groups <= kGroups; ++groups) {
    if (p.groups != 0 && groups != p.groups) continue;
    const int num_tiles = row_tiles * Ceil(p.weights.num_outputs, groups * kGroupOutputs);
    for (int split = 1; split <= std::min(kMaxSplit, num_steps); ++split) {
      const int clusters = at_once[static_cast<size_t>(split)];
      if (clusters == 0 || (fixed_split != 0 && split != fixed_split)) continue;
      const int64_t step = times.step + groups * times.group_step,
                    ends = times.ends + groups * times.group_ends,
                    exchange = split == 1 ? 0 : kExchange + (split - 1) * kExchangeBlock;
      const int64_t time =
          Ceil(num_tiles, clusters) * (Ceil(num_steps, split) * step + ends + exchange);
      if (time < least) best = {split, groups}, least = time;
    }
  }
  return best;
}

// The map of a matrix [num_rows, num_columns], for boxes of `box_rows` rows of a stage.
cudaError_t EncodeMatrix(CUtensorMap& map, const void* matrix, int num_rows, int num_columns,
                         int element_bytes, int box_rows) {
  static_assert(kStageRowBytes == kTensorMapRowBytes);
  return EncodeTensorMap<2>(map, matrix, element_bytes, {num_columns, num_rows},
                            {int64_t{num_columns} * element_bytes}, box_rows);
}

// Processors with equal shares of the product; 0: it is divided in slices.
int SharesOf(const SplitGemmParams& p) {
  if (p.weights.format != WeightFormat::kBf16 || p.num_rows > kShareRows) return 0;
  if ((p.split != 0 && p.split != kEqualShares) || p.groups != 0) return 0;
  int device = 0, processors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 0;
  }
  static_assert(kShareOutputs == kOutputs);
  const int num_tiles = Ceil(p.weights.num_outputs, kOutputs),
            num_steps = num_tiles * Ceil(p.weights.depth, kStageRowBytes / 2);
  const bool fits = p.scratch.num_partials >= NumSharePartials(processors) &&
                    processors * kWarps <= kMaxSplitTickets && num_steps >= processors &&
                    int64_t{num_steps} * processors < kMaxShareProduct;
  if (!fits) return 0;
  const bool is_faster = Ceil(processors, num_tiles) <= kMaxPieces;
  return p.split == kEqualShares || is_faster ? processors : 0;
}

cudaError_t LaunchShares(const SplitGemmParams& params, int processors, cudaStream_t stream) {
  const KernelVariant variant = Bf16SharesVariant();
  TensorMaps maps = {};
  cudaError_t error = cudaFuncSetAttribute(
      variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, variant.shared_bytes);
  if (error == cudaSuccess) {
    error =
        EncodeMatrix(maps.in, params.in, params.num_rows, params.weights.depth, 2, variant.rows);
  }
  if (error == cudaSuccess) {
    error = EncodeMatrix(maps.weights, params.weights.data, params.weights.num_outputs,
                         params.weights.depth, 2, kOutputs);
  }
  if (error != cudaSuccess) return error;
  Launch(variant.kernel, processors, variant.threads, variant.shared_bytes, stream, maps, params);
  return cudaGetLastError();
}

}  // namespace

cudaError_t SplitGemm(const SplitGemmParams& given, cudaStream_t stream) {
  if (given.num_rows == 0) return cudaSuccess;
  if (const int processors = SharesOf(given); processors > 0)
    return LaunchShares(given, processors, stream);
  SplitGemmParams params = given;
  const WeightMatrix& weights = params.weights;
  const KernelVariant variant = VariantFor(params);
  if (const cudaError_t error = cudaFuncSetAttribute(
          variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, variant.shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  const int row_tiles = Ceil(params.num_rows, variant.rows),
            num_steps = Ceil(weights.depth, variant.step_columns);
  const Division division = ChooseDivision(variant, params);
  TensorMaps maps = {};
  maps.slice_steps = num_steps / division.split;
  maps.num_longer_slices = num_steps % division.split;
  maps.groups = division.groups;
  const int in_bytes = weights.format == WeightFormat::kFp8 ? 1 : 2;
  cudaError_t error =
      EncodeMatrix(maps.in, params.in, params.num_rows, weights.depth, in_bytes, variant.rows);
  if (error == cudaSuccess && weights.format != WeightFormat::kInt4) {
    error = EncodeMatrix(maps.weights, weights.data, weights.num_outputs, weights.depth, in_bytes,
                         division.groups * kGroupOutputs);
  }
  if (error != cudaSuccess) return error;
  const LaunchConfig launch(variant, Ceil(weights.num_outputs, division.groups * kGroupOutputs),
                            row_tiles, division.split, stream);
  return cudaLaunchKernelEx(&launch.config, variant.kernel, maps, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
