// See schema_shape.h: the document and its references.
#include <algorithm>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/schema_shape.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

constexpr uint64_t kMaxSteps = 5'000'000;

// The parts of a URI or of a reference to one, without its fragment.
struct UriParts {
  std::string scheme, authority, path;  // with ':' and "//"; the path has the query
};

UriParts SplitUri(std::string_view text) {
  UriParts uri;
  const size_t end = text.find_first_of(":/?");
  if (end != std::string_view::npos && text[end] == ':') {
    uri.scheme = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  if (text.starts_with("//")) {
    const size_t path = std::min(text.find_first_of("/?", 2), text.size());
    uri.authority = text.substr(0, path);
    text.remove_prefix(path);
  }
  uri.path = text;
  return uri;
}

// `reference` as seen from the document `base`; RFC 3986, section 5.2.
std::string ResolveUri(std::string_view base, std::string_view reference) {
  UriParts from = SplitUri(base), to = SplitUri(reference);
  if (!to.scheme.empty()) return std::string(reference);
  to.scheme = from.scheme;
  if (to.authority.empty()) {
    to.authority = from.authority;
    if (to.path.empty()) {
      to.path = from.path;
    } else if (to.path[0] != '/') {
      const std::string folder = from.path.substr(0, from.path.find('?'));
      const size_t slash = folder.rfind('/');
      to.path = (slash != std::string::npos ? folder.substr(0, slash + 1)
                 : from.authority.empty()   ? ""
                                            : "/") +
                to.path;
    }
  }
  std::vector<std::string> parts;
  const std::string path = to.path.substr(0, to.path.find('?'));
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool is_last = end == path.size();
    if (part == "..") {
      if (parts.size() > 1) parts.pop_back();
      if (is_last) parts.emplace_back();
    } else if (part != ".") {
      parts.push_back(part);
    } else if (is_last) {
      parts.emplace_back();
    }
    begin = end + 1;
  }
  std::string out = to.scheme + to.authority;
  for (size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "/" : "") + parts[i];
  return out + to.path.substr(path.size());
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::sscanf(std::string(text.substr(i + 1, 2)).c_str(), "%2x", &value) == 1) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Takes the first key, such as "a/b" of "/a~1b/c", from a JSON pointer that is not empty; RFC 6901.
std::string TakeKey(std::string_view& pointer) {
  pointer.remove_prefix(1);
  const size_t end = std::min(pointer.find('/'), pointer.size());
  std::string key;
  for (size_t i = 0; i < end; ++i) {
    if (pointer[i] == '~' && i + 1 < end) {
      key += pointer[++i] == '1' ? '/' : '~';
    } else {
      key += pointer[i];
    }
  }
  pointer.remove_prefix(end);
  return key;
}

// The member of an object, or the element of an array; nullptr if there is none.
const Json* FindChild(const Json& value, const std::string& key) {
  if (value.is_object()) {
    const auto member = value.find(key);
    return member == value.end() ? nullptr : &*member;
  }
  if (!value.is_array() || key.empty() || key.size() >= 9 ||
      !std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return nullptr;
  }
  const size_t index = std::stoul(key);
  return index < value.size() ? &value[index] : nullptr;
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
  Resource& whole = document->resources_.emplace_back();
  whole.root = &document->root_;
  document->resource_by_uri_.emplace("", &whole);
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
    document->has_old_ids_ = name.find("draft-04") != std::string::npos;
    document->contains_evaluates_ = name.find("2019-09") == std::string::npos;
  }
  document->FindResources(root, &whole);
  document->scopes_.push_back({document->resources_.front().dynamic_anchors, {}});
  std::set<std::string_view> names;
  for (const Resource& resource : document->resources_) {
    for (const auto& [name, schema] : resource.dynamic_anchors) {
      document->has_scopes_ |= !names.insert(name).second;
    }
  }
  return document;
}

std::string SchemaDocument::PathOf(const Json* schema) const {
  std::string path = "#";
  if (const auto original = originals_.find(schema); original != originals_.end()) {
    schema = original->second;
  }
  FindPath(root_, schema, path);
  return path;
}

Status SchemaDocument::Spend(uint64_t steps) {
  num_steps_ += steps;
  if (num_steps_ <= kMaxSteps && !pool_->exhausted()) return Status::Ok();
  return InvalidArgError("the schema is too complex: compiling it exceeds the limit of work");
}

