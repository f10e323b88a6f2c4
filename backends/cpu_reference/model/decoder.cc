// The forward pass.
#include "backends/cpu_reference/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "backends/cpu_reference/model/expert_routing.h"

namespace nereid::cpu {
namespace {

ActivationKind KindOf(llm::Activation activation) {
  switch (activation) {
    case llm::Activation::kSilu:
      return ActivationKind::kSilu;
    case llm::Activation::kGelu:
      return ActivationKind::kGelu;
    case llm::Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case llm::Activation::kRelu:
      return ActivationKind::kRelu;
    case llm::Activation::kQuickGelu:
      return ActivationKind::kQuickGelu;
  }
  return ActivationKind::kSilu;
}

}  // namespace

Decoder::Decoder(const llm::DecoderSpec& spec, const CpuWeights& weights, const KvCache& cache,
                 const OpTable& ops, ThreadPool& pool)
    : spec_(spec),
      weights_(weights),
      cache_(cache),
      ops_(ops),
      pool_(pool),
      products_(ops, pool),
      angles_(spec.ropes),
      captured_(spec.hidden_size),
      prompt_rows_(spec, ops),
      adapters_(ops, pool),
      scores_(pool.num_threads()),
      rows_(pool.num_threads()),
      decoded_(pool.num_threads()),
      draft_tables_(pool.num_threads()) {}

std::span<float> Decoder::Forward(const llm::StepBatch& batch) {
  PrepareBuffers(batch);
  angles_.Prepare(batch, positions_);
  adapters_.Prepare(batch);
  Embed(batch);
  for (int32_t layer = 0; layer < spec_.num_layers(); ++layer) {
    const LayerWeights& weights = weights_.layers[layer];
    captured_.Offer(layer, residual_.data(), num_tokens_);
    ApplyNorm(weights.input_norm, residual_.data(), num_tokens_, normed_.data());
    if (spec_.parallel_residual) {  // the MLP's input is the residual before attention
      ApplyNorm(weights.pre_mlp_norm, residual_.data(), num_tokens_, hidden_.data());
    }
    RunAttention(batch, layer);
    if (!spec_.parallel_residual) {
      ApplyNorm(weights.pre_mlp_norm, residual_.data(), num_tokens_, hidden_.data());
    }
    float* out = adds_directly() ? residual_.data() : normed_.data();
    if (spec_.layers[layer].is_moe) {
      RunMoe(layer, hidden_.data(), out);
    } else {
      RunMlp(weights.mlp, layer, hidden_.data(), num_tokens_, out, adds_directly());
    }
    if (!adds_directly()) {
      ApplyNorm(weights.post_mlp_norm, normed_.data(), num_tokens_, residual_.data(), true);
    }
  }
  captured_.Offer(spec_.num_layers(), residual_.data(), num_tokens_);
  return ComputeLogits(batch);
}

void Decoder::PrepareBuffers(const llm::StepBatch& batch) {
  num_tokens_ = static_cast<int64_t>(batch.token_ids.size());
  positions_.resize(num_tokens_);
  tiles_.clear();
  int32_t longest = 0;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    PlaceEntry(batch, i);
    longest = std::max(longest, sequence.num_cached + sequence.num_tokens);
  }
  for (std::vector<float>* buffer : {&residual_, &normed_, &hidden_}) {
    EnsureSize(*buffer, num_tokens_ * spec_.hidden_size);
  }
  EnsureSize(q_, num_tokens_ * spec_.q_size());
  EnsureSize(attention_, num_tokens_ * spec_.q_size());
  EnsureSize(k_, num_tokens_ * spec_.kv_size());
  EnsureSize(v_, num_tokens_ * spec_.kv_size());
  const int64_t inner = std::max(spec_.intermediate_size, spec_.moe.intermediate_size);
  EnsureSize(gate_, num_tokens_ * inner);
  EnsureSize(up_, num_tokens_ * inner);
  const int64_t context = (longest + kBlockSize - 1) / kBlockSize * kBlockSize;
  for (std::vector<float>& scores : scores_) EnsureSize(scores, kMaxRowsAtOnce * context);
}

