// Matching of weight names with a checkpoint's tensors.
#include "llm_core/model/weight_map.h"

#include <set>

namespace nereid::llm {
namespace {

constexpr size_t kMaxNamedFaults = 20;  // a message names so many tensors of a kind, then counts

class FaultList {
 public:
  explicit FaultList(std::string_view title) : title_(title) {}

  void Add(std::string text) {
    if (++count_ <= kMaxNamedFaults) text_ += StrCat(text_.empty() ? "" : ", ", text);
  }
  // "; missing: a, b" or "".
  std::string Text() const {
    if (count_ == 0) return "";
    const size_t unnamed = count_ - std::min(count_, kMaxNamedFaults);
    return StrCat("; ", title_, " (", count_, "): ", text_,
                  unnamed > 0 ? StrCat(" and ", unnamed, " more") : "");
  }

 private:
  std::string_view title_;
  std::string text_;
  size_t count_ = 0;
};

bool IsIgnored(const WeightMap& map, std::string_view name) {
  for (const std::string& suffix : map.ignored_suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

bool IsFloat(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBF16;
}

// Whether the names lack the architecture's prefix, judged by the token embedding.
bool LacksPrefix(const WeightMap& map, const Checkpoint& checkpoint) {
  if (map.optional_prefix.empty()) return false;
  const auto embedding = map.sources.find({kNoLayer, WeightKind::kTokenEmbedding, kNoExpert});
  return embedding != map.sources.end() && checkpoint.Find(embedding->second.tensor) == nullptr &&
         embedding->second.tensor.starts_with(map.optional_prefix) &&
         checkpoint.Find(embedding->second.tensor.substr(map.optional_prefix.size())) != nullptr;
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

Result<ResolvedWeights> ResolveWeights(const WeightMap& map, const Checkpoint& checkpoint) {
  FaultList missing("missing"), misshapen("misshapen"), mistyped("of an unsupported type"),
      extra("extra");
  ResolvedWeights resolved;
  std::set<std::string> used, reported;
  const bool lacks_prefix = LacksPrefix(map, checkpoint);
  for (const auto& [key, source] : map.sources) {
    std::string name = source.tensor;
    if (lacks_prefix && name.starts_with(map.optional_prefix)) {
      name.erase(0, map.optional_prefix.size());
    }
    const TensorView* tensor = checkpoint.Find(name);
    const bool is_first_use = reported.insert(name).second;  // a fused tensor is reported once
    if (tensor == nullptr) {
      if (is_first_use) missing.Add(StrCat("'", name, "' ", ShapeText(source.tensor_shape)));
      continue;
    }
    used.insert(name);
    if (tensor->shape != source.tensor_shape) {
      if (is_first_use) {
        misshapen.Add(StrCat("'", name, "' expected ", ShapeText(source.tensor_shape), ", got ",
                             ShapeText(tensor->shape)));
      }
    } else if (!IsFloat(tensor->type)) {
      if (is_first_use) mistyped.Add(StrCat("'", name, "' ", Info(tensor->type).name));
    } else {
      resolved.emplace(key, ResolvedWeight{*tensor, source});
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!used.contains(name) && !IsIgnored(map, name)) extra.Add(StrCat("'", name, "'"));
  }
  const std::string faults =
      StrCat(missing.Text(), misshapen.Text(), mistyped.Text(), extra.Text());
  if (!faults.empty()) {
    return InvalidArgError("checkpoint '", checkpoint.directory(), "' does not fit its config.json",
                           faults);
  }
  return resolved;
}

}  // namespace nereid::llm
