// Experts: routing, grouped GEMMs and combination. [engine thread]
#include "backends/gpu_llm/model/experts.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/moe.h"

namespace nereid::gpu {

// Offsets of the arrays in routes_, in words, for a step of `num_tokens` tokens.
struct Experts::RouteBufferLayout {
  RouteBufferLayout(const llm::DecoderSpec& spec, int64_t num_tokens)
      : num_pairs(num_tokens * spec.moe.experts_per_token) {
    // Small tiles if few experts have more rows than fit, because each tile reads the weights
    // again.
    tile_rows = num_pairs <= int64_t{kSmallExpertTile} / 4 * spec.moe.num_experts
                    ? kSmallExpertTile
                    : kLargeExpertTile;
    num_tiles = MaxExpertTiles(num_pairs, spec.moe.num_experts, tile_rows);
  }
  int64_t num_pairs, num_tiles;
  int tile_rows;
  int64_t router_weights() const { return num_pairs; }
  int64_t pairs() const { return 2 * num_pairs; }
  int64_t sorted_index() const { return 3 * num_pairs; }
  int64_t tiles() const { return 4 * num_pairs; }
  // Bytes for steps of up to `num_pairs` pairs: with small tiles an expert has up to two.
  static int64_t MaxBytes(const llm::DecoderSpec& spec, int64_t num_pairs) {
    const int64_t tiles = num_pairs / kLargeExpertTile + 2 * spec.moe.num_experts;
    return 16 * num_pairs + tiles * static_cast<int64_t>(sizeof(ExpertTile));
  }
};

Result<Experts> Experts::Create(const llm::DecoderSpec& spec, int32_t max_num_tokens,
                                bool is_batch_invariant) {
  Experts experts;
  if (spec.moe.num_experts == 0) return experts;
  experts.spec_ = &spec;
  experts.is_batch_invariant_ = is_batch_invariant;
  const int64_t num_pairs = RouteBufferLayout(spec, max_num_tokens).num_pairs;
  NEREID_ASSIGN_OR_RETURN(
      experts.expert_outputs_,
      DeviceMemory::Allocate(num_pairs * spec.hidden_size * 2, "the experts' outputs"));
  NEREID_ASSIGN_OR_RETURN(
      experts.routes_,
      DeviceMemory::Allocate(RouteBufferLayout::MaxBytes(spec, num_pairs), "routing"));
  return experts;
}

int64_t Experts::InnerElements(const llm::DecoderSpec& spec, int64_t num_tokens) {
  return num_tokens * spec.moe.experts_per_token * spec.moe.intermediate_size;
}

int64_t Experts::GateUpBytes(const llm::DecoderSpec& spec, int64_t num_tokens) {
  const int64_t scores = 4 * num_tokens * int64_t{spec.moe.num_experts};
  return std::max(4 * InnerElements(spec, num_tokens), scores);
}

bool Experts::Gates() const {
  return spec_->mlp == llm::MlpKind::kGated && spec_->activation == llm::Activation::kSilu;
}

void Experts::Run(const ExpertsCall& call, cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  const RouteBufferLayout layout(*spec_, call.num_tokens);
  const auto num_pairs = static_cast<int>(layout.num_pairs);
  const auto mark = [&](const char* name, const OperatorWork& work) {
    if (call.timer != nullptr) call.timer->Mark(name, work, stream);
  };
  mark("routing", {2.0 * call.num_tokens * spec_->hidden_size});
  Route(call, layout, stream);
  Multiply("experts' gate and up", call, layout, call.weights->expert_gate_up, false, stream);
  if (!Gates()) {
    mark("activation", {6.0 * num_pairs * moe.intermediate_size});
    Activate(
        {call.gate_up->as<__nv_bfloat16>(), nullptr, call.gated->as<__nv_bfloat16>(), num_pairs,
         moe.intermediate_size, spec_->activation, spec_->mlp == llm::MlpKind::kGated},
        stream);
  }
  Multiply("experts' down", call, layout, call.weights->expert_down, true, stream);
  mark("combine experts", {2.0 * num_pairs * spec_->hidden_size});
  const auto* words = routes_.as<int32_t>();
  Combine({expert_outputs_.as<__nv_bfloat16>(), words + layout.sorted_index(),
           reinterpret_cast<const float*>(words + layout.router_weights()), call.out,
           call.num_tokens, spec_->hidden_size, moe.experts_per_token, call.accumulates},
          stream);
}

void Experts::Route(const ExpertsCall& call, const RouteBufferLayout& layout,
                    cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  auto* experts = routes_.as<int32_t>();
  const SortPairsParams sort = {experts,
                                experts + layout.pairs(),
                                experts + layout.sorted_index(),
                                reinterpret_cast<ExpertTile*>(experts + layout.tiles()),
                                static_cast<int>(layout.num_pairs),
                                moe.num_experts,
                                layout.tile_rows,
                                static_cast<int>(layout.num_tiles)};
  // The scores use the memory of gate and up, which are computed later.
  const RouteParams route = {call.gate_up->as<float>(),
                             experts,
                             reinterpret_cast<float*>(experts + layout.router_weights()),
                             call.num_tokens,
                             moe.num_experts,
                             moe.experts_per_token,
                             moe.normalize_top_k};
  if (call.num_tokens <= kMaxFusedRouteRows && !is_batch_invariant_) {
    RouteFused({call.in, call.weights->router, spec_->hidden_size, call.ticket, route, sort},
               stream);
    return;
  }
  GroupedGemmParams scores = {};
  scores.in = call.in;
  scores.weights = call.weights->router;
  scores.num_rows = call.num_tokens;
  scores.tile_rows = call.num_tokens <= 2 * kSmallExpertTile ? kSmallExpertTile : kLargeExpertTile;
  scores.num_tiles = (call.num_tokens + scores.tile_rows - 1) / scores.tile_rows;
  scores.num_outputs = moe.num_experts;
  scores.depth = spec_->hidden_size;
  scores.out = route.scores;
  scores.out_is_float = true;
  GroupedGemm(scores, stream);
  gpu::Route(route, stream);
  SortPairs(sort, stream);
}

void Experts::Multiply(const char* name, const ExpertsCall& call, const RouteBufferLayout& layout,
                       const GpuExperts& matrices, bool is_down, cudaStream_t stream) const {
  const llm::MoeSpec& moe = spec_->moe;
  auto* words = routes_.as<int32_t>();
  const double num_read = std::min<double>(moe.num_experts, static_cast<double>(layout.num_pairs));
  const double num_pairs = static_cast<double>(layout.num_pairs);
  const double outputs = matrices.first.num_outputs, depth = matrices.first.depth;
  if (call.timer != nullptr) {
    call.timer->Mark(name,
                     {2.0 * (num_read * outputs * depth + num_pairs * (outputs + depth)),
                      2.0 * num_pairs * outputs * depth},
                     stream);
  }
  GroupedGemmParams gemm = {};
  gemm.in = is_down ? call.gated->as<__nv_bfloat16>() : call.in;
  gemm.pairs = is_down ? nullptr : words + layout.pairs();
  gemm.pairs_per_row = moe.experts_per_token;
  gemm.tiles = reinterpret_cast<const ExpertTile*>(words + layout.tiles());
  gemm.num_tiles = static_cast<int>(layout.num_tiles);
  gemm.tile_rows = layout.tile_rows;
  gemm.weights = static_cast<const __nv_bfloat16*>(matrices.first.data);
  gemm.expert_stride = matrices.stride_elements;
  gemm.num_outputs = matrices.first.num_outputs;
  gemm.depth = matrices.first.depth;
  gemm.gates = !is_down && Gates();
  const DeviceMemory& out = is_down ? expert_outputs_ : gemm.gates ? *call.gated : *call.gate_up;
  gemm.out = out.as<__nv_bfloat16>();
  GroupedGemm(gemm, stream);
}

}  // namespace nereid::gpu