// Finds identifiers and anchors, only where a schema is expected: in a constant they are texts.
void SchemaDocument::FindResources(const Json& schema, Resource* resource) {
  if (schema.is_array()) {
    for (const Json& each : schema) FindResources(each, resource);
    return;
  }
  if (!schema.is_object() || resource_of_.count(&schema) != 0) return;
  const auto text_of = [&](const char* keyword) -> const std::string* {
    const auto it = schema.find(keyword);
    return it != schema.end() && it->is_string() ? &it->get_ref<const std::string&>() : nullptr;
  };
  if (!reference_hides_siblings_ || schema.find("$ref") == schema.end()) {
    if (const std::string* id = text_of(has_old_ids_ ? "id" : "$id")) {
      const size_t hash = std::min(id->find('#'), id->size());
      const std::string base = id->substr(0, hash);
      if (!base.empty()) {
        const std::string uri = ResolveUri(resource->uri, base);
        if (&schema != &root_) {
          resource = &resources_.emplace_back();
          resource->root = &schema;
        }
        resource->uri = uri;
        resource_by_uri_.emplace(uri, resource);
      }
      if (hash + 1 < id->size()) resource->anchors.emplace(id->substr(hash + 1), &schema);
    }
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const std::string* name = text_of(keyword);
      if (name == nullptr) continue;
      resource->anchors.emplace(*name, &schema);
      if (keyword[1] != 'd') continue;
      ++num_dynamic_anchors_;
      resource->dynamic_anchors.emplace(*name, &schema);
    }
    const auto recursive = schema.find("$recursiveAnchor");
    if (recursive != schema.end() && *recursive == true && resource->root == &schema) {
      ++num_dynamic_anchors_;
      resource->dynamic_anchors.emplace("", &schema);
    }
  }
  resource_of_[&schema] = resource;
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    const std::string& key = it.key();
    for (const char* name :
         {"additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if",
          "items", "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems",
          "unevaluatedProperties"}) {
      if (key == name) FindResources(*it, resource);
    }
    for (const char* name : {"$defs", "definitions", "dependencies", "dependentSchemas",
                             "patternProperties", "properties"}) {
      if (key != name || !it->is_object()) continue;
      for (const Json& each : *it) FindResources(each, resource);
    }
  }
}

SchemaDocument::Resource* SchemaDocument::ResourceOf(const Json* schema) {
  auto known = resource_of_.find(schema);
  if (const auto original = originals_.find(schema);
      known == resource_of_.end() && original != originals_.end()) {
    known = resource_of_.find(original->second);
  }
  return known == resource_of_.end() ? &resources_.front() : known->second;
}

const Json* SchemaDocument::AnyBut(const Json& value) {
  const Json*& known = exclusions_[&value];
  if (known == nullptr) {
    Json& made = made_.emplace_back(Json::object());
    made["not"] = Json::object();
    made["not"]["const"] = value;
    known = &made;
  }
  return known;
}

Result<const Json*> SchemaDocument::Resolve(const Json& schema, const std::string& reference) {
  Resource* resource = ResourceOf(&schema);
  const size_t hash = std::min(reference.find('#'), reference.size());
  if (hash > 0) {
    const auto found = resource_by_uri_.find(
        ResolveUri(resource->uri, std::string_view(reference).substr(0, hash)));
    if (found == resource_by_uri_.end()) {
      return UnsupportedError("$ref: '", reference, "' is not inside of the schema");
    }
    resource = found->second;
  }
  const std::string name =
      PercentDecoded(std::string_view(reference).substr(std::min(hash + 1, reference.size())));
  if (!name.empty() && name[0] != '/') {
    const auto anchor = resource->anchors.find(name);
    if (anchor != resource->anchors.end()) return anchor->second;
    return InvalidArgError("$ref: '", reference, "' does not exist");
  }
  const Json* at = resource->root;
  for (std::string_view pointer = name; !pointer.empty();) {
    at = FindChild(*at, TakeKey(pointer));
    if (at == nullptr) return InvalidArgError("$ref: '", reference, "' does not exist");
    if (const auto own = resource_of_.find(at); own != resource_of_.end()) resource = own->second;
  }
  const size_t num_before = num_dynamic_anchors_;
  FindResources(*at, resource);
  if (num_dynamic_anchors_ > num_before) {
    return UnsupportedError("$ref: '", reference, "' is not where a schema is expected, and has a ",
                            "$dynamicAnchor");
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
