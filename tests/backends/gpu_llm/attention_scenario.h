// Sequences with random queries, keys and values, whose attention is computed on the device and by
// a plain loop in double with the same bf16 values. With a quantized cache the loop uses the CPU's
// quantization.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "backends/cpu_reference/model/kv_format.h"
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/step_plan.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu::testing {

struct Heads {
  int num_heads, num_kv_heads, head_dim;
  int window = 0;
  float soft_cap = 0.0f;
  CacheFormat format = CacheFormat::kBf16;
  int num_sinks = 0;  // part of the window
  bool stages_values = false;
};

struct CachedRun {
  int num_cached, num_tokens;
  bool is_chain = false;  // the newest token and its drafts
  // Of the drafts behind the newest token, the run's first one; empty: no tree.
  std::vector<int32_t> parents = {};
};
using Runs = std::vector<CachedRun>;

// Random queries, keys and values of whole sequences, and the attention of their last tokens.
class AttentionScenario {
 public:
  AttentionScenario(const Heads& heads, std::vector<CachedRun> runs)
      : heads_(heads), runs_(std::move(runs)) {
    const std::vector<uint16_t>& values = RandomValues();
    size_t next = 0;
    for (const CachedRun& run : runs_) {
      auto& rows = sequences_.emplace_back(static_cast<size_t>(run.num_cached + run.num_tokens) *
                                           row_size());
      for (uint16_t& value : rows) value = values[next++ % values.size()];
    }
  }

  int row_size() const { return (heads_.num_heads + 2 * heads_.num_kv_heads) * heads_.head_dim; }

  // Writes the cache contents before the step, then plans and runs the step. `is_used`: all blocks
  // start with NaN or infinite keys and values of another owner. `num_processors`: multiprocessors
  // that share the prompt tiles; 0: one block of threads for each tile.
  std::vector<float> OnDevice(bool is_used = false, int num_processors = 0) {
    num_processors_ = num_processors;
    Scatter();
    const int max_positions = 16384;
    std::vector<float2> no_rotation(max_positions, float2{1.0f, 0.0f});
    cos_sin_ = ToDevice(no_rotation);
    cache_ = ToDevice(std::vector<uint16_t>(
        num_blocks_ * heads_.num_kv_heads * HeadBytes(heads_.head_dim, heads_.format) / 2, 0));
    if (is_used) FillCacheWithNan();
    Step(true);
    return Step(false);
  }

  // Contexts of prompts are unpacked from a quantized cache before attention reads them, those of
  // `num_heads` key/value heads at a time.
  void UnpackFirst(int num_heads) { unpacked_heads_ = num_heads; }
  // The step computes all prompt tiles of one key/value head before those of the next head.
  void TakeHeadsInTurn() { head_by_head_ = true; }

  std::vector<float> Reference() const {
    std::vector<float> result;
    const int group = heads_.num_heads / heads_.num_kv_heads, dim = heads_.head_dim;
    const double scale = 1.0 / std::sqrt(double(dim));
    for (size_t s = 0; s < runs_.size(); ++s) {
      const std::vector<float> values = AsCached(sequences_[s]);
      const auto at = [&](int token, int head, int column) {
        return double{values[int64_t{token} * row_size() + head * dim + column]};
      };
      for (int token = runs_[s].num_cached; token < runs_[s].num_cached + runs_[s].num_tokens;
           ++token) {
        const int window = heads_.window - heads_.num_sinks;
        const std::vector<int> path = PlacesBefore(s, token);
        const auto last = static_cast<int>(path.size()) - 1;
        std::vector<int> seen;
        for (int other = 0; other <= last; ++other)
          if (heads_.window == 0 || other > last - window || other < heads_.num_sinks)
            seen.push_back(path[other]);
        for (int head = 0; head < heads_.num_heads; ++head) {
          std::vector<double> scores(seen.size()), out(dim, 0.0);
          double sum = 0.0;
          for (size_t i = 0; i < seen.size(); ++i) {
            const int other = seen[i];
            double score = 0.0;
            for (int c = 0; c < dim; ++c)
              score += at(token, head, c) * at(other, heads_.num_heads + head / group, c);
            score *= scale;
            if (heads_.soft_cap > 0) score = heads_.soft_cap * std::tanh(score / heads_.soft_cap);
            scores[i] = std::exp(score);
            sum += scores[i];
          }
          for (size_t i = 0; i < seen.size(); ++i) {
            for (int c = 0; c < dim; ++c) {
              out[c] += scores[i] / sum *
                        at(seen[i], heads_.num_heads + heads_.num_kv_heads + head / group, c);
            }
          }
          for (const double value : out) result.push_back(static_cast<float>(value));
        }
      }
    }
    return result;
  }

  // With batch invariance: contexts are split by their own length, and each row is an item.
  void MakeBatchInvariant() { is_batch_invariant_ = true; }
  const std::vector<CachedRun>& runs() const { return runs_; }
  const Heads& heads() const { return heads_; }
  // The sequence that ends with this token, which is the only one of its step.
  AttentionScenario Alone(size_t s, int token) const {
    const std::vector<int> path = PlacesBefore(s, token);
    AttentionScenario alone(heads_, {{static_cast<int>(path.size()) - 1, 1}});
    for (size_t i = 0; i < path.size(); ++i) {
      std::copy_n(sequences_[s].begin() + int64_t{path[i]} * row_size(), row_size(),
                  alone.sequences_[0].begin() + static_cast<int64_t>(i) * row_size());
    }
    return alone;
  }

 private:
  // Their number is prime, so that rows do not repeat.
  static const std::vector<uint16_t>& RandomValues() {
    static const std::vector<uint16_t> values = [] {
      std::mt19937 random(7);
      std::normal_distribution<float> normal;
      std::vector<uint16_t> drawn(65537);
      for (uint16_t& value : drawn) value = Bf16Bits(normal(random));
      return drawn;
    }();
    return values;
  }

  // The places of a sequence's tokens up to this one, in the order of their positions: all of them,
  // except in a tree of drafts.
  std::vector<int> PlacesBefore(size_t s, int token) const {
    const CachedRun& run = runs_[s];
    std::vector<int> places;
    int draft = run.parents.empty() ? -1 : token - run.num_cached - 1;
    for (; draft >= 0; draft = run.parents[draft]) places.push_back(run.num_cached + 1 + draft);
    const int last = run.parents.empty() ? token : std::min(token, run.num_cached);
    for (int place = last; place >= 0; --place) places.push_back(place);
    std::reverse(places.begin(), places.end());
    return places;
  }

  // Rows of queries, keys and values; keys and values after quantization to the cache's format.
  std::vector<float> AsCached(const std::vector<uint16_t>& rows) const {
    std::vector<float> values;
    for (const uint16_t bits : rows) values.push_back(FromBf16(bits));
    if (heads_.format == CacheFormat::kBf16) return values;
    const cpu::KvFormat format =
        heads_.format == CacheFormat::kFp8 ? cpu::KvFormat::kFp8 : cpu::KvFormat::kInt8;
    std::vector<uint8_t> codes(heads_.head_dim);
    for (size_t at = 0; at < values.size(); at += heads_.head_dim) {
      if (at % row_size() / heads_.head_dim < static_cast<size_t>(heads_.num_heads)) continue;
      float scale = 0.0f;
      cpu::EncodeKv(format, values.data() + at, heads_.head_dim, codes.data(), scale);
      cpu::DecodeKv(format, codes.data(), scale, heads_.head_dim, values.data() + at, 1);
    }
    return values;
  }

  void Scatter() {
    for (const CachedRun& run : runs_) {
      tables_.emplace_back((run.num_cached + run.num_tokens + kBlockTokens - 1) / kBlockTokens);
      num_blocks_ += static_cast<int>(tables_.back().size());
    }
    std::vector<int32_t> blocks(num_blocks_);
    for (int i = 0; i < num_blocks_; ++i) blocks[i] = i;
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(3));
    for (auto& table : tables_) {
      for (int32_t& block : table) {
        block = blocks.back();
        blocks.pop_back();
      }
    }
  }

  void FillCacheWithNan() {
    const int num_rows = num_blocks_ * kBlockTokens;
    constexpr uint16_t kNan = 0x7fc0, kInfinity = 0x7f80;
    std::vector<uint16_t> rows(static_cast<size_t>(num_rows) * row_size(), kNan);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i / row_size() % 2 == 1) rows[i] = kInfinity;
    }
    std::vector<int32_t> positions(num_rows, 0), slots(num_rows);
    for (int i = 0; i < num_rows; ++i) slots[i] = i;
    const DeviceMemory qkv = ToDevice(rows), of_rows = ToDevice(positions), to = ToDevice(slots);
    RopeWrite(Rope(qkv, of_rows.as<int32_t>(), to.as<int32_t>(), num_rows), nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  RopeWriteParams Rope(const DeviceMemory& qkv, const int32_t* positions, const int32_t* slots,
                       int num_rows) const {
    RopeWriteParams rope = {};
    rope.qkv = qkv.as<__nv_bfloat16>();
    rope.positions = positions;
    rope.cache_slots = slots;
    rope.cos_sin = cos_sin_.as<float2>();
    rope.cache = cache_.data();
    rope.num_rows = num_rows;
    rope.num_heads = heads_.num_heads;
    rope.num_kv_heads = heads_.num_kv_heads;
    rope.head_dim = heads_.head_dim;
    rope.rope_dim = 2;
    rope.format = heads_.format;
    return rope;
  }

  // `fills`: writes the cached tokens; else runs the tokens of the step.
  std::vector<float> Step(bool fills) {
    llm::StepBatch batch;
    std::vector<uint16_t> rows;
    const std::vector<int32_t> no_tokens(16384);
    for (size_t s = 0; s < runs_.size(); ++s) {
      llm::BatchEntry sequence;
      sequence.first_token = static_cast<int32_t>(batch.token_ids.size());
      sequence.num_tokens = fills ? runs_[s].num_cached : runs_[s].num_tokens;
      sequence.num_cached = fills ? 0 : runs_[s].num_cached;
      const bool has_tree = !runs_[s].parents.empty();
      if (!fills && (runs_[s].is_chain || has_tree))
        sequence.num_draft_tokens = runs_[s].num_tokens - 1;
      if (!fills) sequence.draft_parents = runs_[s].parents;
      sequence.samples = is_batch_invariant_ && !fills;
      sequence.sampling.token_ids = std::span(no_tokens).first(sequence.num_cached + 1);
      sequence.block_table = tables_[s];
      if (sequence.num_tokens == 0) continue;
      batch.entries.push_back(sequence);
      batch.token_ids.insert(batch.token_ids.end(), sequence.num_tokens, 0);
      const auto first = sequences_[s].begin() + int64_t{sequence.num_cached} * row_size();
      rows.insert(rows.end(), first, first + int64_t{sequence.num_tokens} * row_size());
    }
    if (rows.empty()) return {};
    StepPlannerOptions options;
    options.num_heads = heads_.num_heads;
    options.num_kv_heads = heads_.num_kv_heads;
    options.is_batch_invariant = is_batch_invariant_;
    StepPlanner planner(options);
    planner.Plan(batch);
    const StepShape shape = planner.shape();
    const StepLayout layout(shape);
    const DeviceMemory words =
        ToDevice(std::vector<int32_t>(planner.words().begin(), planner.words().end()));
    const DeviceMemory qkv = ToDevice(rows);
    const auto num_rows = static_cast<int>(batch.token_ids.size());
    const RopeWriteParams rope = Rope(qkv, words.as<int32_t>() + layout.positions,
                                      words.as<int32_t>() + layout.cache_slots, num_rows);
    RopeWrite(rope, nullptr);
    if (fills) {
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      return {};
    }
    const int64_t out_size = int64_t{num_rows} * heads_.num_heads * heads_.head_dim;
    const DeviceMemory out = ToDevice(std::vector<uint16_t>(out_size, 0x7fc0));
    const DeviceMemory partials = ToDevice(std::vector<float>(
        planner.PartialBytes(shape.num_decode, heads_.head_dim) / sizeof(float), NAN));
    const DeviceMemory tickets =
        ToDevice(std::vector<int32_t>((shape.num_decode + 1) * heads_.num_heads, 0));
    const auto fill_in = [&](auto& params) {
      params.qkv = rope.qkv;
      params.out = out.as<__nv_bfloat16>();
      params.cache = cache_.data();
      params.words = words.as<int32_t>();
      params.num_heads = heads_.num_heads;
      params.num_kv_heads = heads_.num_kv_heads;
      params.head_dim = heads_.head_dim;
      params.qkv_stride = row_size();
      params.window = heads_.window - heads_.num_sinks;
      params.num_sinks = heads_.num_sinks;
      params.scale = 1.0f / std::sqrt(static_cast<float>(heads_.head_dim));
      params.soft_cap = heads_.soft_cap;
      params.format = heads_.format;
    };
    if (shape.num_decode > 0) {
      DecodeAttentionParams params = {};
      fill_in(params);
      params.items = reinterpret_cast<const DecodeItem*>(words.as<int32_t>() + layout.decode_items);
      params.num_items = shape.num_decode;
      params.partials = partials.as<float>();
      params.item_tokens = planner.item_tokens();
      params.tickets = tickets.as<int32_t>();
      params.has_chains = shape.has_chains;
      params.stages_values = heads_.stages_values;
      if (shape.has_trees) {
        params.tree_roots = words.as<int32_t>() + layout.tree_roots;
        params.tree_masks = words.as<int32_t>() + layout.tree_masks;
        params.gathers_trees = shape.gathers_trees;
      }
      DecodeAttention(params, nullptr);
    }
    DeviceMemory unpacked, indices;
    if (shape.num_prefill > 0) {
      PrefillAttentionParams params = {};
      fill_in(params);
      params.out_stride = heads_.num_heads * heads_.head_dim;
      params.tiles =
          reinterpret_cast<const PrefillTile*>(words.as<int32_t>() + layout.prefill_tiles);
      params.num_tiles = shape.num_prefill;
      params.num_processors = num_processors_;
      params.head_by_head = head_by_head_;
      if (unpacked_heads_ == 0) PrefillAttention(params, nullptr);
      const int32_t first = layout.block_tables + shape.first_prompt_block;
      const int count = shape.num_prompt_blocks;
      std::vector<int32_t> numbers(count);
      std::iota(numbers.begin(), numbers.end(), 0);
      indices = ToDevice(numbers);
      for (int head = 0; unpacked_heads_ > 0 && head < heads_.num_kv_heads;
           head += unpacked_heads_) {
        const int num_heads = std::min(unpacked_heads_, heads_.num_kv_heads - head);
        unpacked = ToDevice(std::vector<uint16_t>(
            int64_t{count} * num_heads * HeadBytes(heads_.head_dim) / 2, 0x7fc0));
        UnpackCache({cache_.data(), params.words + first, unpacked.data(), count,
                     heads_.num_kv_heads, heads_.head_dim, heads_.format, head, num_heads},
                    nullptr);
        PrefillAttentionParams part = params;
        const int group = heads_.num_heads / heads_.num_kv_heads;
        part.qkv += head * group * heads_.head_dim;
        part.out += head * group * heads_.head_dim;
        part.num_heads = num_heads * group;
        part.num_kv_heads = num_heads;
        part.cache = unpacked.data();
        part.format = CacheFormat::kBf16;
        part.words = indices.as<int32_t>() - first;
        PrefillAttention(part, nullptr);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      }
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const int32_t ticket : ToHost<int32_t>(tickets, tickets.size_bytes() / 4))
      EXPECT_EQ(ticket, 0);
    std::vector<float> result;
    for (const uint16_t bits : ToHost<uint16_t>(out, out_size)) result.push_back(FromBf16(bits));
    return result;
  }

  const Heads heads_;
  const std::vector<CachedRun> runs_;
  std::vector<std::vector<uint16_t>> sequences_;  // [tokens, row_size]
  std::vector<std::vector<int32_t>> tables_;
  int num_blocks_ = 0, num_processors_ = 0;
  int unpacked_heads_ = 0;
  bool head_by_head_ = false;
  bool is_batch_invariant_ = false;
  DeviceMemory cache_, cos_sin_;
};

