// See schema_shape.h: copies of schemas, for negations and for dynamic references.
#include "backends/llm_core/grammar/schema_shape.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxScopes = 64;

}  // namespace

size_t SchemaDocument::ScopeOf(const Json& schema) const {
  const auto known = scope_of_.find(&schema);
  return known == scope_of_.end() ? 0 : known->second;
}

const Json* SchemaDocument::InScope(const Json& original, size_t scope) const {
  const auto copy = scopes_[scope].copies.find(&original);
  return copy == scopes_[scope].copies.end() ? &original : copy->second;
}

Result<const Json*> SchemaDocument::Enter(const Json& schema) {
  if (!has_scopes_ || made_negations_.count(&schema) != 0) return &schema;
  const size_t scope = ScopeOf(schema);
  std::map<std::string, const Json*> targets = scopes_[scope].targets;
  const size_t num_before = targets.size();
  for (const auto& anchor : ResourceOf(&schema)->dynamic_anchors) targets.insert(anchor);
  if (targets.size() == num_before) return &schema;
  NEREID_ASSIGN_OR_RETURN(const size_t inner, ScopeWith(std::move(targets)));
  const auto original = originals_.find(&schema);
  return InScope(original == originals_.end() ? schema : *original->second, inner);
}

Result<size_t> SchemaDocument::ScopeWith(std::map<std::string, const Json*> targets) {
  for (size_t i = 0; i < scopes_.size(); ++i) {
    if (scopes_[i].targets == targets) return i;
  }
  if (scopes_.size() == kMaxScopes) {
    return UnsupportedError("#: $dynamicRef: more than ", kMaxScopes,
                            " combinations of schemas with $dynamicAnchor cannot be enforced");
  }
  const size_t scope = scopes_.size();
  scopes_.push_back({std::move(targets), {}});
  NoteScopeCopy(made_.emplace_back(root_), root_, scope);
  NEREID_RETURN_IF_ERROR(Spend(10 * scopes_[scope].copies.size()));
  return scope;
}

void SchemaDocument::NoteScopeCopy(const Json& copy, const Json& original, size_t scope) {
  scopes_[scope].copies.emplace(&original, &copy);
  originals_[&copy] = &original;
  scope_of_[&copy] = scope;
  if (const auto own = resource_of_.find(&original); own != resource_of_.end()) {
    resource_of_[&copy] = own->second;
  }
  auto each = original.begin();
  for (auto it = copy.begin(); copy.is_structured() && it != copy.end(); ++it, ++each) {
    NoteScopeCopy(*it, *each, scope);
  }
}

Result<const Json*> SchemaDocument::ResolveDynamic(const Json& schema,
                                                   const std::string& reference) {
  NEREID_ASSIGN_OR_RETURN(const Json* target, Resolve(schema, reference));
  const size_t hash = reference.find('#');
  const std::string name = hash == std::string::npos ? "" : reference.substr(hash + 1);
  const auto& anchors = ResourceOf(target)->dynamic_anchors;
  const auto anchor = anchors.find(name);
  if (anchor == anchors.end() || anchor->second != target) return target;  // as a $ref
  const auto& targets = scopes_[ScopeOf(schema)].targets;
  const auto outermost = targets.find(name);
  return outermost == targets.end() ? target : outermost->second;
}

void SchemaDocument::NoteCopy(const Json& copy, const Json& original, size_t scope) {
  const auto known = originals_.find(&original);
  originals_[&copy] = known == originals_.end() ? &original : known->second;
  if (scope != 0) scope_of_[&copy] = scope;
  if (const auto own = resource_of_.find(&original); own != resource_of_.end()) {
    resource_of_[&copy] = own->second;
  }
  auto each = original.begin();
  for (auto it = copy.begin(); copy.is_structured() && it != copy.end(); ++it, ++each) {
    NoteCopy(*it, *each, scope);
  }
}

Result<const Json*> SchemaDocument::Negation(const Json& schema) {
  if (schema.is_object() && schema.size() == 1 && schema.begin().key() == "not") {
    return &*schema.begin();
  }
  const auto original = originals_.find(&schema);
  const Json& own = original == originals_.end() ? schema : *original->second;
  const size_t scope = ScopeOf(schema);
  const auto [known, is_new] = negations_.emplace(std::pair(&own, scope), nullptr);
  if (!is_new) return known->second;
  const size_t num_before = originals_.size();
  Json& made = made_.emplace_back(Json::object());
  made_negations_.insert(&made);
  made["not"] = own;
  NoteCopy(made["not"], own, scope);
  NoteMade(made, own, scope);
  NEREID_RETURN_IF_ERROR(Spend(5 * (originals_.size() - num_before)));
  return negations_[{&own, scope}] = &made;
}

void SchemaDocument::NoteMade(const Json& made, const Json& own, size_t scope) {
  originals_[&made] = &own;
  if (scope != 0) scope_of_[&made] = scope;
  if (const auto resource = resource_of_.find(&own); resource != resource_of_.end()) {
    resource_of_[&made] = resource->second;
  }
}

Result<const Json*> SchemaDocument::AnyOf(const SchemaList& schemas) {
  if (schemas.size() == 1) return schemas.front();
  const auto [known, is_new] = alternatives_.emplace(schemas, nullptr);
  if (!is_new) return known->second;
  Json& made = made_.emplace_back(Json::object());
  NEREID_RETURN_IF_ERROR(CopyBranches(schemas, made));
  return known->second = &made;
}

Result<const Json*> SchemaDocument::NoneOf(const SchemaList& schemas) {
  if (schemas.size() == 1) return Negation(*schemas.front());
  const auto [known, is_new] = exclusions_of_.emplace(schemas, nullptr);
  if (!is_new) return known->second;
  Json& made = made_.emplace_back(Json::object());
  Json& any = made["not"] = Json::object();
  NEREID_RETURN_IF_ERROR(CopyBranches(schemas, any));
  made_negations_.insert({&made, &any});
  return known->second = &made;
}

Status SchemaDocument::CopyBranches(const SchemaList& schemas, Json& made) {
  const size_t num_before = originals_.size();
  const auto own = [&](const Json* schema) -> const Json& {
    const auto original = originals_.find(schema);
    return original == originals_.end() ? *schema : *original->second;
  };
  Json& branches = made["anyOf"] = Json::array();
  for (const Json* schema : schemas) branches.push_back(own(schema));
  for (size_t i = 0; i < schemas.size(); ++i) {
    NoteCopy(branches[i], own(schemas[i]), ScopeOf(*schemas[i]));
  }
  NoteMade(made, own(schemas.front()), ScopeOf(*schemas.front()));
  return Spend(5 * (originals_.size() - num_before));
}

}  // namespace nereid::llm::grammar
