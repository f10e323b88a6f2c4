// Names, splits and the way back.
#include "backends/llm_core/checkpoint/trtllm_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>

namespace nereid::llm {
namespace {

// How the ranks of a tensor-parallel group share a tensor.
enum class Split : uint8_t { kNone, kRows, kColumns };

// What of the name below a layer becomes what.
struct Rule {
  std::string_view from, to;
  Split split;
};

constexpr Rule kLlamaRules[] = {
    {"input_layernorm.", "input_layernorm.", Split::kNone},
    {"post_layernorm.", "post_attention_layernorm.", Split::kNone},
    {"pre_feedforward_layernorm.", "pre_feedforward_layernorm.", Split::kNone},
    {"post_feedforward_layernorm.", "post_feedforward_layernorm.", Split::kNone},
    {"attention.q_layernorm.", "self_attn.q_norm.", Split::kNone},
    {"attention.k_layernorm.", "self_attn.k_norm.", Split::kNone},
    {"attention.dense.", "self_attn.o_proj.", Split::kColumns},
    // TensorRT-LLM applies the activation to fc.
    {"mlp.fc.", "mlp.gate_proj.", Split::kRows},
    {"mlp.gate.", "mlp.up_proj.", Split::kRows},
    {"mlp.proj.", "mlp.down_proj.", Split::kColumns},
};
constexpr Rule kStarCoder2Rules[] = {
    {"input_layernorm.", "input_layernorm.", Split::kNone},
    {"post_layernorm.", "post_attention_layernorm.", Split::kNone},
    {"attention.dense.", "self_attn.o_proj.", Split::kColumns},
    {"mlp.fc.", "mlp.c_fc.", Split::kRows},
    {"mlp.proj.", "mlp.c_proj.", Split::kColumns},
};
constexpr Rule kGptRules[] = {
    {"input_layernorm.", "ln_1.", Split::kNone},
    {"post_layernorm.", "ln_2.", Split::kNone},
    {"attention.dense.", "attn.c_proj.", Split::kColumns},
    {"mlp.fc.", "mlp.c_fc.", Split::kRows},
    {"mlp.proj.", "mlp.c_proj.", Split::kColumns},
};

// What a family's tensors are called.
struct Names {
  std::span<const Rule> rules;
  std::string_view layers, attention;
  std::string_view embedding, positions, final_norm;
};

Names NamesOf(TrtLlmNames names) {
  if (names == TrtLlmNames::kGpt) {
    return {kGptRules,
            "transformer.h.",
            "attn.",
            "transformer.wte.weight",
            "transformer.wpe.weight",
            "transformer.ln_f."};
  }
  const bool is_plain = names == TrtLlmNames::kStarCoder2;
  return {is_plain ? std::span<const Rule>(kStarCoder2Rules) : std::span<const Rule>(kLlamaRules),
          "model.layers.",
          "self_attn.",
          "model.embed_tokens.weight",
          "",
          "model.norm."};
}

int64_t RowBytes(const TensorView& tensor) {
  return static_cast<int64_t>(tensor.bytes.size()) / tensor.shape[0];
}

TensorView RowsOf(TensorView tensor, int64_t first, int64_t count) {
  const int64_t row_bytes = RowBytes(tensor);
  tensor.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
  tensor.shape[0] = count;
  return tensor;
}

// Of a part of a linear layer whose weight is split so.
Split SplitOf(Split weight, std::string_view part) {
  if (part == "bias") return weight == Split::kRows ? Split::kRows : Split::kNone;
  // Scales of the input's columns: there are as many as a rank has columns.
  if (part == "prequant_scaling_factor") {
    return weight == Split::kColumns ? Split::kRows : Split::kNone;
  }
  return weight;
}

class Merger {
 public:
  Merger(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
         std::vector<MergedTensor>& merged, TensorMap& tensors)
      : layout_(layout),
        names_(NamesOf(layout.names)),
        ranks_(ranks),
        merged_(merged),
        tensors_(tensors) {}