// Every size of heads, with windows, sinks, soft caps and every format of the cache.
inline std::vector<Heads> AllHeads() {
  return {Heads{4, 2, 16},
          Heads{4, 1, 32},
          Heads{8, 8, 64},
          Heads{6, 2, 80},
          Heads{4, 2, 96},
          Heads{8, 2, 128},
          Heads{20, 1, 64},
          Heads{12, 1, 128},
          Heads{4, 2, 256},
          Heads{8, 2, 128, 100},
          Heads{4, 2, 64, 0, 20.0f},
          Heads{4, 2, 16, 0, 0, CacheFormat::kFp8},
          Heads{4, 1, 32, 0, 0, CacheFormat::kInt8},
          Heads{8, 8, 64, 0, 0, CacheFormat::kInt8},
          Heads{6, 2, 80, 0, 0, CacheFormat::kFp8},
          Heads{4, 2, 96, 0, 0, CacheFormat::kInt8},
          Heads{8, 2, 128, 0, 0, CacheFormat::kFp8},
          Heads{12, 1, 128, 70, 0, CacheFormat::kInt8},
          Heads{4, 2, 256, 0, 30.0f, CacheFormat::kFp8},
          Heads{8, 2, 128, 100, 0, CacheFormat::kBf16, 4},
          Heads{4, 1, 32, 200, 0, CacheFormat::kBf16, 130},
          Heads{4, 2, 256, 66, 20.0f, CacheFormat::kBf16, 65},
          Heads{12, 1, 128, 150, 0, CacheFormat::kInt8, 64},
          Heads{6, 2, 80, 300, 0, CacheFormat::kFp8, 10},
          Heads{4, 2, 256, 0, 0, CacheFormat::kBf16, 0, true},
          Heads{20, 2, 256, 0, 0, CacheFormat::kBf16, 0, true},
          Heads{8, 1, 256, 66, 20.0f, CacheFormat::kBf16, 65, true}};
}
inline std::string HeadsName(const ::testing::TestParamInfo<Heads>& info) {
  const Heads& heads = info.param;
  return std::to_string(heads.num_heads) + "_" + std::to_string(heads.num_kv_heads) + "_" +
         std::to_string(heads.head_dim) + (heads.window > 0 ? "_window" : "") +
         (heads.num_sinks > 0 ? "_sinks" : "") + (heads.soft_cap > 0 ? "_cap" : "") +
         (heads.format == CacheFormat::kFp8    ? "_fp8"
          : heads.format == CacheFormat::kInt8 ? "_int8"
                                               : "") +
         (heads.stages_values ? "_stages" : "");
}

}  // namespace nereid::gpu::testing
