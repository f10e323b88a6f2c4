// See call_form.h.
#include "backends/tokenizer/lib/chat/parsers/call_form.h"

#include <utility>

#include "base/concat.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

// The kinds of values by the text that begins them, behind the name of the argument.
Json KindsOf(const parsers::TaggedFormat& format, const std::string& begin) {
  const Json others = {"null", "boolean", "number", "array", "object"};
  Json kinds = Json::array();
  const auto add = [&](const Json& types, std::string_view type, bool is_text) {
    const std::string tag =
        format.type_begin.empty() ? begin : Concat(format.type_begin, type, "\"", begin);
    kinds.push_back({{"types", types}, {"begin", tag}, {"is_text", is_text}});
  };
  add({"string"}, format.string_type, true);
  // The tag says the type itself, or whether it is a string.
  if (format.string_type == "string") {
    for (const Json& type : others)
      add(Json::array({type}), type.get_ref<const std::string&>(), false);
  } else {
    add(others, "false", false);
  }
  return kinds;
}

}  // namespace

CallForm JsonCallForm(const JsonCallText& text) {
  return {.section_begin = std::string(text.section_begin),
          .call_begin = Concat(text.call_begin, "{\"name\": "),
          .arguments_begin = Concat(", \"", text.arguments, "\": "),
          .call_end = Concat("}", text.call_end),
          .separator = std::string(text.separator),
          .section_end = std::string(text.section_end),
          .quotes_name = true,
          .has_one_call = text.has_one_call};
}

CallForm PythonCallForm(std::string_view begin, std::string_view end) {
  const Json types = {"null", "boolean", "number", "string", "array", "object"};
  const Json kinds = Json::array({{{"types", types}, {"begin", "="}}});
  return {.section_begin = Concat(begin, "["),
          .arguments_begin = "(",
          .call_end = ")",
          .separator = ", ",
          .section_end = Concat("]", end),
          .has_python_name = true,
          .notation = {{"has_identifiers", true},
                       {"has_python_words", true},
                       {"has_small_numbers", true},
                       {"excluded", {"\\/"}},  // an escape that Python does not know
                       {"members", {{"separator", ","}, {"kinds", kinds}}}}};
}

CallForm TaggedCallForm(const parsers::TaggedFormat& format, const TaggedCallText& text) {
  const std::string_view line = text.line, value_line = format.has_value_lines ? "\n" : "";
  const bool has_types = !format.type_begin.empty();
  // A quote that the tag of the name opens is closed behind the name.
  const bool is_open = format.name_begin.ends_with('"') && !format.name_end.starts_with('"');
  std::string value_begin = Concat(format.key_end, format.value_begin.empty() ? "" : line,
                                   format.value_begin, value_line);
  CallForm form{
      .call_begin = std::string(format.name_begin),
      .arguments_begin = Concat(is_open ? "\"" : "", text.name_attributes, format.name_end, line),
      .call_end = format.call_end.empty() ? "" : Concat(format.call_end, line),
      .reasoning_end = std::string(text.reasoning_end),
      .has_one_call = text.has_one_call,
      .takes_text_names = !has_types};
  // A name without a tag stands on the line of the begin.
  const std::string begin = Concat(format.begin, format.name_begin.empty() ? "" : line);
  const std::string end(format.end);
  if (text.has_blocks) {
    form.section_begin = text.before_section;
    form.call_begin.insert(0, begin);
    form.call_end += end;
    form.separator = line;
  } else {
    form.section_begin = Concat(text.before_section, begin);
    form.section_end = end;
  }
  form.notation = {{"has_small_numbers", true},
                   {"excluded", Json::array({format.value_end})},
                   {"members",
                    {{"begin", format.key_begin},
                     {"end", Concat(value_line, format.value_end, line)},
                     {"kinds", KindsOf(format, value_begin)},
                     {"all_are_texts", has_types}}}};
  return form;
}

Json JsonWithout(std::initializer_list<std::string_view> excluded) {
  Json texts = Json::array();
  for (const std::string_view each : excluded) texts.push_back(each);
  return {{"excluded", std::move(texts)}};
}

}  // namespace nereid::tokenizer
