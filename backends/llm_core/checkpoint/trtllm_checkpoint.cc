// Maps the tensor names of TensorRT-LLM to those of Hugging Face and joins the shards of the ranks.
#include "backends/llm_core/checkpoint/trtllm_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

#include "base/thread.h"

namespace nereid::llm {
namespace {

// How the ranks of a tensor-parallel group shard a tensor.
enum class ShardAxis : uint8_t { kNone, kRows, kColumns };

// A rename of the name part below the layer.
struct NameRule {
  std::string_view from, to;
  ShardAxis split;
};

constexpr NameRule kLlamaRules[] = {
    {"input_layernorm.", "input_layernorm.", ShardAxis::kNone},
    {"post_layernorm.", "post_attention_layernorm.", ShardAxis::kNone},
    {"pre_feedforward_layernorm.", "pre_feedforward_layernorm.", ShardAxis::kNone},
    {"post_feedforward_layernorm.", "post_feedforward_layernorm.", ShardAxis::kNone},
    {"attention.q_layernorm.", "self_attn.q_norm.", ShardAxis::kNone},
    {"attention.k_layernorm.", "self_attn.k_norm.", ShardAxis::kNone},
    {"attention.dense.", "self_attn.o_proj.", ShardAxis::kColumns},
    // TensorRT-LLM applies the activation to fc.
    {"mlp.fc.", "mlp.gate_proj.", ShardAxis::kRows},
    {"mlp.gate.", "mlp.up_proj.", ShardAxis::kRows},
    {"mlp.proj.", "mlp.down_proj.", ShardAxis::kColumns},
};
constexpr NameRule kStarCoder2Rules[] = {
    {"input_layernorm.", "input_layernorm.", ShardAxis::kNone},
    {"post_layernorm.", "post_attention_layernorm.", ShardAxis::kNone},
    {"attention.dense.", "self_attn.o_proj.", ShardAxis::kColumns},
    {"mlp.fc.", "mlp.c_fc.", ShardAxis::kRows},
    {"mlp.proj.", "mlp.c_proj.", ShardAxis::kColumns},
};
constexpr NameRule kGptRules[] = {
    {"input_layernorm.", "ln_1.", ShardAxis::kNone},
    {"post_layernorm.", "ln_2.", ShardAxis::kNone},
    {"attention.dense.", "attn.c_proj.", ShardAxis::kColumns},
    {"mlp.fc.", "mlp.c_fc.", ShardAxis::kRows},
    {"mlp.proj.", "mlp.c_proj.", ShardAxis::kColumns},
};

// The tensor names of a family.
struct TensorNames {
  std::span<const NameRule> rules;
  std::string_view layers, attention;
  std::string_view embedding, positions, final_norm;
};

TensorNames TensorNamesOf(TrtLlmNaming names) {
  if (names == TrtLlmNaming::kGpt) {
    return {kGptRules,
            "transformer.h.",
            "attn.",
            "transformer.wte.weight",
            "transformer.wpe.weight",
            "transformer.ln_f."};
  }
  const bool is_plain = names == TrtLlmNaming::kStarCoder2;
  return {is_plain ? std::span<const NameRule>(kStarCoder2Rules)
                   : std::span<const NameRule>(kLlamaRules),
          "model.layers.",
          "self_attn.",
          "model.embed_tokens.weight",
          "",
          "model.norm."};
}

int64_t RowBytes(const CheckpointTensor& tensor) {
  return static_cast<int64_t>(tensor.bytes.size()) / tensor.shape[0];
}

CheckpointTensor RowsOfTensor(CheckpointTensor tensor, int64_t first, int64_t count) {
  const int64_t row_bytes = RowBytes(tensor);
  tensor.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
  tensor.shape[0] = count;
  return tensor;
}

// The sharding of one tensor of a linear layer (weight, bias or scale), given that of its weight.
ShardAxis ShardAxisOf(ShardAxis weight, std::string_view part) {
  if (part == "bias") return weight == ShardAxis::kRows ? ShardAxis::kRows : ShardAxis::kNone;
  // One scale per input column, so that each rank has those of its own columns.
  if (part == "prequant_scaling_factor") {
    return weight == ShardAxis::kColumns ? ShardAxis::kRows : ShardAxis::kNone;
  }
  return weight;
}

class RankMerger {
 public:
  RankMerger(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
             std::vector<MergedTensor>& merged, TensorMap& tensors)
      : layout_(layout),
        names_(TensorNamesOf(layout.names)),
        ranks_(ranks),
        merged_(merged),
        tensors_(tensors) {}

