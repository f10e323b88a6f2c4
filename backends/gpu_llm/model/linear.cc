// Runs the kernels of a matrix product. With cuBLASLt, norm and gate are separate kernels.
#include "backends/gpu_llm/model/linear.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/norm.h"

namespace nereid::gpu {
namespace {

int64_t OutputRowBytes(GemmEpilogue output, int64_t num_outputs) {
  if (output == GemmEpilogue::kFloat) return num_outputs * 4;
  const bool gates = output == GemmEpilogue::kSiluGate || output == GemmEpilogue::kGate;
  return gates ? num_outputs : num_outputs * 2;
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

// Marks the matrix product, with weights in their own format or dequantized to bf16.
void MarkGemm(const LinearCall& call, int num_rows, bool is_unpacked, cudaStream_t stream,
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

void MarkDequantize(const LinearCall& call, cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  const double count = static_cast<double>(weights.num_outputs) * weights.depth;
  Mark(call, "dequantize weights", {static_cast<double>(WeightBytes(weights)) + 2.0 * count},
       stream);
}

// Work of rows that are read and written.
OperatorWork RowsWork(int num_rows, double bytes) {
  return {num_rows * bytes};
}

}  // namespace

Result<LinearRunner> LinearRunner::Create(const GpuWeights& weights, int max_num_rows,
                                          int num_processors, bool is_batch_invariant) {
  NEREID_ASSIGN_OR_RETURN(CublasGemm gemm, CublasGemm::Create());
  const KernelForm form = CurrentForm();
  LinearRunner runner(std::move(gemm), form,
                      is_batch_invariant ? KernelMode::kBatchInvariant : KernelMode::kFastest,
                      num_processors);
  int64_t depth = 0, elements = 0, fp8_depth = 0;
  for (const GpuMatrix* matrix : weights.matrices()) {
    if (matrix->gathers()) depth = std::max<int64_t>(depth, matrix->depth);
    if (!is_batch_invariant && QuantizesRows(*matrix, matrix->gathers())) {
      fp8_depth = std::max<int64_t>(fp8_depth, matrix->depth);
    } else if (matrix->format != WeightFormat::kBf16) {
      elements = std::max(elements, int64_t{matrix->num_outputs} * matrix->depth);
    }
  }
  NEREID_ASSIGN_OR_RETURN(runner.gathered_,
                          DeviceMemory::Allocate(max_num_rows * depth * 2, "gathered columns"));
  NEREID_ASSIGN_OR_RETURN(runner.dequantized_,
                          DeviceMemory::Allocate(elements * 2, "dequantized weights"));
  NEREID_ASSIGN_OR_RETURN(runner.fp8_rows_,
                          DeviceMemory::Allocate(max_num_rows * fp8_depth, "rows in fp8"));
  NEREID_ASSIGN_OR_RETURN(
      runner.fp8_scales_,
      DeviceMemory::Allocate(fp8_depth > 0 ? max_num_rows * 4 : 0, "scales of rows in fp8"));
  const int64_t partials = is_batch_invariant ? 0 : SplitPartials(form, num_processors);
  NEREID_ASSIGN_OR_RETURN(runner.split_partials_,
                          DeviceMemory::Allocate(partials * 4, "partial sums of products"));
  NEREID_ASSIGN_OR_RETURN(
      runner.split_tickets_,
      DeviceMemory::Allocate(partials > 0 ? kMaxSplitTickets * 4 : 0, "counters of products"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemset(runner.split_tickets_.data(), 0, runner.split_tickets_.size_bytes()));
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
    Mark(call, "gather columns", RowsWork(num_rows, 4.0 * depth), stream);
    auto* gathered = gathered_.as<__nv_bfloat16>();
    GatherColumns({call.in, call.rows, call.weights->column_order, call.weights->input_scale,
                   gathered, num_rows, depth},
                  stream);
    call.in = gathered;
    call.rows = nullptr;
  }
}

Status LinearRunner::RunStreamGemm(const LinearCall& call, int num_rows, cudaStream_t stream) {
  const int64_t row_bytes = OutputRowBytes(call.output, call.weights->num_outputs);
  MarkGemm(call, num_rows, false, stream);
  for (int first = 0; first < num_rows; first += kStreamMaxRows) {
    const __nv_bfloat16* in =
        call.rows != nullptr ? call.in : call.in + int64_t{first} * call.weights->depth;
    const int32_t* rows = call.rows != nullptr ? call.rows + first : nullptr;
    StreamGemm({*call.weights, in, rows, call.norm_weight,
                static_cast<char*>(call.out) + first * row_bytes,
                std::min(kStreamMaxRows, num_rows - first), call.epsilon, call.output, call.bias,
                call.activation},
               num_processors_, stream);
  }
  return CudaStatus(cudaGetLastError(), "a stream GEMM");
}

Status LinearRunner::RunRowTiles(const LinearCall& call, int tile_rows, int num_rows,
                                 cudaStream_t stream) {
  GroupedGemmParams gemm = {};
  gemm.in = call.in;
  gemm.num_rows = num_rows;
  gemm.tile_rows = tile_rows;
  gemm.num_tiles = (num_rows + tile_rows - 1) / tile_rows;
  gemm.num_outputs = call.weights->num_outputs;
  gemm.depth = call.weights->depth;
  gemm.out = call.out;
  gemm.accumulates = call.output == GemmEpilogue::kAdd;
  return CudaStatus(StreamExperts({gemm, *call.weights, 0, 1, true}, num_processors_, stream),
                    "a batch-invariant product");
}

// The gate is a kernel of its own, as in steps with adapters, so that a sequence without an adapter
// gets the same bits in both.
Status LinearRunner::RunBatchInvariant(const LinearCall& given, const ProductChoice& choice,
                                       int num_rows, cudaStream_t stream) {
  LinearCall call = given;
  const bool gates = call.output == GemmEpilogue::kSiluGate;
  if (gates) call.output = GemmEpilogue::kBf16, call.out = call.scratch;
  WeightMatrix weights = *call.weights;
  if (choice.dequantizes) {
    MarkDequantize(call, stream);
    Dequantize(weights, dequantized_.as<__nv_bfloat16>(), stream);
    weights.format = WeightFormat::kBf16;
    weights.data = dequantized_.data();
  }
  MarkGemm(call, num_rows, choice.dequantizes, stream);
  if (choice.tile_rows > 0) {
    NEREID_RETURN_IF_ERROR(RunRowTiles(call, choice.tile_rows, num_rows, stream));
  } else if (choice.kernel == ProductKernel::kExpertGemm) {
    ExpertGemmParams gemm = {};
    gemm.weights = weights;
    gemm.in = call.in;
    gemm.out = call.out;
    gemm.num_rows = num_rows;
    gemm.num_experts = 1;
    gemm.output = call.output;
    gemm.copies_weights_early = !choice.dequantizes;
    NEREID_RETURN_IF_ERROR(
        CudaStatus(ExpertGemm(gemm, num_processors_, stream), "a batch-invariant product"));
  } else {
    GroupedGemmParams gemm = {};
    gemm.weights = static_cast<const __nv_bfloat16*>(weights.data);
    gemm.in = call.in;
    gemm.pairs = call.rows;
    gemm.pairs_per_row = 1;
    gemm.num_rows = num_rows;
    gemm.tile_rows = GroupedGemmTile(num_rows);
    gemm.num_tiles = (num_rows + gemm.tile_rows - 1) / gemm.tile_rows;
    gemm.num_outputs = weights.num_outputs;
    gemm.depth = weights.depth;
    gemm.out = call.out;
    gemm.out_is_float = call.output == GemmEpilogue::kFloat;
    gemm.accumulates = call.output == GemmEpilogue::kAdd;
    GroupedGemm(gemm, stream);
  }
  if (gates) {
    Mark(call, "gate", RowsWork(num_rows, 3.0 * weights.num_outputs), stream);
    SiluGate(static_cast<const __nv_bfloat16*>(given.scratch),
             static_cast<__nv_bfloat16*>(given.out), num_rows, weights.num_outputs / 2, stream);
  }
  return CudaStatus(cudaGetLastError(), "a grouped GEMM");
}

ProductChoice LinearRunner::Choose(const LinearCall& call, int num_rows) const {
  return ChooseProduct({.form = form_,
                        .mode = mode_,
                        .weights = *call.weights,
                        .gathers_columns = call.weights->gathers(),
                        .output = call.output,
                        .norms = call.norm_weight != nullptr,
                        .selects_rows = call.rows != nullptr,
                        .num_rows = num_rows,
                        .num_processors = num_processors_});
}

bool LinearRunner::NormsBefore(const GpuMatrix& weights, GemmEpilogue output, int num_rows) const {
  return ChooseProduct({.form = form_,
                        .mode = mode_,
                        .weights = weights,
                        .gathers_columns = weights.gathers(),
                        .output = output,
                        .norms = true,
                        .num_rows = num_rows,
                        .num_processors = num_processors_})
      .prepares_rows;
}

Status LinearRunner::Run(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream) {
  if (num_rows == 0) return {};
  const ProductChoice choice = Choose(call, num_rows);
  const bool activates =
      call.output == GemmEpilogue::kActivate || call.output == GemmEpilogue::kGate;
  if (choice.finishes || (call.bias == nullptr && !activates))
    return RunKernel(call, choice, num_rows, may_time, stream);
  LinearCall product = call;
  product.output = GemmEpilogue::kBf16;
  product.out = call.scratch;
  product.bias = nullptr;
  NEREID_RETURN_IF_ERROR(RunKernel(product, choice, num_rows, may_time, stream));
  const auto* scratch = static_cast<const __nv_bfloat16*>(call.scratch);
  auto* out = static_cast<__nv_bfloat16*>(call.out);
  const int num_outputs = call.weights->num_outputs;
  if (!activates) {
    Mark(call, "residual add", RowsWork(num_rows, 6.0 * num_outputs), stream);
    ResidualAdd({scratch, call.bias, nullptr, out, num_rows, num_outputs, call.epsilon}, stream);
  } else {
    const bool gates = call.output == GemmEpilogue::kGate;
    Mark(call, "activation", RowsWork(num_rows, (gates ? 3.0 : 4.0) * num_outputs), stream);
    Activate({scratch, call.bias, out, num_rows, gates ? num_outputs / 2 : num_outputs,
              call.activation, gates},
             stream);
  }
  return CudaStatus(cudaGetLastError(), "the end of a product");
}

Status LinearRunner::RunKernel(const LinearCall& given, const ProductChoice& choice, int num_rows,
                               bool may_time, cudaStream_t stream) {
  LinearCall call = given;
  if (choice.prepares_rows) PrepareInput(call, num_rows, stream);
  switch (choice.kernel) {
    case ProductKernel::kStreamGemm:
      return RunStreamGemm(call, num_rows, stream);
    case ProductKernel::kSplitGemm:
      return RunSplitGemm(call, call.in, nullptr, num_rows, stream);
    case ProductKernel::kFp8SplitGemm:
      QuantizeInput(call, num_rows, stream);
      return RunSplitGemm(call, fp8_rows_.data(), fp8_scales_.as<float>(), num_rows, stream);
    case ProductKernel::kFp8Cublas:
      QuantizeInput(call, num_rows, stream);
      return RunFp8Gemm(call, num_rows, may_time, stream);
    case ProductKernel::kFp8ExpertGemm:
      QuantizeInput(call, num_rows, stream);
      return RunFp8ExpertGemm(call, num_rows, stream);
    case ProductKernel::kCublas:
      return RunBf16Gemm(call, num_rows, may_time, stream);
    case ProductKernel::kExpertGemm:
    case ProductKernel::kGroupedGemm:
      return RunBatchInvariant(call, choice, num_rows, stream);
  }
  return InternalError("a product has no kernel");
}

Status LinearRunner::RunSplitGemm(const LinearCall& call, const void* in, const float* in_scales,
                                  int num_rows, cudaStream_t stream) {
  // Selected rows must have been written in order by an earlier kernel.
  if (in == call.in && call.rows != nullptr)
    return InternalError("the split-K GEMM can not select rows of its input");
  MarkGemm(call, num_rows, false, stream, in_scales != nullptr);
  return CudaStatus(SplitGemm({*call.weights, in, in_scales, call.out, num_rows, call.output, 0,
                               split_scratch(), call.bias, call.activation},
                              stream),
                    "a split-K GEMM");
}

namespace {

CublasGemmCall MakeGemmCall(const LinearCall& call, int num_rows) {
  CublasGemmCall gemm;
  gemm.out = call.output == GemmEpilogue::kSiluGate ? call.scratch : call.out;
  gemm.num_rows = num_rows;
  gemm.row_capacity = call.row_capacity;
  gemm.num_outputs = call.weights->num_outputs;
  gemm.depth = call.weights->depth;
  gemm.out_is_float = call.output == GemmEpilogue::kFloat;
  gemm.accumulates = call.output == GemmEpilogue::kAdd;
  return gemm;
}

// Applies the gate to the product in `scratch`.
void ApplySiluGate(const LinearCall& call, int num_rows, cudaStream_t stream) {
  if (call.output != GemmEpilogue::kSiluGate) return;
  Mark(call, "gate", RowsWork(num_rows, 3.0 * call.weights->num_outputs), stream);
  SiluGate(static_cast<const __nv_bfloat16*>(call.scratch), static_cast<__nv_bfloat16*>(call.out),
           num_rows, call.weights->num_outputs / 2, stream);
}

}  // namespace

void LinearRunner::QuantizeInput(const LinearCall& call, int num_rows, cudaStream_t stream) {
  const int depth = call.weights->depth;
  Mark(call, "quantize rows", RowsWork(num_rows, 3.0 * depth), stream);
  QuantizeRows({call.in, call.rows, call.norm_weight, fp8_rows_.as<uint8_t>(),
                fp8_scales_.as<float>(), num_rows, depth, call.epsilon},
               stream);
}

Status LinearRunner::RunFp8Gemm(const LinearCall& call, int num_rows, bool may_time,
                                cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  CublasGemmCall gemm = MakeGemmCall(call, num_rows);
  gemm.weights = weights.data;
  gemm.in = fp8_rows_.data();
  gemm.weight_scales = weights.row_scales;
  gemm.in_scales = fp8_scales_.as<float>();
  MarkGemm(call, num_rows, false, stream, true);
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  ApplySiluGate(call, num_rows, stream);
  return {};
}

Status LinearRunner::RunFp8ExpertGemm(const LinearCall& call, int num_rows, cudaStream_t stream) {
  MarkGemm(call, num_rows, false, stream, true);
  ExpertGemmParams gemm = {};
  gemm.weights = *call.weights;
  gemm.in = fp8_rows_.data();
  gemm.in_scales = fp8_scales_.as<float>();
  gemm.out = call.out;
  gemm.num_rows = num_rows;
  gemm.num_experts = 1;
  gemm.output = call.output;
  gemm.copies_weights_early = true;
  return CudaStatus(ExpertGemm(gemm, num_processors_, stream), "a product with block scales");
}

Status LinearRunner::RunBf16Gemm(const LinearCall& call, int num_rows, bool may_time,
                                 cudaStream_t stream) {
  const GpuMatrix& weights = *call.weights;
  CublasGemmCall gemm = MakeGemmCall(call, num_rows);
  gemm.weights = weights.data;
  gemm.in = call.in;
  if (weights.format != WeightFormat::kBf16) {
    MarkDequantize(call, stream);
    Dequantize(weights, dequantized_.as<__nv_bfloat16>(), stream);
    gemm.weights = dequantized_.data();
  }
  MarkGemm(call, num_rows, true, stream);
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  ApplySiluGate(call, num_rows, stream);
  return {};
}

}  // namespace nereid::gpu