void Decoder::PlaceEntry(const llm::StepBatch& batch, size_t index) {
  const int32_t tokens_per_tile =
      std::max(1, kMaxRowsAtOnce * spec_.num_kv_heads / spec_.num_heads);
  const llm::BatchEntry& sequence = batch.entries[index];
  const bool has_tree = !sequence.draft_parents.empty();
  const int32_t num_in_row = sequence.num_tokens - (has_tree ? sequence.num_draft_tokens : 0);
  for (int32_t token = 0; token < sequence.num_tokens; ++token) {
    positions_[sequence.first_token + token] = sequence.num_cached + token;
  }
  if (has_tree) PlaceDrafts(sequence, positions_);
  const auto add_tiles = [&](int32_t first, int32_t last, bool is_tree) {
    for (int32_t token = first; token < last; token += tokens_per_tile) {
      tiles_.push_back({static_cast<int32_t>(index), sequence.first_token + token,
                        std::min(tokens_per_tile, last - token), is_tree});
    }
  };
  add_tiles(0, num_in_row, false);
  add_tiles(num_in_row, sequence.num_tokens, true);
}

void Decoder::Embed(const llm::StepBatch& batch) {
  EmbeddingParams params;
  params.ids = prompt_rows_.TokensOf(batch);
  params.positions = positions_.data();
  params.num_tokens = num_tokens_;
  params.table = weights_.token_embedding;
  params.positions_table = weights_.position_embedding;
  params.scale = spec_.embedding_scale;
  params.out = residual_.data();
  ops_.embedding(params);
  prompt_rows_.Embed(batch, params);
}

// residual += attention(normed)
void Decoder::RunAttention(const llm::StepBatch& batch, int32_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  const int64_t q_size = spec_.q_size();
  const int64_t kv_size = spec_.kv_size();
  const Linear* linears[] = {&weights.q, &weights.k, &weights.v};
  MatmulInput inputs[3];
  products_.Prepare(linears, normed_.data(), num_tokens_, inputs);
  const MatmulParams products[] = {MatmulOf(weights.q, inputs[0], num_tokens_, q_.data(), q_size),
                                   MatmulOf(weights.k, inputs[1], num_tokens_, k_.data(), kv_size),
                                   MatmulOf(weights.v, inputs[2], num_tokens_, v_.data(), kv_size)};
  // One parallel loop over the outputs of all three.
  const int64_t outputs = q_size + 2 * kv_size;
  pool_.ParallelRanges(
      outputs, kOutputGrain,
      [&](int64_t first, int64_t last, int thread) {
        int64_t offset = 0;
        for (const MatmulParams& product : products) {
          const int64_t rows = product.weights.rows;
          const int64_t begin = std::clamp<int64_t>(first - offset, 0, rows);
          const int64_t end = std::clamp<int64_t>(last - offset, 0, rows);
          if (begin < end) products_.RunRange(product, begin, end, thread);
          offset += rows;
        }
      },
      RangesPerThread(outputs * spec_.hidden_size, pool_));
  adapters_.AddTo(q_.data(), q_size, layer, llm::WeightKind::kQ, normed_.data());
  adapters_.AddTo(k_.data(), kv_size, layer, llm::WeightKind::kK, normed_.data());
  adapters_.AddTo(v_.data(), kv_size, layer, llm::WeightKind::kV, normed_.data());
  if (!is_decode(batch)) PrepareAllHeads(batch, layer);
  RunPagedAttention(batch, layer);
  float* out = adds_directly() ? residual_.data() : normed_.data();
  products_.Multiply(weights.attention_out, attention_.data(), num_tokens_, out, spec_.hidden_size,
                     adds_directly());
  adapters_.AddTo(out, spec_.hidden_size, layer, llm::WeightKind::kAttentionOut, attention_.data());
  if (!adds_directly()) {
    ApplyNorm(weights.post_attention_norm, normed_.data(), num_tokens_, residual_.data(), true);
  }
}

