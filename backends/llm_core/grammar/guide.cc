// See guide.h.
#include "backends/llm_core/grammar/guide.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "backends/llm_core/grammar/matcher.h"
#include "backends/llm_core/grammar/structural_tag.h"
#include "base/json_reader.h"

namespace nereid::llm::grammar {
namespace {

struct NamedType {
  std::string_view name;
  GuideType type;
};
constexpr NamedType kTypes[] = {
    {"json", GuideType::kJson},
    {"json_schema", GuideType::kJsonSchema},
    {"regex", GuideType::kRegex},
    {"ebnf_grammar", GuideType::kEbnf},
    {"structural_tag", GuideType::kStructuralTag},
    {"choice", GuideType::kChoice},
};

constexpr const char* kParameters[] = {"guided_json", "guided_regex", "guided_choice",
                                       "guided_grammar", "response_format"};

Result<std::vector<std::string>> ReadChoices(const std::string& text) {
  NEREID_ASSIGN_OR_RETURN(
      const auto json,
      ReadJson<nlohmann::json>(text, "", {.max_depth = 2, .max_values = 1'000'000}));
  if (!json.is_array() ||
      !std::all_of(json.begin(), json.end(), [](const auto& each) { return each.is_string(); })) {
    return InvalidArgError("expected a JSON list of texts");
  }
  return json.get<std::vector<std::string>>();
}

Result<std::shared_ptr<const Grammar>> Compile(const Guide& guide,
                                               std::shared_ptr<const Vocabulary> vocabulary,
                                               const GrammarOptions& options) {
  switch (guide.type) {
    case GuideType::kJson:
      return Grammar::FromJsonSchema(R"({"type": ["object", "array"]})", std::move(vocabulary),
                                     options);
    case GuideType::kJsonSchema:
      return Grammar::FromJsonSchema(guide.text, std::move(vocabulary), options);
    case GuideType::kRegex:
      return Grammar::FromRegex(guide.text, std::move(vocabulary), options);
    case GuideType::kEbnf:
      return Grammar::FromEbnf(guide.text, std::move(vocabulary), options);
    case GuideType::kStructuralTag:
      return FromStructuralTag(guide.text, std::move(vocabulary), options);
    case GuideType::kChoice:
      break;
  }
  if (guide.text.size() > options.max_text_bytes) {
    return InvalidArgError("the list has ", guide.text.size(), " bytes; at most ",
                           options.max_text_bytes, " are allowed");
  }
  NEREID_ASSIGN_OR_RETURN(std::vector<std::string> choices, ReadChoices(guide.text));
  return Grammar::FromChoices(std::move(choices), std::move(vocabulary), options);
}

Status CheckBeginning(const std::shared_ptr<const Grammar>& grammar) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  matcher.ComputeMask(mask);
  NEREID_RETURN_IF_ERROR(matcher.status());
  if (matcher.CanEnd() || std::any_of(mask.begin(), mask.end(), [](uint32_t w) { return w != 0; }))
    return Status::Ok();
  return InvalidArgError("no token of the model's vocabulary can begin a text of it");
}

}  // namespace

Result<GuideType> ParseGuideType(std::string_view name) {
  std::string names;
  for (const NamedType& each : kTypes) {
    if (each.name == name) return each.type;
    names += StrCat(names.empty() ? "" : ", ", each.name);
  }
  return InvalidArgError("'", name, "', expected one of ", names);
}

std::string_view NameOf(GuideType type) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const NamedType& each) { return each.type == type; })
      ->name;
}

std::span<const char* const> GuideParameters() {
  return kParameters;
}

Result<std::optional<Guide>> ReadGuideParameter(std::string_view name, std::string_view text) {
  if (name != "response_format") {
    const GuideType type = name == "guided_json"     ? GuideType::kJsonSchema
                           : name == "guided_regex"  ? GuideType::kRegex
                           : name == "guided_choice" ? GuideType::kChoice
                                                     : GuideType::kEbnf;
    return std::optional(Guide{type, std::string(text)});
  }
  NEREID_ASSIGN_OR_RETURN(const auto format,
                          ReadJson<nlohmann::ordered_json>(text, "", {.max_depth = 200}));
  const auto type = format.is_object() ? format.find("type") : format.end();
  if (type == format.end() || !type->is_string()) {
    return InvalidArgError("expected an object with a 'type'");
  }
  if (*type == "text") return std::optional<Guide>();
  if (*type == "json_object") {
    return std::optional(Guide{GuideType::kJsonSchema, R"({"type":"object"})"});
  }
  if (*type == "structural_tag") {
    return std::optional(Guide{GuideType::kStructuralTag, std::string(text)});
  }
  if (*type != "json_schema") {
    return InvalidArgError("type: '", type->get<std::string>().substr(0, 40),
                           "', expected text, json_object, json_schema or structural_tag");
  }
  const auto outer = format.find("json_schema");
  if (outer == format.end() || !outer->is_object() || !outer->contains("schema")) {
    return InvalidArgError("json_schema.schema: this field is required");
  }
  return std::optional(Guide{GuideType::kJsonSchema, (*outer)["schema"].dump()});
}

Result<std::shared_ptr<const Grammar>> CompileGuide(const Guide& guide,
                                                    std::shared_ptr<const Vocabulary> vocabulary,
                                                    const GrammarOptions& options) {
  Result<std::shared_ptr<const Grammar>> compiled = Compile(guide, std::move(vocabulary), options);
  Status error = compiled.ok() ? CheckBeginning(*compiled) : compiled.status();
  if (error.ok()) return compiled;
  return InvalidArgError("guided_decoding_guide (", NameOf(guide.type), "): ", error.message());
}

}  // namespace nereid::llm::grammar
