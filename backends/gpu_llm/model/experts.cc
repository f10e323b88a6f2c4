// Experts: routing, grouped GEMMs and combination. [engine thread]
#include "backends/gpu_llm/model/experts.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/kernels/rows/norm.h"

namespace nereid::gpu {
namespace {

// Whether the rows are quantized to fp8.
bool QuantizesRows(const GpuExperts& experts) {
  return experts.first.format == WeightFormat::kFp8 && experts.first.quantizes_input;
}

}  // namespace

// Offsets of the arrays in routes_, in words, for a step of `num_tokens` tokens.
struct Experts::RouteBufferLayout {
  RouteBufferLayout(const llm::DecoderSpec& spec, const ExpertsChoice& kernels, int64_t num_tokens)
      : choice(kernels),
        num_pairs(num_tokens * spec.moe.experts_per_token),
        num_tiles(streams() ? MaxExpertTiles(num_pairs, spec.moe.num_experts, choice.tile_rows)
                            : 0) {}
  bool streams() const { return choice.kernel != ExpertKernel::kExpertGemm; }
  ExpertsChoice choice;
  int64_t num_pairs;
  int64_t num_tiles;
  int64_t router_weights() const { return num_pairs; }
  int64_t pairs() const { return 2 * num_pairs; }
  int64_t sorted_index() const { return 3 * num_pairs; }
  int64_t tiles() const { return 4 * num_pairs; }
  // Bytes for steps of up to `num_pairs` pairs. The registry chooses a kernel with tiles only where
  // an expert has at most one full tile of rows on average.
  static int64_t MaxBytes(const llm::DecoderSpec& spec, int64_t num_pairs) {
    const int64_t tiles = 2 * spec.moe.num_experts;
    return 16 * num_pairs + tiles * static_cast<int64_t>(sizeof(ExpertTile));
  }
};

Result<Experts> Experts::Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                int32_t max_num_tokens, int num_processors,
                                bool is_batch_invariant) {
  Experts experts;
  if (spec.moe.num_experts == 0) return experts;
  experts.spec_ = &spec;
  experts.num_processors_ = num_processors;
  experts.form_ = CurrentForm();
  experts.mode_ = is_batch_invariant ? KernelMode::kBatchInvariant : KernelMode::kFastest;
  const int64_t num_pairs = int64_t{max_num_tokens} * spec.moe.experts_per_token;
  NEREID_ASSIGN_OR_RETURN(
      experts.expert_outputs_,
      DeviceMemory::Allocate(num_pairs * spec.hidden_size * 2, "the experts' outputs"));
  NEREID_ASSIGN_OR_RETURN(
      experts.routes_,
      DeviceMemory::Allocate(RouteBufferLayout::MaxBytes(spec, num_pairs), "routing"));
  NEREID_ASSIGN_OR_RETURN(
      experts.counts_,
      DeviceMemory::Allocate(int64_t{8} * (spec.moe.num_experts + 1), "the experts' rows"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(experts.counts_.data(), 0, experts.counts_.size_bytes()));
  const bool has_fp8 =
      std::any_of(weights.layers.begin(), weights.layers.end(), [](const GpuLayer& layer) {
        return QuantizesRows(layer.expert_gate_up) || QuantizesRows(layer.expert_down);
      });
  NEREID_ASSIGN_OR_RETURN(
      experts.fp8_rows_,
      DeviceMemory::Allocate(has_fp8 ? int64_t{max_num_tokens} * spec.hidden_size : 0,
                             "rows of experts in fp8"));
  NEREID_ASSIGN_OR_RETURN(experts.fp8_scales_,
                          DeviceMemory::Allocate(has_fp8 ? 4 * (max_num_tokens + num_pairs) : 0,
                                                 "scales of rows of experts in fp8"));
  return experts;
}

int64_t Experts::InnerElements(const llm::DecoderSpec& spec, int64_t num_tokens) {
  return num_tokens * spec.moe.experts_per_token * spec.moe.intermediate_size;
}

int64_t Experts::GateUpBytes(const llm::DecoderSpec& spec, int64_t num_tokens) {
  const int64_t scores = 4 * RouteScoresSize(num_tokens, spec.moe.num_experts);
  return std::max(4 * InnerElements(spec, num_tokens), scores);
}

bool Experts::Gates() const {
  return spec_->mlp == llm::MlpKind::kGated && spec_->activation == llm::Activation::kSilu;
}

Status Experts::Run(const ExpertsCall& call, cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  const RouteBufferLayout layout(*spec_,
                                 ChooseExperts({.form = form_,
                                                .mode = mode_,
                                                .gate_up = call.weights->expert_gate_up.first,
                                                .down = call.weights->expert_down.first,
                                                .num_tokens = call.num_tokens,
                                                .experts_per_token = moe.experts_per_token,
                                                .num_experts = moe.num_experts}),
                                 call.num_tokens);
  const auto num_pairs = static_cast<int>(layout.num_pairs);
  const auto mark = [&](const char* name, const OperatorWork& work) {
    if (call.timer != nullptr) call.timer->Mark(name, work, stream);
  };
  mark("routing",
       {2.0 * spec_->hidden_size *
        (moe.num_experts + call.num_tokens * (call.norm_weight != nullptr ? 2.0 : 1.0))});
  NEREID_RETURN_IF_ERROR(Route(call, layout, stream));
  if (!layout.streams()) SortRows(call, layout, stream);
  NEREID_RETURN_IF_ERROR(
      Multiply("experts' gate and up", call, layout, call.weights->expert_gate_up, false, stream));
  if (!Gates()) {
    mark("activation", {6.0 * num_pairs * moe.intermediate_size});
    Activate(
        {call.gate_up->as<__nv_bfloat16>(), nullptr, call.gated->as<__nv_bfloat16>(), num_pairs,
         moe.intermediate_size, spec_->activation, spec_->mlp == llm::MlpKind::kGated},
        stream);
  }
  NEREID_RETURN_IF_ERROR(
      Multiply("experts' down", call, layout, call.weights->expert_down, true, stream));
  mark("combine experts", {2.0 * num_pairs * spec_->hidden_size});
  const auto* words = routes_.as<int32_t>();
  Combine({expert_outputs_.as<__nv_bfloat16>(), words + layout.sorted_index(),
           reinterpret_cast<const float*>(words + layout.router_weights()), call.out,
           call.num_tokens, spec_->hidden_size, moe.experts_per_token, call.accumulates,
           call.next_norm_weight, call.normed, spec_->norm.epsilon},
          stream);
  return CudaStatus(cudaGetLastError(), "experts");
}

Status Experts::Route(const ExpertsCall& call, const RouteBufferLayout& layout,
                      cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  auto* words = routes_.as<int32_t>();
  RouteParams route = {};
  route.in = call.in;
  route.norm_weight = call.norm_weight;
  route.epsilon = spec_->norm.epsilon;
  route.normed = call.normed;
  route.router = call.weights->router;
  // The scores use the memory of gate and up, which are computed later.
  route.scores = call.gate_up->as<float>();
  route.experts = words;
  route.router_weights = reinterpret_cast<float*>(words + layout.router_weights());
  route.num_rows = call.num_tokens;
  route.hidden_size = spec_->hidden_size;
  route.num_experts = moe.num_experts;
  route.experts_per_token = moe.experts_per_token;
  route.normalizes = moe.normalize_top_k;
  if (layout.choice.router == RouteKernel::kExpertGemm) return RouteManyRows(route, stream);
  const SortPairsParams sort = {words,
                                layout.streams() ? words + layout.pairs() : nullptr,
                                words + layout.sorted_index(),
                                reinterpret_cast<ExpertTile*>(words + layout.tiles()),
                                static_cast<int>(layout.num_pairs),
                                moe.num_experts,
                                layout.choice.tile_rows,
                                static_cast<int>(layout.num_tiles)};
  return CudaStatus(gpu::Route(route, sort, call.ticket, stream), "routing");
}

Status Experts::RouteManyRows(const RouteParams& route, cudaStream_t stream) const {
  ExpertGemmParams scores = {};
  scores.in = route.in;
  if (route.norm_weight != nullptr) {
    RmsNorm({route.in, nullptr, route.norm_weight, route.normed, route.num_rows, route.hidden_size,
             route.epsilon},
            stream);
    scores.in = route.normed;
  }
  scores.weights.data = route.router;
  scores.weights.num_outputs = route.num_experts;
  scores.weights.depth = route.hidden_size;
  scores.out = route.scores;
  scores.num_rows = route.num_rows;
  scores.num_experts = 1;
  scores.output = GemmEpilogue::kFloat;
  scores.copies_weights_early = true;
  NEREID_RETURN_IF_ERROR(
      CudaStatus(ExpertGemm(scores, num_processors_, stream), "the router's GEMM"));
  SelectExperts(route, stream);
  return CudaStatus(cudaGetLastError(), "routing");
}

void Experts::SortRows(const ExpertsCall& call, const RouteBufferLayout& layout,
                       cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  if (call.timer != nullptr) {
    const auto num_rows = static_cast<double>(layout.num_pairs + call.num_tokens);
    call.timer->Mark("sort experts' rows", {2.0 * num_rows * spec_->hidden_size}, stream);
  }
  auto* words = routes_.as<int32_t>();
  ExpertRowsParams sort = {};
  sort.experts = words;
  sort.sorted_index = words + layout.sorted_index();
  sort.first_rows = first_rows();
  sort.counts = counts_.as<int32_t>();
  sort.in = call.norm_weight != nullptr ? call.normed : call.in;
  sort.out = expert_outputs_.data();
  sort.num_rows = call.num_tokens;
  sort.num_experts = moe.num_experts;
  sort.experts_per_token = moe.experts_per_token;
  sort.row_bytes = 2 * spec_->hidden_size;
  if (QuantizesRows(call.weights->expert_gate_up)) {
    auto* scales = fp8_scales_.as<float>();
    QuantizeRows({static_cast<const __nv_bfloat16*>(sort.in), nullptr, nullptr,
                  fp8_rows_.as<uint8_t>(), scales, call.num_tokens, spec_->hidden_size, 0.0f},
                 stream);
    sort.in = fp8_rows_.data();
    sort.in_scales = scales;
    sort.out_scales = scales + call.num_tokens;
    sort.row_bytes = spec_->hidden_size;
  }
  SortExpertRows(sort, stream);
}

Status Experts::MultiplySorted(const ExpertsCall& call, const RouteBufferLayout& layout,
                               const GpuExperts& matrices, bool is_down, void* out,
                               cudaStream_t stream) const {
  const bool gates = !is_down && Gates();
  const auto num_pairs = static_cast<int>(layout.num_pairs);
  auto* scales = fp8_scales_.as<float>() + call.num_tokens;
  ExpertGemmParams gemm = {};
  gemm.weights = matrices.first;
  gemm.stride_bytes = matrices.stride_bytes;
  gemm.scale_stride = matrices.stride_bytes / 4;  // fp8: the scales lie behind each matrix
  gemm.first_rows = first_rows();
  gemm.in = is_down ? call.gated->data() : expert_outputs_.data();
  gemm.out = out;
  gemm.num_rows = num_pairs;
  gemm.num_experts = spec_->moe.num_experts;
  gemm.output = gates ? GemmEpilogue::kSiluGate : GemmEpilogue::kBf16;
  if (QuantizesRows(matrices)) {
    if (is_down) {  // the memory of gate and up is free
      QuantizeRows({call.gated->as<__nv_bfloat16>(), nullptr, nullptr, call.gate_up->as<uint8_t>(),
                    scales, num_pairs, matrices.first.depth, 0.0f},
                   stream);
      gemm.in = call.gate_up->data();
    }
    gemm.in_scales = scales;
  }
  return CudaStatus(ExpertGemm(gemm, num_processors_, stream), "the experts' GEMM");
}

Status Experts::Multiply(const char* name, const ExpertsCall& call, const RouteBufferLayout& layout,
                         const GpuExperts& matrices, bool is_down, cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  auto* words = routes_.as<int32_t>();
  const double num_read = std::min<double>(moe.num_experts, static_cast<double>(layout.num_pairs));
  const double num_pairs = static_cast<double>(layout.num_pairs);
  const double outputs = matrices.first.num_outputs, depth = matrices.first.depth;
  if (call.timer != nullptr) {
    call.timer->Mark(name,
                     {num_read * static_cast<double>(matrices.stride_bytes) +
                          2.0 * num_pairs * (outputs + depth),
                      2.0 * num_pairs * outputs * depth, QuantizesRows(matrices)},
                     stream);
  }
  const bool gates = !is_down && Gates();
  const DeviceMemory& out = is_down ? expert_outputs_ : gates ? *call.gated : *call.gate_up;
  if (!layout.streams()) return MultiplySorted(call, layout, matrices, is_down, out.data(), stream);
  const __nv_bfloat16* rows = call.norm_weight != nullptr ? call.normed : call.in;
  GroupedGemmParams gemm = {};
  gemm.in = is_down ? call.gated->as<__nv_bfloat16>() : rows;
  gemm.pairs = is_down ? nullptr : words + layout.pairs();
  gemm.pairs_per_row = moe.experts_per_token;
  gemm.tiles = reinterpret_cast<const ExpertTile*>(words + layout.tiles());
  gemm.num_tiles = static_cast<int>(layout.num_tiles);
  gemm.tile_rows = layout.choice.tile_rows;
  gemm.weights = static_cast<const __nv_bfloat16*>(matrices.first.data);
  gemm.expert_stride = matrices.stride_elements;
  gemm.num_outputs = matrices.first.num_outputs;
  gemm.depth = matrices.first.depth;
  gemm.gates = gates;
  gemm.out = out.as<__nv_bfloat16>();
  const StreamExpertsParams params = {gemm, matrices.first, matrices.stride_bytes, moe.num_experts,
                                      is_down};
  return CudaStatus(layout.choice.kernel == ExpertKernel::kTileExperts
                        ? TileExperts(params, stream)
                        : StreamExperts(params, num_processors_, stream),
                    name);
}

}  // namespace nereid::gpu
