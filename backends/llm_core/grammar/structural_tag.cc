// See structural_tag.h.
#include "backends/llm_core/grammar/structural_tag.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/json_schema.h"
#include "backends/llm_core/grammar/regex_syntax.h"
#include "backends/llm_core/grammar/syntax_graph.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

using Json = nlohmann::ordered_json;  // properties keep the order of the schema

constexpr int kMaxFormatDepth = 64;  // of formats
constexpr JsonLimits kTagLimits = {.max_depth = 512, .max_values = 1'000'000};

class TagBuilder {
 public:
  TagBuilder(SyntaxGraph& graph, const Vocabulary& vocabulary, int max_whitespace)
      : graph_(graph),
        vocabulary_(vocabulary),
        pool_(graph.pool()),
        max_whitespace_(max_whitespace),
        root_(graph.AddRule()),
        any_text_(pool_.Repeat(SpellSet(pool_, CodePointSet::All(), Spelling::kUtf8), 0,
                               RegexPool::kUnlimited)) {}

  Status Build(const Json& tag) {
    const StateId end = graph_.AddState(root_);
    graph_.Accept(end);
    const StateId start = graph_.rule(root_).start;
    if (!tag.is_object()) return InvalidArgError("#: expected an object");
    has_special_tokens_ = Flag(tag, "special_tokens");
    if (tag.contains("format")) return AddFormat(tag["format"], "#/format", 0, start, end);
    // The structures are tags whose content is JSON.
    NEREID_ASSIGN_OR_RETURN(const Json* structures, List(tag, "structures", "#"));
    Json tags = Json::array();
    for (const Json& each : *structures) {
      if (!each.is_object() || !each.contains("schema")) {
        return InvalidArgError("#/structures: expected objects with begin, schema and end");
      }
      tags.push_back({{"type", "tag"},
                      {"begin", each.value("begin", Json())},
                      {"content", {{"type", "json_schema"}, {"json_schema", each["schema"]}}},
                      {"end", each.value("end", Json())}});
    }
    const Json format = {{"triggers", tag.value("triggers", Json())}, {"tags", std::move(tags)}};
    return AddTriggeredTags(format, "#", 0, start, end);
  }

