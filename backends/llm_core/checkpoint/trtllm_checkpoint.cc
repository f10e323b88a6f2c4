// Names, splits and the way back.
#include "llm_core/checkpoint/trtllm_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "llm_core/model/config_reader.h"

namespace nereid::llm {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMaxRanks = 64;

struct Architecture {
  std::string_view name, model_type;
};
constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", "llama"},
                                           {"MistralForCausalLM", "mistral"},
                                           {"Qwen2ForCausalLM", "qwen2"},
                                           {"QWenForCausalLM", "qwen2"}};

// What config.json says that the tensors depend on.
struct Layout {
  int32_t tp = 1, pp = 1;
  int32_t num_layers = 0, vocab_size = 0;
  int64_t q_rows = 0, kv_rows = 0;  // of one rank
  int32_t kv_copies = 1;            // ranks that hold the same key/value heads
  bool splits_embedding = false;
  bool embedding_by_columns = false;
};

Result<std::string> ModelType(ConfigReader& config) {
  const std::string name = config.TextOr("architecture", "");
  std::string known;
  for (const Architecture& entry : kArchitectures) {
    if (entry.name == name) return std::string(entry.model_type);
    known += StrCat(known.empty() ? "" : ", ", entry.name);
  }
  return UnsupportedError("config.json of a TensorRT-LLM checkpoint: architecture '", name,
                          "' is not supported (known: ", known,
                          "): give the Hugging Face checkpoint directory it was made from");
}

Result<Layout> ReadLayout(ConfigReader& config) {
  ConfigReader mapping = config.Object("mapping");
  Layout layout;
  layout.tp = mapping.SizeOr("tp_size", 1);
  layout.pp = mapping.SizeOr("pp_size", 1);
  layout.num_layers = config.Count("num_hidden_layers", 1024);
  layout.vocab_size = config.Size("vocab_size");
  const int32_t heads = config.Size("num_attention_heads");
  const int32_t kv_heads = config.SizeOr("num_key_value_heads", heads);
  const int64_t head_size =
      config.SizeOr("head_size", std::max(1, config.Size("hidden_size") / heads));
  layout.splits_embedding = config.BoolOr("use_parallel_embedding", false);
  layout.embedding_by_columns = config.NumberOr("embedding_sharding_dim", 0) == 1;
  NEREID_RETURN_IF_ERROR(config.status());
  NEREID_RETURN_IF_ERROR(mapping.status());
  if (layout.tp > kMaxRanks || layout.pp > kMaxRanks || layout.tp * layout.pp > kMaxRanks) {
    return InvalidArgError("config.json: 'mapping' of ", layout.tp, " x ", layout.pp,
                           " ranks, limit ", kMaxRanks);
  }
  if (heads % layout.tp != 0 || layout.num_layers % layout.pp != 0 ||
      (kv_heads % layout.tp != 0 && layout.tp % kv_heads != 0)) {
    return InvalidArgError("config.json: ", heads, " heads, ", kv_heads, " key/value heads and ",
                           layout.num_layers, " layers do not divide by tp_size ", layout.tp,
                           " and pp_size ", layout.pp);
  }
  layout.q_rows = heads / layout.tp * head_size;
  layout.kv_copies = std::max(1, layout.tp / kv_heads);
  layout.kv_rows = std::max(1, kv_heads / layout.tp) * head_size;
  return layout;
}

// The keys of a Hugging Face config.json.
Result<std::string> TranslateConfig(ConfigReader& config, const std::string& model_type) {
  Json out = {{"model_type", model_type}};
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"vocab_size", "vocab_size"},
      {"hidden_size", "hidden_size"},
      {"intermediate_size", "intermediate_size"},
      {"num_hidden_layers", "num_hidden_layers"},
      {"num_attention_heads", "num_attention_heads"},
      {"num_key_value_heads", "num_key_value_heads"},
      {"head_size", "head_dim"},
      {"max_position_embeddings", "max_position_embeddings"},
      {"hidden_act", "hidden_act"},
      {"norm_epsilon", "rms_norm_eps"},
      {"rotary_base", "rope_theta"},
      {"rotary_scaling", "rope_scaling"},
      {"share_embedding_table", "tie_word_embeddings"},
      {"attn_bias", "attention_bias"},
      {"mlp_bias", "mlp_bias"},
      {"sliding_window", "sliding_window"},
      {"eos_token_id", "eos_token_id"}};
  for (const auto& [from, to] : kKeys) {
    if (config.Has(from)) out[to] = config.json()[from];
  }
  ConfigReader quantization = config.Object("quantization");
  const std::string algorithm = quantization.TextOr("quant_algo", "");
  if (algorithm == "W4A16_AWQ") {
    if (quantization.BoolOr("has_zero_point", false)) {
      return UnsupportedError("config.json: quantization.has_zero_point is not supported");
    }
    out["quantization_config"] = {{"quant_method", "trtllm_awq"},
                                  {"group_size", quantization.NumberOr("group_size", 128)}};
  } else if (!algorithm.empty()) {
    return UnsupportedError("config.json: quant_algo '", algorithm,
                            "' is not supported (known: W4A16_AWQ)");
  }
  NEREID_RETURN_IF_ERROR(quantization.status());
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// How the ranks of a tensor-parallel group share a tensor.
enum class Split : uint8_t { kNone, kRows, kColumns };