// Normalizes and rotates key heads [first, last) of a tile's tokens and the query heads that read
// them. Writes the keys and values into the cache.
void Decoder::PrepareHeads(const llm::StepBatch& batch, const AttentionTile& tile, int32_t layer,
                           int32_t first, int32_t last) {
  const int32_t queries = spec_.num_heads / spec_.num_kv_heads;
  for (int32_t i = 0; i < tile.num_tokens; ++i) {
    const int64_t token = tile.first_token + i;
    const int64_t key = token * spec_.num_kv_heads + first;
    for (const auto& [norm, heads, count] :
         {std::tuple(&weights_.layers[layer].q_norm, q_.data() + key * queries * spec_.head_dim,
                     (last - first) * queries),
          std::tuple(&weights_.layers[layer].k_norm, k_.data() + key * spec_.head_dim,
                     last - first)}) {
      if (spec_.qk_norm) NormHeads(*norm, heads, count);
      if (spec_.position == llm::PositionKind::kRope) ApplyRope(layer, token, heads, count);
    }
  }
  WriteCache(batch.entries[tile.sequence], tile, layer, first, last);
}

// The unit of work is one key/value head of a tile, so that few heads also occupy many threads.
void Decoder::PrepareAllHeads(const llm::StepBatch& batch, int32_t layer) {
  const int32_t heads = spec_.num_kv_heads;
  const auto run = [&](int64_t first, int64_t last, int) {
    for (int64_t unit = first, count = 0; unit < last; unit += count) {
      const auto head = static_cast<int32_t>(unit % heads);
      count = std::min<int64_t>(heads - head, last - unit);
      PrepareHeads(batch, tiles_[unit / heads], layer, head, static_cast<int32_t>(head + count));
    }
  };
  const auto units = static_cast<int64_t>(tiles_.size()) * heads;
  num_tokens_* spec_.q_size() < kMinSharedWork / 4 ? run(0, units, 0)
                                                   : pool_.ParallelRanges(units, 1, run);
}

void Decoder::WriteCache(const llm::BatchEntry& sequence, const AttentionTile& tile, int32_t layer,
                         int32_t first_head, int32_t last_head) {
  const float* keys = k_.data() + tile.first_token * spec_.kv_size();
  const float* values = v_.data() + tile.first_token * spec_.kv_size();
  // The drafts of a tree have places as if they were a chain.
  const int32_t first_position = sequence.num_cached + tile.first_token - sequence.first_token;
  if (!cache_.is_encoded()) {
    ops_.paged_kv_write({keys, values, tile.num_tokens, first_position, sequence.block_table.data(),
                         cache_.Layer(layer), first_head, last_head});
    return;
  }
  for (int32_t head = first_head; head < last_head; ++head) {
    cache_.EncodeTokens(layer, head, sequence.block_table.data(), first_position, tile.num_tokens,
                        keys, values);
  }
}

// A tile is a few consecutive tokens of one sequence, so that long prompts read each key and value
// once for several tokens.
void Decoder::RunPagedAttention(const llm::StepBatch& batch, int32_t layer) {
  PagedAttentionParams shared;
  shared.window = spec_.layers[layer].sliding_window;
  shared.num_sinks = spec_.num_sink_tokens;
  if (!cache_.is_encoded()) shared.cache = cache_.Layer(layer);
  shared.scale = spec_.attention_scale * spec_.layers[layer].score_scale;
  shared.soft_cap = spec_.attention_soft_cap;
  const auto run_units = [&](int64_t first, int64_t last, int thread) {
    PagedAttentionParams params = shared;
    params.scratch = scores_[thread].data();
    for (int64_t unit = first; unit < last; ++unit) {
      const AttentionTile& tile = tiles_[unit / spec_.num_kv_heads];
      params.kv_head = static_cast<int32_t>(unit % spec_.num_kv_heads);
      if (is_decode(batch)) PrepareHeads(batch, tile, layer, params.kv_head, params.kv_head + 1);
      AttendTile(batch.entries[tile.sequence], tile, layer, thread, params);
    }
  };
  pool_.ParallelRanges(static_cast<int64_t>(tiles_.size()) * spec_.num_kv_heads, 1, run_units);
}