  void MergeAll() {
    for (int32_t stage = 0; stage < layout_.pp; ++stage) {
      for (const auto& [name, tensor] : Rank(stage, 0)) Merge(stage, name);
    }
  }

  // Several threads copy, because as many bytes as in the files are moved.
  void RunCopies(const std::function<void(std::span<const uint8_t>)>& release_part) const {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < copies_.size(); i = next++) {
        const CopyJob& copy = copies_[i];
        for (int64_t row = 0; row < copy.num_rows; ++row) {
          std::memcpy(copy.to + row * copy.stride, copy.part.data() + row * copy.run, copy.run);
        }
        if (release_part) release_part(copy.part);
      }
    };
    std::vector<std::thread> threads;
    const size_t most = std::min<size_t>({copies_.size(), std::thread::hardware_concurrency(), 8});
    if (most > 1)
      StartThreads(
          most - 1, [&work](size_t) { work(); }, threads);
    work();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  // One part of a fused tensor: rows of each rank. Groups of `copies` consecutive ranks hold the
  // same rows.
  struct FusedPart {
    std::string to;
    int64_t first, count;
    int32_t copies;
  };

  const TensorMap& Rank(int32_t stage, int32_t rank) const {
    return *ranks_[stage * layout_.tp + rank];
  }

  void Merge(int32_t stage, const std::string& name) {
    const ShardAxis embedding = !layout_.splits_embedding      ? ShardAxis::kNone
                                : layout_.embedding_by_columns ? ShardAxis::kColumns
                                                               : ShardAxis::kRows;
    if (name == "transformer.vocab_embedding.weight") {
      return AddVocabularyTensor(stage, name, std::string(names_.embedding), embedding);
    }
    if (name == "transformer.position_embedding.weight" && !names_.positions.empty()) {
      return AddTensor(stage, name, std::string(names_.positions), ShardAxis::kNone);
    }
    if (name == "lm_head.weight") return AddVocabularyTensor(stage, name, name, ShardAxis::kRows);
    constexpr std::string_view kFinalNorm = "transformer.ln_f.";
    if (name.starts_with(kFinalNorm)) {
      return AddTensor(stage, name, StrCat(names_.final_norm, name.substr(kFinalNorm.size())),
                       ShardAxis::kNone);
    }
    constexpr std::string_view kLayers = "transformer.layers.";
    if (!name.starts_with(kLayers)) return KeepUnderOwnName(stage, name);
    const size_t dot = name.find('.', kLayers.size());
    const std::string digits = name.substr(kLayers.size(), dot - kLayers.size());
    if (dot == std::string::npos || digits.empty() || digits.size() > 4 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return KeepUnderOwnName(stage, name);
    }
    // A pipeline stage numbers its own layers from 0.
    const int32_t layer = std::stoi(digits) + stage * (layout_.num_layers / layout_.pp);
    MergeLayer(stage, name, StrCat(names_.layers, layer, "."), name.substr(dot + 1));
  }

  void MergeLayer(int32_t stage, const std::string& name, const std::string& layer,
                  std::string_view rest) {
    // Scales of a quantized KV cache are not used: our cache computes its own.
    if (rest == "attention.kv_cache_scaling_factor") return;
    constexpr std::string_view kQkv = "attention.qkv.", kFc = "mlp.fc.";
    if (rest.starts_with(kQkv)) {
      const std::string to = StrCat(layer, names_.attention);
      return AddFusedParts(
          stage, name, rest.substr(kQkv.size()),
          {{to + "q_proj.", 0, layout_.q_rows, 1},
           {to + "k_proj.", layout_.q_rows, layout_.kv_rows, layout_.kv_copies},
           {to + "v_proj.", layout_.q_rows + layout_.kv_rows, layout_.kv_rows, layout_.kv_copies}});
    }
    if (!layout_.experts.empty() && rest.starts_with("mlp.")) {
      return MergeExperts(stage, name, StrCat(layer, layout_.experts), rest);
    }
    if (layout_.names == TrtLlmNaming::kPhi3 && rest.starts_with(kFc)) {
      const std::vector<CheckpointTensor> shards = RankShards(stage, name);
      if (shards.empty()) return KeepUnderOwnName(stage, name);
      const int64_t half = shards[0].shape[0] * RowsInOne(shards[0]) / 2;
      return AddFusedParts(
          stage, name, rest.substr(kFc.size()),
          {{layer + "mlp.up_proj.", 0, half, 1}, {layer + "mlp.gate_proj.", half, half, 1}});
    }
    for (const NameRule& rule : names_.rules) {
      if (!rest.starts_with(rule.from)) continue;
      const std::string_view part = rest.substr(rule.from.size());
      return AddTensor(stage, name, StrCat(layer, rule.to, part), ShardAxisOf(rule.split, part));
    }
    KeepUnderOwnName(stage, name);
  }