  void MergeAll() {
    for (int32_t stage = 0; stage < layout_.pp; ++stage) {
      for (const auto& [name, tensor] : Rank(stage, 0)) Merge(stage, name);
    }
  }

  // Bytes move by several threads: there are as many as in the files.
  void MakeCopies(const std::function<void(std::span<const uint8_t>)>& let_go) const {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < copies_.size(); i = next++) {
        const Copy& copy = copies_[i];
        for (int64_t row = 0; row < copy.num_rows; ++row) {
          std::memcpy(copy.to + row * copy.stride, copy.part.data() + row * copy.run, copy.run);
        }
        if (let_go) let_go(copy.part);
      }
    };
    std::vector<std::jthread> threads;
    const size_t most = std::min<size_t>({copies_.size(), std::thread::hardware_concurrency(), 8});
    for (size_t i = 1; i < most; ++i) threads.emplace_back(work);
    work();
  }

 private:
  // A piece of a fused tensor: rows of each rank, the same in `copies` neighbours.
  struct Piece {
    std::string to;
    int64_t first, count;
    int32_t copies;
  };

  const TensorMap& Rank(int32_t stage, int32_t rank) const {
    return *ranks_[stage * layout_.tp + rank];
  }

  void Merge(int32_t stage, const std::string& name) {
    const Split embedding = !layout_.splits_embedding      ? Split::kNone
                            : layout_.embedding_by_columns ? Split::kColumns
                                                           : Split::kRows;
    if (name == "transformer.vocab_embedding.weight") {
      return PutVocabulary(stage, name, std::string(names_.embedding), embedding);
    }
    if (name == "transformer.position_embedding.weight" && !names_.positions.empty()) {
      return Put(stage, name, std::string(names_.positions), Split::kNone);
    }
    if (name == "lm_head.weight") return PutVocabulary(stage, name, name, Split::kRows);
    constexpr std::string_view kFinalNorm = "transformer.ln_f.";
    if (name.starts_with(kFinalNorm)) {
      return Put(stage, name, StrCat(names_.final_norm, name.substr(kFinalNorm.size())),
                 Split::kNone);
    }
    constexpr std::string_view kLayers = "transformer.layers.";
    if (!name.starts_with(kLayers)) return Leave(stage, name);
    const size_t dot = name.find('.', kLayers.size());
    const std::string digits = name.substr(kLayers.size(), dot - kLayers.size());
    if (dot == std::string::npos || digits.empty() || digits.size() > 4 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return Leave(stage, name);
    }
    // A stage counts its own layers from 0.
    const int32_t layer = std::stoi(digits) + stage * (layout_.num_layers / layout_.pp);
    MergeLayer(stage, name, StrCat(names_.layers, layer, "."), name.substr(dot + 1));
  }

  void MergeLayer(int32_t stage, const std::string& name, const std::string& layer,
                  std::string_view rest) {
    // Scales of a quantised cache: ours has its own.
    if (rest == "attention.kv_cache_scaling_factor") return;
    constexpr std::string_view kQkv = "attention.qkv.", kFc = "mlp.fc.";
    if (rest.starts_with(kQkv)) {
      const std::string to = StrCat(layer, names_.attention);
      return PutPieces(
          stage, name, rest.substr(kQkv.size()),
          {{to + "q_proj.", 0, layout_.q_rows, 1},
           {to + "k_proj.", layout_.q_rows, layout_.kv_rows, layout_.kv_copies},
           {to + "v_proj.", layout_.q_rows + layout_.kv_rows, layout_.kv_rows, layout_.kv_copies}});
    }
    if (!layout_.experts.empty() && rest.starts_with("mlp.")) {
      return MergeExperts(stage, name, StrCat(layer, layout_.experts), rest);
    }
    if (layout_.names == TrtLlmNames::kPhi3 && rest.starts_with(kFc)) {
      const std::vector<TensorView> parts = Parts(stage, name);
      if (parts.empty()) return Leave(stage, name);
      const int64_t half = parts[0].shape[0] * RowsInOne(parts[0]) / 2;
      return PutPieces(
          stage, name, rest.substr(kFc.size()),
          {{layer + "mlp.up_proj.", 0, half, 1}, {layer + "mlp.gate_proj.", half, half, 1}});
    }
    for (const Rule& rule : names_.rules) {
      if (!rest.starts_with(rule.from)) continue;
      const std::string_view part = rest.substr(rule.from.size());
      return Put(stage, name, StrCat(layer, rule.to, part), SplitOf(rule.split, part));
    }
    Leave(stage, name);
  }

