/// \file
/// How a family writes calls, for grammars that force a model to call. The forms of most families
/// are compositions of a few: calls in JSON, in Python, or with a tag for each argument.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer {

/// The texts around the names and the arguments of the calls of one answer:
/// `section_begin`, then calls with `separator` between them, then `section_end`. A call is
/// `call_begin`, the function's name, `arguments_begin`, the arguments, `call_end`.
struct CallForm {
  std::string section_begin = {};
  std::string call_begin = {};
  std::string arguments_begin = {};
  std::string call_end = {};
  std::string separator = {};
  std::string section_end = {};
  /// Ends reasoning that the prompt has begun, if that is not the family's own marker.
  std::string reasoning_end = {};
  bool quotes_name = false;       ///< the name is a JSON string
  bool has_python_name = false;   ///< the name is read as one of Python, with dots and hyphens
  bool has_one_call = false;      ///< an answer has no second call
  bool takes_text_names = false;  ///< the notation lists the arguments that are always texts
  /// How the arguments are written, as the notation of a structural tag. Null: a JSON object.
  nlohmann::ordered_json notation = {};
};

/// Calls that are JSON objects with a name and arguments.
struct JsonCallText {
  std::string_view section_begin = {}, call_begin = {}, call_end = {}, separator = {},
                   section_end = {};
  std::string_view arguments = "arguments";  ///< the name of this member
  bool has_one_call = false;
};
CallForm JsonCallForm(const JsonCallText& text);

/// Python calls in a list, behind `begin` and before `end`.
CallForm PythonCallForm(std::string_view begin = "", std::string_view end = "");

/// What a model writes that has tags for each argument, and a parser need not know.
struct TaggedCallText {
  std::string_view line = "\n";           ///< between the parts
  bool has_blocks = false;                ///< each call has a begin and an end of its own
  std::string_view name_attributes = {};  ///< in the tag of a name, behind it
  std::string_view before_section = {};   ///< before the first call
  std::string_view reasoning_end = {};    ///< see CallForm
  bool has_one_call = false;              ///< see CallForm
};
CallForm TaggedCallForm(const parsers::TaggedFormat& format, const TaggedCallText& text);

/// The notation of a JSON object whose strings do not contain these texts.
nlohmann::ordered_json JsonWithout(std::initializer_list<std::string_view> excluded);

}  // namespace nereid::tokenizer
