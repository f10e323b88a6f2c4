// config.json and the tensors of Medusa heads.
#include "backends/llm_core/speculation/medusa_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/integer_weight_rows.h"
#include "backends/llm_core/speculation/medusa_heads.h"
#include "base/json_reader.h"

namespace nereid::llm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.json";
constexpr const char* kHeadsFile = "medusa_lm_head.safetensors";
constexpr int32_t kMostHeads = 16;
constexpr int32_t kMostBlocks = 8;

// The names of the tensors. Published files have one of three forms: a bare list of heads, the same
// list as a part of a whole model, or the blocks and the projections in two lists.
struct HeadTensorNames {
  std::string prefix;           // of the list of heads
  bool is_apart = false;        // two lists
  bool has_one_output = false;  // all heads have the same projection

  std::string Block(int32_t head, int32_t block, const char* part) const {
    if (is_apart) return StrCat("blocks.", head, ".layers.", block, ".", part);
    return StrCat(prefix, head, ".", block, ".linear.", part);
  }
  std::string Output(int32_t head, int32_t num_blocks) const {
    if (has_one_output) return "lm_head.weight";
    if (is_apart) return StrCat("lm_heads.", head, ".weight");
    return StrCat(prefix, head, ".", num_blocks, ".weight");
  }
};

Result<HeadTensorNames> FindNames(const Checkpoint& checkpoint) {
  for (const char* prefix : {"", "heads.", "medusa_head.", "medusa_heads."}) {
    const HeadTensorNames names = {.prefix = prefix};
    if (checkpoint.Find(names.Block(0, 0, "weight")) != nullptr) return names;
  }
  HeadTensorNames apart = {.is_apart = true};
  if (checkpoint.Find(apart.Block(0, 0, "weight")) != nullptr) {
    apart.has_one_output = checkpoint.Find(apart.Output(0, 1)) == nullptr &&
                           checkpoint.Find("lm_head.weight") != nullptr;
    return apart;
  }
  return InvalidArgError("there are no heads: expected the tensor '",
                         HeadTensorNames().Block(0, 0, "weight"), "' or '",
                         apart.Block(0, 0, "weight"), "'");
}

struct MedusaConfig {
  int32_t num_heads = 0;  // 0: not given
  int32_t num_blocks = 1;
  bool shares_lm_head = false;
};

Result<MedusaConfig> ReadMedusaConfig(const Checkpoint& checkpoint) {
  NEREID_ASSIGN_OR_RETURN(nlohmann::json json,
                          ReadJsonObject<nlohmann::json>(checkpoint.config_json(), kConfigName));
  ConfigReader reader(std::move(json));
  MedusaConfig config;
  const bool is_own_type = reader.StringOr("model_type", "") == "medusa";
  const char* const heads = reader.Has("medusa_num_heads") ? "medusa_num_heads" : "num_heads";
  if (reader.Has(heads)) config.num_heads = reader.Count(heads, kMostHeads);
  if (reader.Has("medusa_num_layers")) {
    config.num_blocks = reader.Count("medusa_num_layers", kMostBlocks);
  } else if (is_own_type && reader.Has("num_hidden_layers")) {
    config.num_blocks = reader.Count("num_hidden_layers", kMostBlocks);
  }
  const auto version = reader.json().find("version");
  config.shares_lm_head = version != reader.json().end() && (*version == "2" || *version == 2);
  NEREID_RETURN_IF_ERROR(reader.status());
  return config;
}

// A published config may give fewer heads than the file has. All heads of the file are used.
int32_t CountHeads(const Checkpoint& checkpoint, const HeadTensorNames& names, int32_t configured) {
  int32_t count = 0;
  while (count < kMostHeads && checkpoint.Find(names.Block(count, 0, "weight")) != nullptr) {
    ++count;
  }
  return std::max(count, configured);
}

// The shapes of the first head say for which model the heads are. Missing and misshapen tensors are
// reported later, with their names.
Status ReadSizes(const Checkpoint& checkpoint, const HeadTensorNames& names,
                 const MedusaConfig& config, const DecoderSpec& target, MedusaWeights& heads) {
  const CheckpointTensor& block = *checkpoint.Find(names.Block(0, 0, "weight"));
  if (block.shape.size() == 2 && block.shape[1] != target.hidden_size) {
    return InvalidArgError("the heads are for a model of hidden size ", block.shape[1],
                           ", and the model has ", target.hidden_size);
  }
  heads.draft_vocab_size = target.vocab_size;
  const CheckpointTensor* output = checkpoint.Find(names.Output(0, heads.num_blocks));
  heads.shares_lm_head = output == nullptr && config.shares_lm_head;
  if (output == nullptr || output->shape.size() != 2) return {};
  const bool is_mapped = checkpoint.Find("token_map") != nullptr;
  const int64_t rows = output->shape[0];
  if (is_mapped ? rows > target.vocab_size : rows != target.vocab_size) {
    return InvalidArgError("the heads are for a vocabulary of ", rows,
                           " tokens, and the model has ", target.vocab_size);
  }
  if (rows < kMaxMedusaTokens) {
    return InvalidArgError("the heads have a vocabulary of ", rows, " tokens, expected at least ",
                           kMaxMedusaTokens);
  }
  heads.draft_vocab_size = static_cast<int32_t>(rows);
  return {};
}