  // All experts of a rank lie in one tensor: of fc, each has up's rows, then the gate's. Ranks
  // share experts among each other (moe_ep), and each one's rows (moe_tp).
  void MergeExperts(int32_t stage, const std::string& name, const std::string& to,
                    std::string_view rest) {
    if (rest == "mlp.router.weight") return Put(stage, name, to + "gate.weight", Split::kNone);
    const std::vector<TensorView> parts = Parts(stage, name);
    const int64_t local = layout_.num_experts / layout_.moe_ep;
    const bool is_fc = rest == "mlp.fc.weight";
    if ((!is_fc && rest != "mlp.proj.weight") || parts.empty() || parts[0].shape.size() != 3 ||
        parts[0].shape[0] != local || (is_fc && parts[0].shape[1] % 2 != 0)) {
      return Leave(stage, name);
    }
    const bool is_mixtral = layout_.experts == "block_sparse_moe.";
    const int64_t rows = parts[0].shape[1], half = rows / 2;
    for (int32_t expert = 0; expert < layout_.num_experts; ++expert) {
      std::vector<TensorView> own;
      for (int32_t rank = expert / local; rank < layout_.tp; rank += layout_.moe_ep) {
        TensorView flat = parts[rank];
        flat.shape = {local * rows, parts[rank].shape[2]};
        own.push_back(RowsOf(flat, expert % local * rows, rows));
      }
      const auto put = [&](const char* mixtral, const char* other, int64_t first, int64_t count,
                           Split split) {
        std::vector<TensorView> cut;
        for (const TensorView& part : own) cut.push_back(RowsOf(part, first, count));
        tensors_[StrCat(to, "experts.", expert, ".", is_mixtral ? mixtral : other, ".weight")] =
            Join(cut, split);
      };
      if (is_fc) {
        put("w3", "up_proj", 0, half, Split::kRows);
        put("w1", "gate_proj", half, half, Split::kRows);
      } else {
        put("w2", "down_proj", 0, rows, Split::kColumns);
      }
    }
  }

  // The tensor of every rank; empty when their shapes or types differ.
  std::vector<TensorView> Parts(int32_t stage, const std::string& name) const {
    std::vector<TensorView> parts;
    for (int32_t rank = 0; rank < layout_.tp; ++rank) {
      const TensorMap& tensors = Rank(stage, rank);
      const auto found = tensors.find(name);
      if (found == tensors.end() || found->second.shape.empty() || found->second.bytes.empty())
        return {};
      if (!parts.empty() &&
          (found->second.shape != parts[0].shape || found->second.type != parts[0].type)) {
        return {};
      }
      parts.push_back(found->second);
    }
    return parts;
  }

  void Put(int32_t stage, const std::string& name, const std::string& to, Split split) {
    const std::vector<TensorView> parts = Parts(stage, name);
    if (parts.empty() || (split == Split::kColumns && parts[0].shape.size() != 2)) {
      return Leave(stage, name);
    }
    tensors_[to] = split == Split::kNone ? parts[0] : Join(parts, split);
  }

  // Rows behind the vocabulary are padding.
  void PutVocabulary(int32_t stage, const std::string& name, const std::string& to, Split split) {
    Put(stage, name, to, split);
    const auto put = tensors_.find(to);
    if (put != tensors_.end() && put->second.shape.size() == 2 &&
        put->second.shape[0] > layout_.vocab_size) {
      put->second = RowsOf(put->second, 0, layout_.vocab_size);
    }
  }