void Decoder::AttendTile(const llm::BatchEntry& sequence, const AttentionTile& tile, int32_t layer,
                         int thread, PagedAttentionParams& params) {
  const int32_t queries = spec_.num_heads / spec_.num_kv_heads;
  std::vector<AttentionRow>& rows = rows_[thread];
  rows.clear();
  for (int32_t token = tile.first_token; token < tile.first_token + tile.num_tokens; ++token) {
    for (int32_t query = 0; query < queries; ++query) {
      const int64_t head = int64_t{params.kv_head} * queries + query;
      const int64_t offset = (int64_t{token} * spec_.num_heads + head) * spec_.head_dim;
      rows.push_back({q_.data() + offset, attention_.data() + offset, positions_[token] + 1});
    }
  }
  params.rows = rows.data();
  params.num_rows = static_cast<int32_t>(rows.size());
  params.block_table = sequence.block_table.data();
  int32_t first_tail_block = cache_.first_spare_block() + thread * kMaxTailBlocks;
  if (cache_.is_encoded()) {
    const int32_t num_seen =
        tile.is_tree ? sequence.num_cached + sequence.num_tokens : rows.back().context;
    first_tail_block =
        decoded_[thread].Decode(cache_, layer, num_seen, tile.is_tree ? kMaxTailBlocks : 0, params);
  }
  if (tile.is_tree) {
    draft_tables_[thread].Attend(ops_, sequence, tile.first_token, tile.num_tokens,
                                 first_tail_block, params);
  } else {
    ops_.paged_attention(params);
  }
}

void Decoder::RunMlp(const MlpWeights& mlp, int32_t layer, const float* in, int64_t num_rows,
                     float* out, bool accumulate) {
  const int64_t inner = mlp.up.weights.rows;
  const bool gated = spec_.mlp == llm::MlpKind::kGated;
  float* activated = gated ? gate_.data() : up_.data();  // the input of the activation
  const Linear* linears[] = {&mlp.up, &mlp.gate};
  MatmulInput inputs[2];
  products_.Prepare(std::span(linears, gated ? 2 : 1), in, num_rows, inputs);
  // Outputs [first, last) of all rows.
  const auto activate = [&](int64_t first, int64_t last) {
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t offset = row * inner + first;
      ops_.activation({KindOf(spec_.activation), activated + offset,
                       gated ? up_.data() + offset : nullptr, last - first});
    }
  };
  // The changes of adapters come between the products and the activation.
  const bool is_changed = adapters_.Changes(layer, llm::WeightKind::kGate) ||
                          adapters_.Changes(layer, llm::WeightKind::kUp);
  pool_.ParallelRanges(
      inner, kOutputGrain,
      [&](int64_t first, int64_t last, int thread) {
        products_.RunRange(MatmulOf(mlp.up, inputs[0], num_rows, up_.data(), inner), first, last,
                           thread);
        if (gated) {
          products_.RunRange(MatmulOf(mlp.gate, inputs[1], num_rows, gate_.data(), inner), first,
                             last, thread);
        }
        if (!is_changed) activate(first, last);
      },
      RangesPerThread(inner * mlp.up.weights.columns * (gated ? 2 : 1), pool_));
  if (is_changed) {
    adapters_.AddTo(up_.data(), inner, layer, llm::WeightKind::kUp, in);
    adapters_.AddTo(gate_.data(), inner, layer, llm::WeightKind::kGate, in);
    pool_.ParallelRanges(inner, kOutputGrain,
                         [&](int64_t first, int64_t last, int) { activate(first, last); });
  }
  products_.Multiply(mlp.down, activated, num_rows, out, spec_.hidden_size, accumulate);
  adapters_.AddTo(out, spec_.hidden_size, layer, llm::WeightKind::kDown, activated);
}