  // A rank stores all its experts in one tensor. In fc, each expert has the rows of up, then those
  // of gate. Ranks distribute whole experts (moe_ep) and shard the rows of each expert (moe_tp).
  void MergeExperts(int32_t stage, const std::string& name, const std::string& to,
                    std::string_view rest) {
    if (rest == "mlp.router.weight")
      return AddTensor(stage, name, to + "gate.weight", ShardAxis::kNone);
    const std::vector<CheckpointTensor> shards = RankShards(stage, name);
    const int64_t local = layout_.num_experts / layout_.moe_ep;
    const bool is_fc = rest == "mlp.fc.weight";
    if ((!is_fc && rest != "mlp.proj.weight") || shards.empty() || shards[0].shape.size() != 3 ||
        shards[0].shape[0] != local || (is_fc && shards[0].shape[1] % 2 != 0)) {
      return KeepUnderOwnName(stage, name);
    }
    const bool is_mixtral = layout_.experts == "block_sparse_moe.";
    const int64_t rows = shards[0].shape[1], half = rows / 2;
    for (int32_t expert = 0; expert < layout_.num_experts; ++expert) {
      std::vector<CheckpointTensor> own;
      for (int32_t rank = expert / local; rank < layout_.tp; rank += layout_.moe_ep) {
        CheckpointTensor flat = shards[rank];
        flat.shape = {local * rows, shards[rank].shape[2]};
        own.push_back(RowsOfTensor(flat, expert % local * rows, rows));
      }
      const auto put = [&](const char* mixtral, const char* other, int64_t first, int64_t count,
                           ShardAxis split) {
        std::vector<CheckpointTensor> cut;
        for (const CheckpointTensor& part : own) cut.push_back(RowsOfTensor(part, first, count));
        tensors_[StrCat(to, "experts.", expert, ".", is_mixtral ? mixtral : other, ".weight")] =
            Join(cut, split);
      };
      if (is_fc) {
        put("w3", "up_proj", 0, half, ShardAxis::kRows);
        put("w1", "gate_proj", half, half, ShardAxis::kRows);
      } else {
        put("w2", "down_proj", 0, rows, ShardAxis::kColumns);
      }
    }
  }

  // The tensor of every rank; empty if shapes or types differ.
  std::vector<CheckpointTensor> RankShards(int32_t stage, const std::string& name) const {
    std::vector<CheckpointTensor> shards;
    for (int32_t rank = 0; rank < layout_.tp; ++rank) {
      const TensorMap& tensors = Rank(stage, rank);
      const auto found = tensors.find(name);
      if (found == tensors.end() || found->second.shape.empty() || found->second.bytes.empty())
        return {};
      if (!shards.empty() &&
          (found->second.shape != shards[0].shape || found->second.type != shards[0].type)) {
        return {};
      }
      shards.push_back(found->second);
    }
    return shards;
  }

  void AddTensor(int32_t stage, const std::string& name, const std::string& to, ShardAxis split) {
    const std::vector<CheckpointTensor> shards = RankShards(stage, name);
    if (shards.empty() || (split == ShardAxis::kColumns && shards[0].shape.size() != 2)) {
      return KeepUnderOwnName(stage, name);
    }
    tensors_[to] = split == ShardAxis::kNone ? shards[0] : Join(shards, split);
  }

  // Removes padding rows after the vocabulary.
  void AddVocabularyTensor(int32_t stage, const std::string& name, const std::string& to,
                           ShardAxis split) {
    AddTensor(stage, name, to, split);
    const auto put = tensors_.find(to);
    if (put != tensors_.end() && put->second.shape.size() == 2 &&
        put->second.shape[0] > layout_.vocab_size) {
      put->second = RowsOfTensor(put->second, 0, layout_.vocab_size);
    }
  }

  // Two int4 rows share a byte.
  static int64_t RowsInOne(const CheckpointTensor& tensor) {
    return tensor.shape.size() == 2 && Info(tensor.type).size_bytes == 1 ? 2 : 1;
  }