  // Two int4 rows lie in a byte.
  static int64_t RowsInOne(const TensorView& tensor) {
    return tensor.shape.size() == 2 && Info(tensor.type).size_bytes == 1 ? 2 : 1;
  }

  // Part `part` (weight, bias, a scale) of a fused linear layer, of which each rank has all pieces.
  void PutPieces(int32_t stage, const std::string& name, std::string_view part,
                 const std::vector<Piece>& pieces) {
    if (part == "prequant_scaling_factor" || part == "activation_scaling_factor") {
      for (const Piece& piece : pieces) {
        Put(stage, name, StrCat(piece.to, part), Split::kNone);
      }
      return;
    }
    const std::vector<TensorView> parts = Parts(stage, name);
    const int64_t unit = parts.empty() ? 1 : RowsInOne(parts[0]);
    const int64_t rows = pieces.back().first + pieces.back().count;
    bool fits = !parts.empty() && parts[0].shape[0] * unit == rows;
    for (const Piece& piece : pieces) fits = fits && piece.count % unit == 0;
    if (!fits) return Leave(stage, name);
    for (const Piece& piece : pieces) {
      std::vector<TensorView> cut;
      for (size_t rank = 0; rank < parts.size(); rank += piece.copies) {
        cut.push_back(RowsOf(parts[rank], piece.first / unit, piece.count / unit));
      }
      tensors_[StrCat(piece.to, part)] = Join(cut, Split::kRows);
    }
  }

  // Parts of one shape.
  TensorView Join(const std::vector<TensorView>& parts, Split split) {
    if (parts.size() == 1) return parts[0];
    TensorView whole = parts[0];
    const size_t part_bytes = parts[0].bytes.size();
    MergedTensor& merged = merged_.emplace_back();
    merged.size = part_bytes * parts.size();
    merged.bytes = std::make_unique_for_overwrite<uint8_t[]>(merged.size);
    const bool by_rows = split == Split::kRows;
    const int64_t rows = by_rows ? 1 : whole.shape[0];
    const int64_t run = static_cast<int64_t>(part_bytes) / rows;
    const auto num_parts = static_cast<int64_t>(parts.size());
    for (int64_t i = 0; i < num_parts; ++i) {
      copies_.push_back({parts[i].bytes, merged.bytes.get() + i * run, rows, run, num_parts * run});
    }
    whole.shape[by_rows ? 0 : 1] *= num_parts;
    whole.bytes = {merged.bytes.get(), merged.size};
    return whole;
  }

  // `num_rows` runs of bytes, next to each other in the part, `stride` apart in the whole.
  struct Copy {
    std::span<const uint8_t> part;
    uint8_t* to;
    int64_t num_rows, run, stride;
  };

  void Leave(int32_t stage, const std::string& name) {
    const TensorView& tensor = Rank(stage, 0).find(name)->second;
    tensors_[StrCat(name, " ", ShapeText(tensor.shape))] = tensor;
  }

  const TrtLlmLayout& layout_;
  const Names names_;
  std::span<const TensorMap* const> ranks_;
  std::vector<MergedTensor>& merged_;
  TensorMap& tensors_;
  std::vector<Copy> copies_;
};

}  // namespace

TensorMap MergeRanks(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
                     std::vector<MergedTensor>& merged,
                     const std::function<void(std::span<const uint8_t>)>& let_go) {
  TensorMap tensors;
  Merger merger(layout, ranks, merged, tensors);
  merger.MergeAll();
  merger.MakeCopies(let_go);
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
  const auto let_go = [&](std::span<const uint8_t> part) {
    for (const SafetensorsFile& file : out.files) file.file().LetGo(part);
  };
  out.tensors = MergeRanks(config.layout, ranks, out.merged, let_go);
  return out;
}

}  // namespace nereid::llm