 private:
  static Result<const Json*> List(const Json& object, const char* name, const std::string& path) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_array() || found->empty()) {
      return InvalidArgError(path, ": expected '", name, "', a list that is not empty");
    }
    return &*found;
  }
  static Result<std::string> Text(const Json& object, const char* name, const std::string& path) {
    const auto found = object.find(name);
    if (found == object.end() || !found->is_string()) {
      return InvalidArgError(path, ": expected '", name, "', a text");
    }
    return found->get<std::string>();
  }
  static bool Flag(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_boolean() && found->get<bool>();
  }

  // Reads a text of `regex`, which may be empty.
  void Read(RegexId regex, StateId from, StateId to) {
    if (pool_.IsNullable(regex)) graph_.Skip(from, to);
    if (regex != RegexPool::kEmpty) graph_.Read(from, graph_.AddTerminal(regex), to);
  }
  void ReadText(const std::string& text, StateId from, StateId to) {
    Read(text.empty() ? RegexPool::kEmpty : pool_.Literal(text), from, to);
  }
  // The same, with special tokens where the text has their names.
  void ReadMarker(const std::string& text, StateId from, StateId to) {
    ReadText(has_special_tokens_ ? vocabulary_.Marker(text) : text, from, to);
  }
  RegexId Without(RegexId ends) {  // any text that contains none of these
    return pool_.Intersection(
        {any_text_, pool_.Complement(pool_.Concat({RegexPool::kAll, ends, RegexPool::kAll}))});
  }
  // Any text up to the first of `ends`, which is `end`.
  RegexId TextUntil(const std::string& end, RegexId ends) {
    const RegexId more = pool_.Intersection({RegexPool::kAll, pool_.Complement(RegexPool::kEmpty)});
    return pool_.Intersection({any_text_, pool_.Concat(RegexPool::kAll, pool_.Literal(end)),
                               pool_.Complement(pool_.Concat({RegexPool::kAll, ends, more}))});
  }

  Status AddFormat(const Json& format, const std::string& path, int depth, StateId from,
                   StateId to) {
    if (!format.is_object()) return InvalidArgError(path, ": expected an object");
    if (depth > kMaxFormatDepth)
      return InvalidArgError(path, ": more than ", kMaxFormatDepth, " levels");
    NEREID_ASSIGN_OR_RETURN(const std::string type, Text(format, "type", path));
    if (type == "const_string") {
      NEREID_ASSIGN_OR_RETURN(const std::string value, Text(format, "value", path));
      ReadMarker(value, from, to);
      return Status::Ok();
    }
    if (type == "json_schema" || type == "arguments") return AddSchema(format, path, from, to);
    if (type == "regex") return AddRegex(format, path, from, to);
    if (type == "any_text") {
      Read(any_text_, from, to);
      return Status::Ok();
    }
    if (type == "sequence") return AddSequence(format, path, depth, from, to);
    if (type == "or") return AddAlternatives(format, path, depth, from, to);
    if (type == "tag") {
      NEREID_ASSIGN_OR_RETURN(const std::string begin, Text(format, "begin", path));
      return AddTag(format, begin, path, depth, from, to);
    }
    if (type == "triggered_tags") return AddTriggeredTags(format, path, depth, from, to);
    if (type == "tags_with_separator") return AddTags(format, path, depth, from, to);
    return UnsupportedError(path, ": type '", type, "' is not supported");
  }

  Status AddSchema(const Json& format, const std::string& path, StateId from, StateId to) {
    const auto found = format.find("json_schema");
    if (found == format.end()) return InvalidArgError(path, ": expected 'json_schema'");
    const std::string schema = found->dump(-1, ' ', false, Json::error_handler_t::replace);
    SchemaNotation notation;
    std::string key = schema;
    if (const auto given = format.find("notation"); given != format.end()) {
      NEREID_ASSIGN_OR_RETURN(
          notation, ReadSchemaNotation(*given, path + "/notation", [&](std::string_view text) {
            return has_special_tokens_ ? vocabulary_.Marker(text) : std::string(text);
          }));
      key += given->dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    auto known = schemas_.find(key);
    if (known == schemas_.end()) {
      Result<RuleId> rule = AddJsonSchema(schema, max_whitespace_, graph_, notation);
      if (!rule.ok()) return std::move(rule).status().WithContext(path + "/json_schema");
      known = schemas_.emplace(std::move(key), *rule).first;
    }
    graph_.Call(from, known->second, to);
    return Status::Ok();
  }

  Status AddRegex(const Json& format, const std::string& path, StateId from, StateId to) {
    NEREID_ASSIGN_OR_RETURN(const std::string pattern, Text(format, "pattern", path));
    Result<RegexId> regex = ParseRegex(pool_, pattern, RegexMatch::kWhole, Spelling::kUtf8);
    if (!regex.ok()) return std::move(regex).status().WithContext(path + "/pattern");
    Read(*regex, from, to);
    return Status::Ok();
  }

  Status AddSequence(const Json& format, const std::string& path, int depth, StateId from,
                     StateId to) {
    NEREID_ASSIGN_OR_RETURN(const Json* elements, List(format, "elements", path));
    StateId at = from;
    for (size_t i = 0; i < elements->size(); ++i) {
      const StateId next = i + 1 == elements->size() ? to : graph_.AddState(root_);
      NEREID_RETURN_IF_ERROR(
          AddFormat((*elements)[i], StrCat(path, "/elements/", i), depth + 1, at, next));
      at = next;
    }
    return Status::Ok();
  }

  Status AddAlternatives(const Json& format, const std::string& path, int depth, StateId from,
                         StateId to) {
    NEREID_ASSIGN_OR_RETURN(const Json* elements, List(format, "elements", path));
    for (size_t i = 0; i < elements->size(); ++i) {
      NEREID_RETURN_IF_ERROR(
          AddFormat((*elements)[i], StrCat(path, "/elements/", i), depth + 1, from, to));
    }
    return Status::Ok();
  }

  // `begin`: what is left to read of the tag's.
  Status AddTag(const Json& tag, const std::string& begin, const std::string& path, int depth,
                StateId from, StateId to) {
    NEREID_ASSIGN_OR_RETURN(const std::string end, Text(tag, "end", path));
    const auto content = tag.find("content");
    if (content == tag.end()) return InvalidArgError(path, ": expected 'content'");
    const StateId inside = graph_.AddState(root_);
    ReadMarker(begin, from, inside);
    if (!end.empty() && content->is_object() && content->value("type", Json()) == "any_text") {
      Read(TextUntil(end, pool_.Literal(end)), inside, to);
      return Status::Ok();
    }
    const StateId after = graph_.AddState(root_);
    ReadMarker(end, after, to);
    return AddFormat(*content, path + "/content", depth + 1, inside, after);
  }

  Status AddTriggeredTags(const Json& format, const std::string& path, int depth, StateId from,
                          StateId to) {
    NEREID_ASSIGN_OR_RETURN(const Json* triggers, List(format, "triggers", path));
    NEREID_ASSIGN_OR_RETURN(const Json* tags, List(format, "tags", path));
    std::vector<std::string> texts;
    for (const Json& trigger : *triggers) {
      if (!trigger.is_string() || trigger.get_ref<const std::string&>().empty()) {
        return InvalidArgError(path, "/triggers: expected texts that are not empty");
      }
      texts.push_back(trigger.get<std::string>());
    }
    std::vector<std::string> sorted = texts;
    const RegexId any = pool_.Literals(sorted);
    // Free text stands before each tag and at the end.
    const StateId free = graph_.AddState(root_);
    const StateId after_tag = Flag(format, "stop_after_first") ? to : free;
    const bool at_least_one = Flag(format, "at_least_one");
    const StateId first = at_least_one ? from : free;
    if (!at_least_one) graph_.Skip(from, free);
    Read(Without(any), free, to);
    for (size_t i = 0; i < tags->size(); ++i) {
      const Json& tag = (*tags)[i];
      const std::string tag_path = StrCat(path, "/tags/", i);
      if (!tag.is_object()) return InvalidArgError(tag_path, ": expected an object");
      NEREID_ASSIGN_OR_RETURN(const std::string begin, Text(tag, "begin", tag_path));
      const auto trigger = std::find_if(texts.begin(), texts.end(), [&](const std::string& text) {
        return begin.starts_with(text);
      });
      if (trigger == texts.end()) {
        return InvalidArgError(tag_path, ": no trigger begins '", begin.substr(0, 100), "'");
      }
      const StateId triggered = graph_.AddState(root_);
      if (at_least_one) ReadText(*trigger, first, triggered);
      if (after_tag == free || !at_least_one) Read(TextUntil(*trigger, any), free, triggered);
      NEREID_RETURN_IF_ERROR(
          AddTag(tag, begin.substr(trigger->size()), tag_path, depth + 1, triggered, after_tag));
    }
    return Status::Ok();
  }

  Status AddTags(const Json& format, const std::string& path, int depth, StateId from, StateId to) {
    NEREID_ASSIGN_OR_RETURN(const Json* tags, List(format, "tags", path));
    NEREID_ASSIGN_OR_RETURN(const std::string separator, Text(format, "separator", path));
    if (!Flag(format, "at_least_one")) graph_.Skip(from, to);
    const StateId before_tag = graph_.AddState(root_), after_tag = graph_.AddState(root_);
    graph_.Skip(from, before_tag);
    graph_.Skip(after_tag, to);
    if (!Flag(format, "stop_after_first")) ReadMarker(separator, after_tag, before_tag);
    for (size_t i = 0; i < tags->size(); ++i) {
      const std::string tag_path = StrCat(path, "/tags/", i);
      if (!(*tags)[i].is_object()) return InvalidArgError(tag_path, ": expected an object");
      NEREID_ASSIGN_OR_RETURN(const std::string begin, Text((*tags)[i], "begin", tag_path));
      Status status = AddTag((*tags)[i], begin, tag_path, depth + 1, before_tag, after_tag);
      if (!status.ok())
        return std::move(status).WithContext(StrCat("tag '", begin.substr(0, 100), "'"));
    }
    return Status::Ok();
  }

  SyntaxGraph& graph_;
  const Vocabulary& vocabulary_;
  RegexPool& pool_;
  const int max_whitespace_;
  const RuleId root_;
  const RegexId any_text_;
  bool has_special_tokens_ = false;
  std::map<std::string, RuleId> schemas_;  // by their text and their notation
};

}  // namespace

Result<std::shared_ptr<const Grammar>> FromStructuralTag(
    std::string_view tag, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options) {
  if (tag.size() > options.max_text_bytes) {
    return InvalidArgError("the tag has ", tag.size(), " bytes; at most ", options.max_text_bytes,
                           " are allowed");
  }
  NEREID_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(tag, "", kTagLimits));
  auto graph = std::make_unique<SyntaxGraph>(
      RegexLimits{.max_bytes = options.max_memory_bytes, .max_steps = options.max_compile_steps});
  NEREID_RETURN_IF_ERROR(TagBuilder(*graph, *vocabulary, options.max_json_whitespace).Build(json));
  NEREID_RETURN_IF_ERROR(graph->Finish());
  return Grammar::FromGraph(std::move(graph), std::move(vocabulary), options);
}

}  // namespace nereid::llm::grammar