  // Adds tensor `part` (weight, bias or a scale) of a fused linear layer. Each rank has rows of all
  // fused parts.
  void AddFusedParts(int32_t stage, const std::string& name, std::string_view part,
                     const std::vector<FusedPart>& fused_parts) {
    if (part == "prequant_scaling_factor" || part == "activation_scaling_factor") {
      for (const FusedPart& fused : fused_parts) {
        AddTensor(stage, name, StrCat(fused.to, part), ShardAxis::kNone);
      }
      return;
    }
    const std::vector<CheckpointTensor> shards = RankShards(stage, name);
    const int64_t unit = shards.empty() ? 1 : RowsInOne(shards[0]);
    const int64_t rows = fused_parts.back().first + fused_parts.back().count;
    bool fits = !shards.empty() && shards[0].shape[0] * unit == rows;
    for (const FusedPart& fused : fused_parts) fits = fits && fused.count % unit == 0;
    if (!fits) return KeepUnderOwnName(stage, name);
    for (const FusedPart& fused : fused_parts) {
      std::vector<CheckpointTensor> cut;
      for (size_t rank = 0; rank < shards.size(); rank += fused.copies) {
        cut.push_back(RowsOfTensor(shards[rank], fused.first / unit, fused.count / unit));
      }
      tensors_[StrCat(fused.to, part)] = Join(cut, ShardAxis::kRows);
    }
  }

  // Joins shards of equal shape.
  CheckpointTensor Join(const std::vector<CheckpointTensor>& shards, ShardAxis split) {
    if (shards.size() == 1) return shards[0];
    CheckpointTensor whole = shards[0];
    const size_t part_bytes = shards[0].bytes.size();
    MergedTensor& merged = merged_.emplace_back();
    merged.size = part_bytes * shards.size();
    merged.bytes = std::make_unique_for_overwrite<uint8_t[]>(merged.size);
    const bool by_rows = split == ShardAxis::kRows;
    const int64_t rows = by_rows ? 1 : whole.shape[0];
    const int64_t run = static_cast<int64_t>(part_bytes) / rows;
    const auto num_parts = static_cast<int64_t>(shards.size());
    for (int64_t i = 0; i < num_parts; ++i) {
      copies_.push_back(
          {shards[i].bytes, merged.bytes.get() + i * run, rows, run, num_parts * run});
    }
    whole.shape[by_rows ? 0 : 1] *= num_parts;
    whole.bytes = {merged.bytes.get(), merged.size};
    return whole;
  }

  // Copies `num_rows` runs of bytes, which are consecutive in the part and `stride` apart in the
  // whole.
  struct CopyJob {
    std::span<const uint8_t> part;
    uint8_t* to;
    int64_t num_rows, run, stride;
  };

  void KeepUnderOwnName(int32_t stage, const std::string& name) {
    const CheckpointTensor& tensor = Rank(stage, 0).find(name)->second;
    tensors_[StrCat(name, " ", ShapeText(tensor.shape))] = tensor;
  }

  const TrtLlmLayout& layout_;
  const TensorNames names_;
  std::span<const TensorMap* const> ranks_;
  std::vector<MergedTensor>& merged_;
  TensorMap& tensors_;
  std::vector<CopyJob> copies_;
};

}  // namespace

TensorMap MergeRanks(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
                     std::vector<MergedTensor>& merged,
                     const std::function<void(std::span<const uint8_t>)>& release_part) {
  TensorMap tensors;
  RankMerger rank_merger(layout, ranks, merged, tensors);
  rank_merger.MergeAll();
  rank_merger.RunCopies(release_part);
  return tensors;
}

Result<TrtLlmCheckpoint> ReadTrtLlmCheckpoint(const std::string& directory,
                                              const std::string& config_json) {
  NEREID_ASSIGN_OR_RETURN(TrtLlmConfig config, ReadTrtLlmConfig(config_json));
  TrtLlmCheckpoint out;
  out.config_json = std::move(config.config_json);
  for (int32_t rank = 0; rank < config.layout.tp * config.layout.pp; ++rank) {
    NEREID_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(StrCat(
                                                      directory, "/rank", rank, ".safetensors")));
    out.files.push_back(std::move(file));
  }
  std::vector<const TensorMap*> ranks;
  for (const SafetensorsFile& file : out.files) ranks.push_back(&file.tensors());
  const auto release_part = [&](std::span<const uint8_t> part) {
    for (const SafetensorsFile& file : out.files) file.file().DropPages(part);
  };
  out.tensors = MergeRanks(config.layout, ranks, out.merged, release_part);
  return out;
}

}  // namespace nereid::llm
