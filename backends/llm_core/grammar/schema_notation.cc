// See schema_notation.h.
#include "backends/llm_core/grammar/schema_notation.h"

#include <utility>

namespace nereid::llm::grammar {
namespace {

using NotationJson = nlohmann::ordered_json;
using MarkerOf = std::function<std::string(std::string_view)>;

constexpr size_t kMaxKinds = 8;  // of values

// Reads members of an object of the notation. The first one of a wrong type is the error.
class NotationReader {
 public:
  NotationReader(const NotationJson& json, std::string path)
      : json_(json), path_(std::move(path)) {}

  bool Has(const char* name) const { return json_.is_object() && json_.contains(name); }
  void Read(const char* name, std::string& text) {
    if (!Has(name)) return;
    if (!json_[name].is_string()) return Fail(name, "a text");
    text = json_[name].get<std::string>();
  }
  void Read(const char* name, bool& flag) {
    if (!Has(name)) return;
    if (!json_[name].is_boolean()) return Fail(name, "true or false");
    flag = json_[name].get<bool>();
  }
  template <typename Texts>
  void ReadTexts(const char* name, Texts& texts) {
    if (!Has(name)) return;
    for (const NotationJson& each : json_[name]) {
      if (!json_[name].is_array() || !each.is_string()) return Fail(name, "a list of texts");
      texts.insert(texts.end(), each.get<std::string>());
    }
  }
  void Fail(const char* name, const char* expected) {
    if (status_.ok()) status_ = InvalidArgError(path_, "/", name, ": expected ", expected);
  }
  Status status() const { return status_; }

 private:
  const NotationJson& json_;
  const std::string path_;
  Status status_;
};

Result<MemberNotation> ReadMembers(const NotationJson& json, const std::string& path,
                                   const MarkerOf& marker) {
  MemberNotation members;
  NotationReader reader(json, path);
  reader.Read("begin", members.begin);
  reader.Read("end", members.end);
  reader.Read("separator", members.separator);
  reader.ReadTexts("texts", members.texts);
  reader.Read("all_are_texts", members.all_are_texts);
  if (!reader.Has("kinds") || !json["kinds"].is_array()) reader.Fail("kinds", "a list");
  NEREID_RETURN_IF_ERROR(reader.status());
  if (json["kinds"].size() > kMaxKinds) {
    return InvalidArgError(path, "/kinds: expected at most ", kMaxKinds, ", got ",
                           json["kinds"].size());
  }
  for (const NotationJson& each : json["kinds"]) {
    MemberNotation::Kind kind;
    std::vector<std::string> types;
    NotationReader kind_reader(each, path + "/kinds");
    kind_reader.ReadTexts("types", types);
    kind_reader.Read("begin", kind.begin);
    kind_reader.Read("is_text", kind.is_text);
    if (types.empty()) kind_reader.Fail("types", "a list of types");
    if (kind.begin.empty()) kind_reader.Fail("begin", "a text that is not empty");
    if (kind.is_text && members.end.empty()) {
      kind_reader.Fail("is_text", "false, as members have no end");
    }
    NEREID_RETURN_IF_ERROR(kind_reader.status());
    kind.types = {{"type", types}};
    kind.begin = marker(kind.begin);
    members.kinds.push_back(std::move(kind));
  }
  for (std::string* text : {&members.begin, &members.end, &members.separator}) {
    *text = marker(*text);
  }
  return members;
}

}  // namespace

Result<SchemaNotation> ReadSchemaNotation(const NotationJson& json, const std::string& path,
                                          const MarkerOf& marker) {
  SchemaNotation notation;
  if (!json.is_object()) return InvalidArgError(path, ": expected an object");
  NotationReader reader(json, path);
  reader.Read("quote", notation.quote);
  reader.Read("has_bare_names", notation.has_bare_names);
  reader.Read("has_identifiers", notation.has_identifiers);
  reader.Read("has_python_words", notation.has_python_words);
  reader.Read("has_small_numbers", notation.has_small_numbers);
  reader.ReadTexts("excluded", notation.excluded);
  NEREID_RETURN_IF_ERROR(reader.status());
  // A string does not contain what would end it, however that is spelled.
  if (!notation.quote.empty()) notation.excluded.push_back(notation.quote);
  notation.quote = marker(notation.quote);
  if (reader.Has("members")) {
    NEREID_ASSIGN_OR_RETURN(notation.members,
                            ReadMembers(json["members"], path + "/members", marker));
  }
  return notation;
}

}  // namespace nereid::llm::grammar
