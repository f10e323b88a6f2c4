// Matches weight names with the tensors of a checkpoint.
#include "backends/llm_core/model/weight_map.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "backends/llm_core/checkpoint/error_list.h"

namespace nereid::llm {
namespace {

struct WeightErrors {
  ErrorList missing{"missing"}, misshapen{"of a wrong shape"}, mistyped{"of an unsupported type"},
      extra{"extra"}, not_in_file{"in the index, but not in its file"};
  std::string Text() const {
    return StrCat(missing.Text(), misshapen.Text(), mistyped.Text(), extra.Text(),
                  not_in_file.Text());
  }
};

// Tensors that the decoder does not need: saved buffers, scales of activations, and the zero biases
// that quantization tools add to layers without a bias.
bool IsIgnored(const WeightMap& map, const QuantSpec& quant, std::string_view name,
               const CheckpointTensor& tensor) {
  if (!map.tied_head.empty() && name.ends_with(map.tied_head)) return true;
  for (const std::string& suffix : map.ignored_suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  for (const std::string& prefix : map.ignored_prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  if (quant.method == QuantMethod::kNone) return false;
  for (const char* suffix : {".input_scale", ".output_scale", ".k_scale", ".v_scale",
                             ".input_scale_ub", ".activation_scaling_factor"}) {
    if (name.ends_with(suffix)) return true;
  }
  return name.ends_with(".bias") &&
         std::all_of(tensor.bytes.begin(), tensor.bytes.end(), [](uint8_t b) { return b == 0; });
}

constexpr CheckpointDataType kFloats[] = {CheckpointDataType::kF32, CheckpointDataType::kF16,
                                          CheckpointDataType::kBF16};
constexpr CheckpointDataType kWords[] = {CheckpointDataType::kI32, CheckpointDataType::kU32};
constexpr CheckpointDataType kBytes[] = {CheckpointDataType::kI8, CheckpointDataType::kU8};
constexpr CheckpointDataType kFp8[] = {CheckpointDataType::kF8E4M3};

// Finds tensors in a checkpoint and records errors, once for each tensor.
class TensorMatcher {
 public:
  TensorMatcher(const Checkpoint& checkpoint, WeightErrors& errors)
      : checkpoint_(checkpoint), errors_(errors) {}

  // Returns the tensor with this name, shape and one of these types. After an error, the result has
  // no bytes.
  CheckpointTensor Find(const std::string& name, const std::vector<int64_t>& shape,
                        std::span<const CheckpointDataType> types) {
    const CheckpointTensor* tensor = checkpoint_.Find(name);
    const bool is_first_use = used_.insert(name).second;  // a fused tensor is reported once
    if (tensor == nullptr) {
      if (is_first_use) errors_.missing.Add(StrCat("'", name, "' ", ShapeText(shape)));
    } else if (tensor->shape != shape) {
      if (is_first_use) {
        errors_.misshapen.Add(
            StrCat("'", name, "' expected ", ShapeText(shape), ", got ", ShapeText(tensor->shape)));
      }
    } else if (std::find(types.begin(), types.end(), tensor->type) == types.end()) {
      if (is_first_use) errors_.mistyped.Add(StrCat("'", name, "' ", Info(tensor->type).name));
    } else {
      return *tensor;
    }
    return {};
  }
  void Misshapen(std::string text) { errors_.misshapen.Add(std::move(text)); }
  CheckpointTensor FindOptional(const std::string& name, const std::vector<int64_t>& shape,
                                std::span<const CheckpointDataType> types) {
    return Has(name) ? Find(name, shape, types) : CheckpointTensor{};
  }
  bool Has(const std::string& name) const { return checkpoint_.Find(name) != nullptr; }
  const CheckpointTensor* Peek(const std::string& name) const { return checkpoint_.Find(name); }
  void Use(const std::string& name) { used_.insert(name); }
  bool IsUsed(const std::string& name) const { return used_.contains(name); }

 private:
  const Checkpoint& checkpoint_;
  WeightErrors& errors_;
  std::set<std::string> used_;
};

// Shape of `base`weight_scale: per tensor ([] or [1]) or per row ([rows] or [rows, 1]).
std::vector<int64_t> ScaleShape(const TensorMatcher& match, const std::string& base, int64_t rows) {
  const CheckpointTensor* scale = match.Peek(base + "weight_scale");
  if (scale != nullptr && (scale->shape.empty() || scale->shape == std::vector<int64_t>{1} ||
                           scale->shape == std::vector<int64_t>{rows})) {
    return scale->shape;
  }
  return {rows, 1};
}

// The tensors of the integer matrix `base`weight [rows, columns].
ResolvedWeight ResolveIntegers(TensorMatcher& match, const std::string& base,
                               const WeightSource& source, const QuantSpec& quant) {
  const int64_t rows = source.tensor_shape[0], columns = source.tensor_shape[1];
  const int64_t group = quant.group_size > 0 ? quant.group_size : columns;
  const int64_t groups = (columns + group - 1) / group;
  const int64_t values = 32 / quant.num_bits;  // in a word
  ResolvedWeight weight;
  weight.source = source;
  QuantTensors& parts = weight.quant;
  parts.method = quant.method;
  parts.num_bits = quant.num_bits;
  parts.group_size = group;
  parts.zero_offset = quant.zero_offset;
  if (rows % 8 != 0 || columns % 8 != 0) {
    match.Misshapen(StrCat("'", base, "weight' ", ShapeText(source.tensor_shape), " in ",
                           quant.num_bits, " bits, expected multiples of 8"));
    return weight;
  }
  switch (quant.method) {
    case QuantMethod::kAwq:
    case QuantMethod::kGptq: {
      const bool by_output = quant.method == QuantMethod::kAwq;
      weight.tensor = match.Find(
          base + "qweight",
          by_output ? std::vector{columns, rows / values} : std::vector{columns / values, rows},
          kWords);
      parts.scales = match.Find(base + "scales", {groups, rows}, kFloats);
      parts.zeros = match.Find(base + "qzeros", {groups, rows / values}, kWords);
      if (!by_output) parts.group_index = match.FindOptional(base + "g_idx", {columns}, kWords);
      break;
    }
    case QuantMethod::kPacked:
      weight.tensor = match.Find(base + "weight_packed", {rows, columns / values}, kWords);
      parts.scales = match.Find(base + "weight_scale", {rows, groups}, kFloats);
      if (quant.has_zeros) {
        parts.zeros = match.Find(base + "weight_zero_point", {rows / values, groups}, kWords);
      }
      parts.group_index = match.FindOptional(base + "weight_g_idx", {columns}, kWords);
      match.Use(base + "weight_shape");
      break;
    case QuantMethod::kInt8: {
      weight.tensor = match.Find(base + "weight", source.tensor_shape, kBytes);
      parts.scales = match.Find(base + "weight_scale", ScaleShape(match, base, rows), kFloats);
      parts.zeros = match.FindOptional(base + "weight_zero_point", parts.scales.shape, kBytes);
      break;
    }
    case QuantMethod::kTrtAwq:
      weight.tensor = match.Find(base + "weight", {rows / 2, columns}, kBytes);
      parts.scales = match.Find(base + "weights_scaling_factor", {rows, groups}, kFloats);
      parts.input_scale = match.FindOptional(base + "prequant_scaling_factor", {columns}, kFloats);
      break;
    default:
      break;
  }
  return weight;
}

ResolvedWeight ResolveFp8(TensorMatcher& match, const std::string& base, const WeightSource& source,
                          QuantMethod method) {
  ResolvedWeight weight{match.Find(base + "weight", source.tensor_shape, kFp8), source, {}};
  QuantTensors& parts = weight.quant;
  parts.method = method;
  const int64_t rows = source.tensor_shape[0], columns = source.tensor_shape[1];
  if (method == QuantMethod::kFp8) {
    parts.scales = match.Find(base + "weight_scale", ScaleShape(match, base, rows), kFloats);
    return weight;
  }
  parts.group_size = kFp8Block;
  // Despite its name it is a factor, not a divisor.
  const std::string inverse = base + "weight_scale_inv";
  parts.scales = match.Find(
      match.Has(inverse) ? inverse : base + "weight_scale",
      {(rows + kFp8Block - 1) / kFp8Block, (columns + kFp8Block - 1) / kFp8Block}, kFloats);
  if (source.num_groups != 1 || source.first_row % kFp8Block != 0) {
    match.Misshapen(StrCat("'", base, "weight' rows from ", source.first_row,
                           " on are a weight of their own, expected whole blocks of ", kFp8Block));
  }
  return weight;
}

// Whether the checkpoint stores this weight in quantized form. Tools leave some layers unquantized.
bool IsQuantized(const TensorMatcher& match, const std::string& base, const WeightSource& source,
                 const QuantSpec& quant) {
  if (source.tensor_shape.size() != 2) return false;
  if (source.transposed && quant.method != QuantMethod::kGptq) return false;
  const CheckpointTensor* plain = match.Peek(base + "weight");
  switch (quant.method) {
    case QuantMethod::kNone:
      return false;
    case QuantMethod::kAwq:
    case QuantMethod::kGptq:
      return match.Has(base + "qweight");
    case QuantMethod::kPacked:
      return match.Has(base + "weight_packed");
    case QuantMethod::kInt8:
    case QuantMethod::kTrtAwq:
      return plain != nullptr && Info(plain->type).size_bytes == 1;
    case QuantMethod::kFp8:
    case QuantMethod::kFp8Blocks:
      return plain != nullptr && plain->type == CheckpointDataType::kF8E4M3;
  }
  return false;
}

// Tools pack a matrix that is otherwise stored transposed (GPT-2) like any other.
WeightSource AsPacked(WeightSource source) {
  if (std::exchange(source.transposed, false)) {
    std::swap(source.tensor_shape[0], source.tensor_shape[1]);
  }
  return source;
}

using PrefixRename = WeightMap::PrefixRename;

std::string Renamed(const std::string& name, const PrefixRename* other) {
  if (other == nullptr || !name.starts_with(other->from)) return name;
  return other->to + name.substr(other->from.size());
}

bool AreEqual(const CheckpointTensor& a, const CheckpointTensor& b) {
  return a.type == b.type &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

// Resolves embedding and head if the config ties them. `sources` contains the names of the
// checkpoint.
void ResolveTiedHead(const WeightMap& map, const PrefixRename* prefix, const Checkpoint& checkpoint,
                     std::map<WeightKey, WeightSource>& sources) {
  const auto found = sources.find({kNoLayer, WeightKind::kTokenEmbedding, kNoExpert});
  if (map.tied_head.empty() || found == sources.end()) return;
  WeightSource& embedding = found->second;
  const CheckpointTensor* table = checkpoint.Find(embedding.tensor);
  std::string name = Renamed(map.tied_head, prefix);
  if (checkpoint.Find(name) == nullptr) name = map.tied_head;
  const CheckpointTensor* head = checkpoint.Find(name);
  if (head == nullptr || head->shape != embedding.tensor_shape) return;
  if (table == nullptr) {
    embedding.tensor = name;
  } else if (AreEqual(*table, *head)) {
    checkpoint.DropPages(*head);
  } else {
    sources[{kNoLayer, WeightKind::kLmHead, kNoExpert}] =
        Matrix(name, head->shape[0], head->shape[1]);
  }
}

// Determines the name prefix of the checkpoint by its token embedding. Null: that of the
// architecture.
const PrefixRename* FindPrefix(const WeightMap& map, const Checkpoint& checkpoint) {
  const auto embedding = map.sources.find({kNoLayer, WeightKind::kTokenEmbedding, kNoExpert});
  if (embedding == map.sources.end()) return nullptr;
  const std::string& name = embedding->second.tensor;
  if (checkpoint.Find(name) != nullptr) return nullptr;
  for (const PrefixRename& other : map.prefix_renames) {
    const std::string renamed = Renamed(name, &other);
    if (renamed != name && checkpoint.Find(renamed) != nullptr) return &other;
  }
  return nullptr;
}

}  // namespace

WeightSource Matrix(std::string tensor, int64_t rows, int64_t columns) {
  return RowsOf(std::move(tensor), rows, columns, 0, rows);
}

WeightSource Vector(std::string tensor, int64_t rows) {
  return RowsOf(std::move(tensor), rows, 0, 0, rows);
}

WeightSource RowsOf(std::string tensor, int64_t total, int64_t columns, int64_t first,
                    int64_t rows) {
  WeightSource source;
  source.tensor = std::move(tensor);
  source.tensor_shape = {total};
  if (columns > 0) source.tensor_shape.push_back(columns);
  source.first_row = first;
  source.group_rows = rows;
  source.group_stride = rows;
  return source;
}

Result<ResolvedWeights> ResolveWeights(const WeightMap& map, const Checkpoint& checkpoint,
                                       const QuantSpec& quant) {
  WeightErrors errors;
  TensorMatcher match(checkpoint, errors);
  ResolvedWeights resolved;
  const PrefixRename* const prefix = FindPrefix(map, checkpoint);
  std::map<WeightKey, WeightSource> sources = map.sources;
  for (auto& [key, source] : sources) source.tensor = Renamed(source.tensor, prefix);
  ResolveTiedHead(map, prefix, checkpoint, sources);
  for (const auto& [key, source] : sources) {
    const std::string& name = source.tensor;
    const std::string base = name.ends_with("weight") ? name.substr(0, name.size() - 6) : "";
    ResolvedWeight weight;
    // Used for lookup, not for a matrix product.
    const bool is_table = key.kind == WeightKind::kTokenEmbedding;
    if (base.empty() || is_table || !IsQuantized(match, base, source, quant)) {
      weight = {match.Find(name, source.tensor_shape, kFloats), source, {}};
    } else if (quant.num_bits == 0) {
      weight = ResolveFp8(match, base, source, quant.method);
      weight.quant.quantizes_input = quant.quantizes_input;
    } else {
      weight = ResolveIntegers(match, base, AsPacked(source), quant);
    }
    resolved.emplace(key, std::move(weight));
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!match.IsUsed(name) && !IsIgnored(map, quant, name, tensor)) {
      errors.extra.Add(StrCat("'", name, "'"));
    }
  }
  for (const auto& [name, file] : checkpoint.missing_in_files()) {
    errors.not_in_file.Add(StrCat("'", name, "' in '", file, "'"));
  }
  if (const std::string text = errors.Text(); !text.empty()) {
    return InvalidArgError("checkpoint '", checkpoint.directory(), "' does not fit its config.json",
                           text);
  }
  return resolved;
}

}  // namespace nereid::llm