// out += the weighted experts of each token, expert by expert.
void Decoder::RunMoe(int32_t layer, const float* in, float* out) {
  const LayerWeights& weights = weights_.layers[layer];
  const llm::MoeSpec& moe = spec_.moe;
  std::vector<float> scores(num_tokens_ * moe.num_experts);
  products_.Multiply(weights.router, in, num_tokens_, scores.data(), moe.num_experts, false);
  adapters_.AddTo(scores.data(), moe.num_experts, layer, llm::WeightKind::kRouter, in);
  const std::vector<std::vector<RoutedToken>> tokens_of = RouteTokens(scores, moe);
  const int64_t size = spec_.hidden_size;
  std::vector<float> gathered, made;
  for (int32_t expert = 0; expert < moe.num_experts; ++expert) {
    const auto& tokens = tokens_of[expert];
    if (tokens.empty()) continue;
    const auto num_rows = static_cast<int64_t>(tokens.size());
    gathered.resize(num_rows * size);
    made.resize(num_rows * size);
    for (int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(in + tokens[row].token * size, size, gathered.begin() + row * size);
    }
    RunMlp(weights.experts[expert], llm::kNoLayer, gathered.data(), num_rows, made.data(), false);
    for (int64_t row = 0; row < num_rows; ++row) {
      float* to = out + tokens[row].token * size;
      for (int64_t i = 0; i < size; ++i) to[i] += made[row * size + i] * tokens[row].weight;
    }
  }
}

std::span<float> Decoder::ComputeLogits(const llm::StepBatch& batch) {
  int64_t num_logits = 0;
  for (const llm::BatchEntry& sequence : batch.entries) {
    const int64_t first = sequence.first_token + sequence.num_tokens - sequence.num_logits;
    std::copy_n(residual_.begin() + first * spec_.hidden_size,
                sequence.num_logits * spec_.hidden_size,
                hidden_.begin() + num_logits * spec_.hidden_size);
    num_logits += sequence.num_logits;
  }
  EnsureSize(logits_, num_logits * spec_.vocab_size);
  const std::span<float> logits(logits_.data(), num_logits * spec_.vocab_size);
  if (num_logits == 0) return logits;
  ApplyNorm(weights_.final_norm, hidden_.data(), num_logits, normed_.data());
  products_.Multiply(weights_.lm_head, normed_.data(), num_logits, logits.data(), spec_.vocab_size,
                     false);
  adapters_.AddToLogits(logits.data(), spec_.vocab_size, normed_.data());
  if (spec_.logit_soft_cap > 0.0f) {
    for (float& logit : logits) {
      logit = std::tanh(logit / spec_.logit_soft_cap) * spec_.logit_soft_cap;
    }
  }
  return logits;
}

void Decoder::ApplyNorm(const NormWeights& norm, const float* in, int64_t num_rows, float* out,
                        bool accumulate) {
  const int64_t size = spec_.hidden_size;
  const auto run = [&](int64_t first, int64_t last, int) {
    const float* from = in + first * size;
    float* to = out + first * size;
    if (spec_.norm.kind == llm::NormKind::kRms) {
      ops_.rms_norm({from, size, norm.weight.data(), spec_.norm.epsilon, last - first, size, to,
                     size, accumulate});
    } else {
      ops_.layer_norm(
          {from, norm.weight.data(), norm.bias.data(), spec_.norm.epsilon, last - first, size, to});
    }
  };
  num_rows* size < kMinSharedWork ? run(0, num_rows, 0) : pool_.ParallelRanges(num_rows, 1, run);
}

void Decoder::NormHeads(const NormWeights& norm, float* heads, int64_t num_heads) {
  const int64_t size = spec_.head_dim;
  ops_.rms_norm(
      {heads, size, norm.weight.data(), spec_.norm.epsilon, num_heads, size, heads, size, false});
}

void Decoder::ApplyRope(int32_t layer, int64_t token, float* heads, int64_t num_heads) {
  const int32_t index = spec_.layers[layer].rope;
  const int64_t half = spec_.ropes[index].dim / 2;
  ops_.rope({heads, angles_.cosines(index) + token * half, angles_.sines(index) + token * half, 1,
             num_heads, spec_.head_dim, 2 * half});
}

}  // namespace nereid::cpu
