// See schema_shape.h: the document and its references.
#include <algorithm>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/schema_shape.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

constexpr uint64_t kMaxSteps = 5'000'000;

// Finds anchors, and identifiers other than the root's. They are looked for everywhere: one in a
// constant is no identifier, but then a reference is refused, not misread.
void FindNames(const Json& value, bool is_root,
               std::unordered_map<std::string, const Json*>& anchors, bool& has_inner_ids) {
  if (value.is_object()) {
    for (const char* keyword : {"$id", "id"}) {
      const auto id = value.find(keyword);
      if (id == value.end() || !id->is_string()) continue;
      const std::string& text = id->get_ref<const std::string&>();
      if (text.starts_with("#") && text.size() > 1) {
        anchors.emplace(text.substr(1), &value);
      } else if (!is_root) {
        has_inner_ids = true;
      }
    }
    const auto anchor = value.find("$anchor");
    if (anchor != value.end() && anchor->is_string()) {
      anchors.emplace(anchor->get<std::string>(), &value);
    }
  }
  if (!value.is_structured()) return;
  for (const Json& each : value) {
    if (each.is_structured()) FindNames(each, false, anchors, has_inner_ids);
  }
}

bool FindPath(const Json& value, const Json* wanted, std::string& path) {
  if (&value == wanted) return true;
  const size_t size = path.size();
  const auto below = [&](const Json& each, const std::string& key) {
    path += '/';
    for (const char c : key) c == '~' ? path += "~0" : c == '/' ? path += "~1" : path += c;
    if (FindPath(each, wanted, path)) return true;
    path.resize(size);
    return false;
  };
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      if (below(each, key)) return true;
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (below(value[i], std::to_string(i))) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(std::string_view text) {
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  NEREID_ASSIGN_OR_RETURN(
      document->root_,
      ReadJson<Json>(text, "the schema", {.max_bytes = size_t{64} << 20, .max_depth = 200}));
  const Json& root = document->root_;
  if (!root.is_object() && !root.is_boolean()) {
    return InvalidArgError("the schema must be an object or a boolean, got ", ShowJson(root));
  }
  document->pool_ = std::make_unique<RegexPool>(RegexLimits{.max_bytes = size_t{64} << 20});
  FindNames(root, true, document->anchors_, document->has_inner_ids_);
  if (!root.is_object()) return document;
  const auto dialect = root.find("$schema");
  if (dialect != root.end() && dialect->is_string()) {
    const std::string& name = dialect->get_ref<const std::string&>();
    if (name.find("draft-03") != std::string::npos) {
      return UnsupportedError("#: $schema: draft 3 of JSON schema is not supported");
    }
    for (const char* old : {"draft-04", "draft-06", "draft-07"}) {
      document->reference_hides_siblings_ |= name.find(old) != std::string::npos;
    }
  }
  return document;
}

std::string SchemaDocument::PathOf(const Json* schema) const {
  std::string path = "#";
  FindPath(root_, schema, path);
  return path;
}

Status SchemaDocument::Spend(uint64_t steps) {
  num_steps_ += steps;
  if (num_steps_ <= kMaxSteps && !pool_->exhausted()) return Status::Ok();
  return InvalidArgError("the schema is too complex: compiling it exceeds the limit of work");
}

Result<const Json*> SchemaDocument::Resolve(const std::string& reference) {
  const std::string name = [&] {  // percent-decoded
    std::string out;
    for (size_t i = 0; i < reference.size(); ++i) {
      unsigned value = 0;
      if (reference[i] == '%' && i + 2 < reference.size() &&
          std::sscanf(reference.substr(i + 1, 2).c_str(), "%2x", &value) == 1) {
        out += static_cast<char>(value);
        i += 2;
      } else {
        out += reference[i];
      }
    }
    return out;
  }();
  std::string_view rest = name;
  const auto root_id = root_.is_object() ? root_.find("$id") : root_.end();
  if (root_id != root_.end() && root_id->is_string()) {
    const std::string& id = root_id->get_ref<const std::string&>();
    if (!id.empty() && rest.starts_with(id) &&
        (rest.size() == id.size() || rest[id.size()] == '#')) {
      rest.remove_prefix(id.size());
      if (rest.empty()) return &root_;
    }
  }
  if (!rest.starts_with('#')) {
    return UnsupportedError("$ref: '", reference, "' is not inside of the schema");
  }
  if (has_inner_ids_) {
    return UnsupportedError("$ref: '", reference,
                            "' cannot be resolved in a schema with more than one $id");
  }
  rest.remove_prefix(1);
  if (!rest.empty() && rest[0] != '/') {
    const auto anchor = anchors_.find(std::string(rest));
    if (anchor != anchors_.end()) return anchor->second;
    return InvalidArgError("$ref: '", reference, "' does not exist");
  }
  const Json* at = &root_;
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    std::string key;
    for (size_t i = 0; i < end; ++i) {
      if (rest[i] == '~' && i + 1 < end) {
        key += rest[++i] == '1' ? '/' : '~';
      } else {
        key += rest[i];
      }
    }
    rest.remove_prefix(end);
    const Json* next = nullptr;
    if (at->is_object()) {
      const auto member = at->find(key);
      if (member != at->end()) next = &*member;
    } else if (at->is_array() && !key.empty() && key.size() < 9 &&
               std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      const size_t index = std::stoul(key);
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) return InvalidArgError("$ref: '", reference, "' does not exist");
    at = next;
  }
  return at;
}

JsonType TypeOf(const Json& value) {
  if (value.is_null()) return JsonType::kNull;
  if (value.is_boolean()) return JsonType::kBoolean;
  if (value.is_number()) return JsonType::kNumber;
  if (value.is_string()) return JsonType::kString;
  return value.is_array() ? JsonType::kArray : JsonType::kObject;
}

bool JsonEqual(const Json& x, const Json& y) {
  if (TypeOf(x) != TypeOf(y)) return false;
  if (x.is_number()) {
    const auto left = Decimal::Of(x), right = Decimal::Of(y);
    return left && right && *left == *right;
  }
  if (!x.is_structured()) return x == y;
  if (x.size() != y.size()) return false;
  if (x.is_array()) return std::equal(x.begin(), x.end(), y.begin(), JsonEqual);
  for (const auto& [key, value] : x.items()) {
    const auto other = y.find(key);
    if (other == y.end() || !JsonEqual(value, *other)) return false;
  }
  return true;
}

}  // namespace nereid::llm::grammar
