// Chooses among the streamed product, the split one and cuBLASLt, around which norm and gate are
// kernels of their own.
#include "backends/gpu_llm/model/linear.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/products/dequantize.h"
#include "backends/gpu_llm/kernels/products/gather_columns.h"
#include "backends/gpu_llm/kernels/products/grouped_gemm.h"
#include "backends/gpu_llm/kernels/products/quantize_rows.h"
#include "backends/gpu_llm/kernels/products/split_gemm.h"
#include "backends/gpu_llm/kernels/rows/rms_norm.h"
#include "backends/gpu_llm/kernels/rows/silu_gate.h"

namespace nereid::gpu {
namespace {

// cuBLASLt wants whole pieces of 16 bytes.
bool RoundsInput(const GpuMatrix& weights) {
  return weights.format == WeightFormat::kFp8 && weights.quantizes_input && !weights.gathers() &&
         weights.depth % 16 == 0 && weights.num_outputs % 16 == 0;
}

// Whether the product whose depth blocks share is faster than cuBLASLt, behind which a gate is a
// kernel of its own; fp8 weights with the input rounded to fp8. As measured on the layers of an 8B
// model and its LM head, whose product is too long for what it costs to begin and end to matter.
bool PrefersSplit(const GpuMatrix& weights, StreamOutput output, int num_rows) {
  if (!CanSplit(weights)) return false;
  const bool gates = output == StreamOutput::kSiluGate;
  switch (weights.format) {
    case WeightFormat::kInt4:  // beyond, unpacking to memory costs less than what cuBLASLt gains
      return num_rows <= 256;
    case WeightFormat::kFp8:
      return num_rows <= (gates || weights.depth >= 2 * weights.num_outputs ? 256 : 64);
    case WeightFormat::kBf16:
      return num_rows <= (gates ? 128 : 64) && weights.num_outputs <= 8 * weights.depth;
  }
  return false;
}

// Rows up to which streaming is faster than what else there is: cuBLASLt, for which quantised
// weights have to be unpacked first, or the split product. More than the kernel takes at a time go
// in turns, of which each reads the weights. Every block of a streamed product has the whole input
// in its shared memory: with a long input of bf16 the split one is ahead before cuBLASLt is.
int MaxStreamRows(const GpuMatrix& weights, StreamOutput output) {
  constexpr int kMostRows = 8;
  constexpr int kLongInput = 32768;  // elements
  switch (weights.format) {
    case WeightFormat::kBf16:
      if (!PrefersSplit(weights, output, kMostRows)) return kMostRows;
      return std::clamp((kLongInput - 1) / weights.depth, 1, kMostRows);
    case WeightFormat::kFp8:
      return RoundsInput(weights) ? kMostRows : 2 * kStreamMaxRows;
    case WeightFormat::kInt4:
      return kStreamMaxRows;
  }
  return 0;
}

int64_t OutputRowBytes(StreamOutput output, int64_t num_outputs) {
  if (output == StreamOutput::kFloat) return num_outputs * 4;
  return output == StreamOutput::kSiluGate ? num_outputs : num_outputs * 2;
}

int64_t WeightBytes(const GpuMatrix& weights) {
  if (weights.format == WeightFormat::kInt4) {
    return (weights.num_outputs + kInt4TileRows - 1) / kInt4TileRows *
           Int4TileBytes(weights.depth, weights.scales_per_block);
  }
  const int64_t count = int64_t{weights.num_outputs} * weights.depth;
  return weights.format == WeightFormat::kFp8 ? count : 2 * count;
}

void Mark(const LinearCall& call, const char* name, const OperatorWork& work, cudaStream_t stream) {
  if (call.timer != nullptr) call.timer->Mark(name, work, stream);
}

// The product itself, of weights as they lie in memory, or unpacked to bf16.
void MarkProduct(const LinearCall& call, int num_rows, bool is_unpacked, cudaStream_t stream,
                 bool is_fp8 = false) {
  if (call.timer == nullptr) return;
  const GpuMatrix& weights = *call.weights;
  const double outputs = weights.num_outputs, depth = weights.depth;
  OperatorWork work;
  work.bytes = (is_unpacked ? 2.0 * outputs * depth : static_cast<double>(WeightBytes(weights))) +
               2.0 * num_rows * depth +
               static_cast<double>(num_rows * OutputRowBytes(call.output, weights.num_outputs));
  work.operations = 2.0 * num_rows * outputs * depth;
  work.is_fp8 = is_fp8;
  call.timer->Mark(call.name, work, stream);
}

void MarkUnpacking(const LinearCall& call, cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  const double count = static_cast<double>(weights.num_outputs) * weights.depth;
  Mark(call, "unpacking weights", {static_cast<double>(WeightBytes(weights)) + 2.0 * count},
       stream);
}

// Of rows that are read and written.
OperatorWork RowsWork(int num_rows, double bytes) {
  return {num_rows * bytes};
}

}  // namespace

Result<LinearRunner> LinearRunner::Create(const GpuWeights& weights, int max_num_rows,
                                          int num_processors, bool is_invariant) {
  NEREID_ASSIGN_OR_RETURN(Gemm gemm, Gemm::Create());
  LinearRunner runner(std::move(gemm), num_processors);
  runner.is_invariant_ = is_invariant;
  int64_t depth = 0, elements = 0, fp8_depth = 0;
  for (const GpuMatrix* matrix : weights.matrices()) {
    if (matrix->gathers()) depth = std::max<int64_t>(depth, matrix->depth);
    if (!is_invariant && RoundsInput(*matrix)) {
      fp8_depth = std::max<int64_t>(fp8_depth, matrix->depth);
    } else if (matrix->format != WeightFormat::kBf16) {
      elements = std::max(elements, int64_t{matrix->num_outputs} * matrix->depth);
    }
  }
  NEREID_ASSIGN_OR_RETURN(runner.gathered_, DeviceMemory::Allocate(max_num_rows * depth * 2,
                                                                   "rows in a matrix's order"));
  NEREID_ASSIGN_OR_RETURN(runner.dequantized_,
                          DeviceMemory::Allocate(elements * 2, "unpacked weights"));
  NEREID_ASSIGN_OR_RETURN(runner.fp8_rows_,
                          DeviceMemory::Allocate(max_num_rows * fp8_depth, "rows in fp8"));
  NEREID_ASSIGN_OR_RETURN(
      runner.fp8_factors_,
      DeviceMemory::Allocate(fp8_depth > 0 ? max_num_rows * 4 : 0, "factors of rows in fp8"));
  return runner;
}

void LinearRunner::PrepareInput(LinearCall& call, int num_rows, cudaStream_t stream) {
  const int depth = call.weights->depth;
  if (call.norm_weight != nullptr) {
    Mark(call, "norm", RowsWork(num_rows, 4.0 * depth), stream);
    RmsNorm({call.in, call.rows, call.norm_weight, call.normed, num_rows, depth, call.epsilon},
            stream);
    call.in = call.normed;
    call.rows = nullptr;
    call.norm_weight = nullptr;
  }
  if (call.weights->gathers()) {
    Mark(call, "gathered columns", RowsWork(num_rows, 4.0 * depth), stream);
    auto* gathered = gathered_.as<__nv_bfloat16>();
    GatherColumns({call.in, call.rows, call.weights->column_order, call.weights->input_scale,
                   gathered, num_rows, depth},
                  stream);
    call.in = gathered;
    call.rows = nullptr;
  }
}

Status LinearRunner::Stream(const LinearCall& call, int num_rows, cudaStream_t stream) {
  const int64_t row_bytes = OutputRowBytes(call.output, call.weights->num_outputs);
  MarkProduct(call, num_rows, false, stream);
  for (int first = 0; first < num_rows; first += kStreamMaxRows) {
    const __nv_bfloat16* in =
        call.rows != nullptr ? call.in : call.in + int64_t{first} * call.weights->depth;
    const int32_t* rows = call.rows != nullptr ? call.rows + first : nullptr;
    StreamGemm({*call.weights, in, rows, call.norm_weight,
                static_cast<char*>(call.out) + first * row_bytes,
                std::min(kStreamMaxRows, num_rows - first), call.epsilon, call.output},
               num_processors_, stream);
  }
  return CudaStatus(cudaGetLastError(), "a streamed product");
}

Status LinearRunner::RunInvariant(const LinearCall& call, int num_rows, cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  const bool gates = call.output == StreamOutput::kSiluGate;
  GroupedGemmParams product = {};
  product.weights = static_cast<const __nv_bfloat16*>(weights.data);
  if (weights.format != WeightFormat::kBf16) {
    MarkUnpacking(call, stream);
    Dequantize(weights, dequantized_.as<__nv_bfloat16>(), stream);
    product.weights = dequantized_.as<__nv_bfloat16>();
  }
  product.in = call.in;
  product.pairs = call.rows;
  product.pairs_per_row = 1;
  product.num_rows = num_rows;
  product.tile_rows = num_rows <= 2 * kSmallExpertTile ? kSmallExpertTile : kLargeExpertTile;
  product.num_tiles = (num_rows + product.tile_rows - 1) / product.tile_rows;
  product.num_outputs = weights.num_outputs;
  product.depth = weights.depth;
  product.out = gates ? call.scratch : call.out;
  product.out_is_float = call.output == StreamOutput::kFloat;
  product.accumulates = call.output == StreamOutput::kAdd;
  MarkProduct(call, num_rows, true, stream);
  GroupedGemm(product, stream);
  if (gates) {
    Mark(call, "gate", RowsWork(num_rows, 3.0 * weights.num_outputs), stream);
    SiluGate(static_cast<const __nv_bfloat16*>(call.scratch), static_cast<__nv_bfloat16*>(call.out),
             num_rows, weights.num_outputs / 2, stream);
  }
  return CudaStatus(cudaGetLastError(), "a product");
}

Status LinearRunner::Run(const LinearCall& given, int num_rows, bool may_time,
                         cudaStream_t stream) {
  if (num_rows == 0) return {};
  LinearCall call = given;
  const GpuMatrix& weights = *call.weights;
  if (is_invariant_) {
    PrepareInput(call, num_rows, stream);
    return RunInvariant(call, num_rows, stream);
  }
  const bool is_small = num_rows <= MaxStreamRows(weights, call.output);
  const int at_once = std::min(num_rows, kStreamMaxRows);
  if (is_small && !weights.gathers() && CanStream(weights, at_once, call.norm_weight != nullptr))
    return Stream(call, num_rows, stream);
  if (RoundsInput(weights)) return MultiplyFp8(call, num_rows, may_time, stream);
  PrepareInput(call, num_rows, stream);
  if (is_small && CanStream(weights, at_once, false)) return Stream(call, num_rows, stream);
  if (weights.format != WeightFormat::kFp8 && PrefersSplit(weights, call.output, num_rows))
    return Split(call, call.in, nullptr, num_rows, stream);
  return MultiplyBf16(call, num_rows, may_time, stream);
}

Status LinearRunner::Split(const LinearCall& call, const void* in, const float* in_factors,
                           int num_rows, cudaStream_t stream) {
  // Rows that are picked come from kernels that write them in order.
  if (in == call.in && call.rows != nullptr)
    return InternalError("rows of a split product are picked");
  MarkProduct(call, num_rows, false, stream, call.weights->format == WeightFormat::kFp8);
  return CudaStatus(
      SplitGemm({*call.weights, in, in_factors, call.out, num_rows, call.output}, stream),
      "a split product");
}

namespace {

GemmCall CallOf(const LinearCall& call, int num_rows) {
  GemmCall gemm;
  gemm.out = call.output == StreamOutput::kSiluGate ? call.scratch : call.out;
  gemm.num_rows = num_rows;
  gemm.row_room = call.row_room;
  gemm.num_outputs = call.weights->num_outputs;
  gemm.depth = call.weights->depth;
  gemm.out_is_float = call.output == StreamOutput::kFloat;
  gemm.accumulates = call.output == StreamOutput::kAdd;
  return gemm;
}

// What the product left in the scratch, gated.
void Gate(const LinearCall& call, int num_rows, cudaStream_t stream) {
  if (call.output != StreamOutput::kSiluGate) return;
  Mark(call, "gate", RowsWork(num_rows, 3.0 * call.weights->num_outputs), stream);
  SiluGate(static_cast<const __nv_bfloat16*>(call.scratch), static_cast<__nv_bfloat16*>(call.out),
           num_rows, call.weights->num_outputs / 2, stream);
}

}  // namespace

Status LinearRunner::MultiplyFp8(const LinearCall& call, int num_rows, bool may_time,
                                 cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  Mark(call, "rows to fp8", RowsWork(num_rows, 3.0 * weights.depth), stream);
  QuantizeRows({call.in, call.rows, call.norm_weight, fp8_rows_.as<uint8_t>(),
                fp8_factors_.as<float>(), num_rows, weights.depth, call.epsilon},
               stream);
  if (PrefersSplit(weights, call.output, num_rows))
    return Split(call, fp8_rows_.data(), fp8_factors_.as<float>(), num_rows, stream);
  GemmCall gemm = CallOf(call, num_rows);
  gemm.weights = weights.data;
  gemm.in = fp8_rows_.data();
  gemm.weight_factors = weights.row_scales;
  gemm.in_factors = fp8_factors_.as<float>();
  MarkProduct(call, num_rows, false, stream, true);
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  Gate(call, num_rows, stream);
  return {};
}

Status LinearRunner::MultiplyBf16(const LinearCall& call, int num_rows, bool may_time,
                                  cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  GemmCall gemm = CallOf(call, num_rows);
  gemm.weights = weights.data;
  gemm.in = call.in;
  if (weights.format != WeightFormat::kBf16) {
    MarkUnpacking(call, stream);
    Dequantize(weights, dequantized_.as<__nv_bfloat16>(), stream);
    gemm.weights = dequantized_.data();
  }
  MarkProduct(call, num_rows, true, stream);
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  Gate(call, num_rows, stream);
  return {};
}

}  // namespace nereid::gpu