void MapWeights(const Checkpoint& checkpoint, const HeadTensorNames& names, int64_t hidden_size,
                MedusaWeights& heads) {
  WeightMap& map = heads.model.map;
  for (int32_t head = 0; head < heads.num_heads; ++head) {
    for (int32_t block = 0; block < heads.num_blocks; ++block) {
      const int32_t layer = heads.BlockLayer(head, block);
      map.sources[{layer, WeightKind::kResidualBlock, kNoExpert}] =
          Matrix(names.Block(head, block, "weight"), hidden_size, hidden_size);
      const std::string bias = names.Block(head, block, "bias");
      if (names.is_apart && checkpoint.Find(bias) == nullptr) continue;
      map.sources[{layer, WeightKind::kResidualBlockBias, kNoExpert}] = Vector(bias, hidden_size);
    }
    if (heads.shares_lm_head) continue;
    map.sources[{heads.OutputLayer(head), WeightKind::kLmHead, kNoExpert}] =
        Matrix(names.Output(head, heads.num_blocks), heads.draft_vocab_size, hidden_size);
  }
  // In a whole model's checkpoint, the other tensors are the model's.
  if (!names.prefix.empty()) map.ignored_prefixes = {""};
  map.ignored_suffixes.emplace_back("token_map");
}

Status ReadTokenMap(const Checkpoint& checkpoint, int32_t vocab_size, MedusaWeights& heads) {
  const CheckpointTensor* const tensor = checkpoint.Find("token_map");
  if (tensor == nullptr) return {};
  const int32_t count = heads.draft_vocab_size;
  if (tensor->type != CheckpointDataType::kI64 || tensor->shape != std::vector<int64_t>{count}) {
    return InvalidArgError("tensor 'token_map': expected I64 [", count, "], got ",
                           Info(tensor->type).name, " ", ShapeText(tensor->shape));
  }
  for (int32_t i = 0; i < count; ++i) {
    int64_t id = 0;
    std::memcpy(&id, tensor->bytes.data() + size_t{8} * static_cast<size_t>(i), sizeof(id));
    if (id < 0 || id >= vocab_size) {
      return InvalidArgError("tensor 'token_map': element ", i, " is ", id,
                             ", expected an id of the vocabulary of ", vocab_size, " tokens");
    }
    heads.target_ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

// Returns the index of the first number that is not finite: all of its exponent bits are set.
template <typename Bits>
std::optional<size_t> FindNotFinite(std::span<const uint8_t> bytes, Bits exponent) {
  const size_t count = bytes.size() / sizeof(Bits);
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) == exponent) return i;
  }
  return {};
}

// Heads that diverged in training would draft in vain, without any other sign.
Status CheckFinite(const MedusaWeights& heads) {
  for (const auto& [key, weight] : heads.model.weights) {
    const CheckpointTensor& tensor = weight.tensor;
    std::optional<size_t> found;
    if (tensor.type == CheckpointDataType::kBF16) {
      found = FindNotFinite<uint16_t>(tensor.bytes, 0x7f80);
    } else if (tensor.type == CheckpointDataType::kF16) {
      found = FindNotFinite<uint16_t>(tensor.bytes, 0x7c00);
    } else if (tensor.type == CheckpointDataType::kF32) {
      found = FindNotFinite<uint32_t>(tensor.bytes, 0x7f800000);
    }
    if (!found.has_value()) continue;
    return InvalidArgError("tensor '", weight.source.tensor, "': element ", *found, " is ",
                           ElementAsFloat(tensor, static_cast<int64_t>(*found)),
                           ", expected finite numbers");
  }
  return {};
}

Result<MedusaWeights> ReadHeads(const Checkpoint& checkpoint, const DecoderSpec& target) {
  NEREID_ASSIGN_OR_RETURN(const MedusaConfig config, ReadMedusaConfig(checkpoint));
  NEREID_ASSIGN_OR_RETURN(const HeadTensorNames names, FindNames(checkpoint));
  MedusaWeights heads;
  heads.num_heads = CountHeads(checkpoint, names, config.num_heads);
  heads.num_blocks = config.num_blocks;
  NEREID_RETURN_IF_ERROR(ReadSizes(checkpoint, names, config, target, heads));
  heads.model.spec.hidden_size = target.hidden_size;
  heads.model.spec.vocab_size = heads.draft_vocab_size;
  heads.model.spec.tied_embeddings = false;
  heads.model.spec.layers.resize(static_cast<size_t>(heads.num_heads * heads.num_blocks));
  MapWeights(checkpoint, names, target.hidden_size, heads);
  NEREID_ASSIGN_OR_RETURN(heads.model.weights, ResolveWeights(heads.model.map, checkpoint));
  NEREID_RETURN_IF_ERROR(ReadTokenMap(checkpoint, target.vocab_size, heads));
  NEREID_RETURN_IF_ERROR(CheckFinite(heads));
  return heads;
}

}  // namespace

Result<Checkpoint> OpenMedusaCheckpoint(const std::string& folder) {
  std::error_code error;
  const fs::path root(folder);
  if (fs::exists(root / kHeadsFile, error)) return Checkpoint::OpenFile(folder, kHeadsFile);
  for (const char* pickled : {"medusa_lm_head.pt", "medusa_lm_head.bin"}) {
    if (!fs::exists(root / pickled, error)) continue;
    return UnsupportedError("'", folder, "' holds pickled heads ('", pickled,
                            "'), which are not read: write '", kHeadsFile,
                            "' with safetensors.torch.save_file(torch.load('", pickled, "'), '",
                            kHeadsFile, "')");
  }
  return Checkpoint::Open(folder);
}

Result<MedusaWeights> ReadMedusaWeights(const Checkpoint& checkpoint, const DecoderSpec& target) {
  Result<MedusaWeights> heads = ReadHeads(checkpoint, target);
  if (heads.ok()) return heads;
  return std::move(heads).status().WithContext(
      StrCat("Medusa heads '", checkpoint.directory(), "'"));
}

}  // namespace nereid::llm