class Merger {
 public:
  Merger(const Layout& layout, TrtLlmCheckpoint& out) : layout_(layout), out_(out) {}

  void MergeAll() {
    for (int32_t stage = 0; stage < layout_.pp; ++stage) {
      for (const auto& [name, tensor] : Rank(stage, 0)) Merge(stage, name);
    }
    MakeCopies();
  }

 private:
  // Bytes move by several threads: there are as many as in the files.
  void MakeCopies() const {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < copies_.size(); i = next++) Make(copies_[i]);
    };
    std::vector<std::jthread> threads;
    const size_t most = std::min<size_t>({copies_.size(), std::thread::hardware_concurrency(), 8});
    for (size_t i = 1; i < most; ++i) threads.emplace_back(work);
    work();
  }

  const TensorMap& Rank(int32_t stage, int32_t rank) const {
    return out_.files[stage * layout_.tp + rank].tensors();
  }

  void Merge(int32_t stage, const std::string& name) {
    const Split embedding = !layout_.splits_embedding      ? Split::kNone
                            : layout_.embedding_by_columns ? Split::kColumns
                                                           : Split::kRows;
    if (name == "transformer.vocab_embedding.weight") {
      return PutVocabulary(stage, name, "model.embed_tokens.weight", embedding);
    }
    if (name == "lm_head.weight") return PutVocabulary(stage, name, name, Split::kRows);
    if (name == "transformer.ln_f.weight") {
      return Put(stage, name, "model.norm.weight", Split::kNone);
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
    MergeLayer(stage, name, StrCat("model.layers.", layer, "."), name.substr(dot + 1));
  }

  void MergeLayer(int32_t stage, const std::string& name, const std::string& layer,
                  std::string_view rest) {
    struct Rule {
      std::string_view from, to;
      Split split;
    };
    constexpr Rule kRules[] = {
        {"input_layernorm.", "input_layernorm.", Split::kNone},
        {"post_layernorm.", "post_attention_layernorm.", Split::kNone},
        {"attention.dense.", "self_attn.o_proj.", Split::kColumns},
        // TensorRT-LLM applies the activation to fc.
        {"mlp.fc.", "mlp.gate_proj.", Split::kRows},
        {"mlp.gate.", "mlp.up_proj.", Split::kRows},
        {"mlp.proj.", "mlp.down_proj.", Split::kColumns},
    };
    // Scales of a quantised cache: ours has its own.
    if (rest == "attention.kv_cache_scaling_factor") return;
    constexpr std::string_view kQkv = "attention.qkv.";
    if (rest.starts_with(kQkv)) {
      return PutQkv(stage, name, layer + "self_attn.", std::string(rest.substr(kQkv.size())));
    }
    for (const Rule& rule : kRules) {
      if (!rest.starts_with(rule.from)) continue;
      const std::string_view part = rest.substr(rule.from.size());
      return Put(stage, name, StrCat(layer, rule.to, part), SplitOf(rule.split, part));
    }
    Leave(stage, name);
  }

  // Of a part of a linear layer whose weight is split so.
  static Split SplitOf(Split weight, std::string_view part) {
    if (part == "bias") return weight == Split::kRows ? Split::kRows : Split::kNone;
    // Scales of the input's columns: there are as many as a rank has columns.
    if (part == "prequant_scaling_factor") {
      return weight == Split::kColumns ? Split::kRows : Split::kNone;
    }
    return weight;
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
    out_.tensors[to] = split == Split::kNone ? parts[0] : Join(parts, split);
  }

  // Rows behind the vocabulary are padding.
  void PutVocabulary(int32_t stage, const std::string& name, const std::string& to, Split split) {
    Put(stage, name, to, split);
    const auto put = out_.tensors.find(to);
    if (put != out_.tensors.end() && put->second.shape.size() == 2 &&
        put->second.shape[0] > layout_.vocab_size) {
      put->second = RowsOf(put->second, 0, layout_.vocab_size);
    }
  }

  // Each rank has its queries' rows, then its keys', then its values'.
  void PutQkv(int32_t stage, const std::string& name, const std::string& to,
              const std::string& part) {
    const std::vector<TensorView> parts = Parts(stage, name);
    if (part == "prequant_scaling_factor" || part == "activation_scaling_factor") {
      for (const char* half : {"q_proj.", "k_proj.", "v_proj."}) {
        Put(stage, name, to + half + part, Split::kNone);
      }
      return;
    }
    const int64_t rows = layout_.q_rows + 2 * layout_.kv_rows;
    // Two int4 rows lie in a byte.
    const int64_t unit = !parts.empty() && 2 * parts[0].shape[0] == rows ? 2 : 1;
    if (parts.empty() || parts[0].shape[0] * unit != rows || layout_.q_rows % unit != 0 ||
        layout_.kv_rows % unit != 0) {
      return Leave(stage, name);
    }
    const auto put = [&](const char* half, int64_t first, int64_t count, int32_t step) {
      std::vector<TensorView> cut;
      for (size_t rank = 0; rank < parts.size(); rank += step) {
        cut.push_back(RowsOf(parts[rank], first / unit, count / unit));
      }
      out_.tensors[to + half + part] = Join(cut, Split::kRows);
    };
    put("q_proj.", 0, layout_.q_rows, 1);
    put("k_proj.", layout_.q_rows, layout_.kv_rows, layout_.kv_copies);
    put("v_proj.", layout_.q_rows + layout_.kv_rows, layout_.kv_rows, layout_.kv_copies);
  }

  static int64_t RowBytes(const TensorView& tensor) {
    return static_cast<int64_t>(tensor.bytes.size()) / tensor.shape[0];
  }

  static TensorView RowsOf(TensorView tensor, int64_t first, int64_t count) {
    const int64_t row_bytes = RowBytes(tensor);
    tensor.bytes = tensor.bytes.subspan(first * row_bytes, count * row_bytes);
    tensor.shape[0] = count;
    return tensor;
  }

  TensorView Join(const std::vector<TensorView>& parts, Split split) {
    if (parts.size() == 1) return parts[0];
    TensorView whole = parts[0];
    const int64_t row_bytes = RowBytes(parts[0]);
    const int64_t rows = split == Split::kRows ? 1 : whole.shape[0];
    const size_t size = parts[0].bytes.size() * parts.size();
    MergedTensor& merged = out_.merged.emplace_back();
    merged.bytes = std::make_unique_for_overwrite<uint8_t[]>(size);
    merged.size = size;
    whole.shape[split == Split::kRows ? 0 : 1] *= static_cast<int64_t>(parts.size());
    whole.bytes = {merged.bytes.get(), size};
    copies_.push_back({parts, merged.bytes.get(), rows, row_bytes * parts[0].shape[0] / rows});
    return whole;
  }

  // What a joined tensor is made of: rows of one run of bytes from each part.
  struct Copy {
    std::vector<TensorView> parts;
    uint8_t* to;
    int64_t num_rows, run_bytes;
  };

  void Make(const Copy& copy) const {
    uint8_t* to = copy.to;
    for (int64_t row = 0; row < copy.num_rows; ++row) {
      for (const TensorView& part : copy.parts) {
        std::memcpy(to, part.bytes.data() + row * copy.run_bytes, copy.run_bytes);
        to += copy.run_bytes;
      }
    }
    for (const TensorView& part : copy.parts) {
      for (const SafetensorsFile& file : out_.files) file.file().LetGo(part.bytes);
    }
  }

  void Leave(int32_t stage, const std::string& name) {
    const TensorView& tensor = Rank(stage, 0).find(name)->second;
    out_.tensors[StrCat(name, " ", ShapeText(tensor.shape))] = tensor;
  }

  const Layout& layout_;
  TrtLlmCheckpoint& out_;
  std::vector<Copy> copies_;
};

}  // namespace

Result<TrtLlmCheckpoint> ReadTrtLlmCheckpoint(const std::string& directory,
                                              const std::string& config_json) {
  ConfigReader config(Json::parse(config_json, nullptr, false));
  if (!config.json().is_object()) {
    return InvalidArgError("'", directory, "': config.json is not a JSON object");
  }
  NEREID_ASSIGN_OR_RETURN(const std::string model_type, ModelType(config));
  NEREID_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(config));
  TrtLlmCheckpoint out;
  NEREID_ASSIGN_OR_RETURN(out.config_json, TranslateConfig(config, model_type));
  for (int32_t rank = 0; rank < layout.tp * layout.pp; ++rank) {
    NEREID_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(StrCat(
                                                      directory, "/rank", rank, ".safetensors")));
    out.files.push_back(std::move(file));
  }
  Merger(layout, out).MergeAll();
  return out;
}

}  // namespace nereid::llm
