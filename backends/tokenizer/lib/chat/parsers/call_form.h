/// \file
/// How a family writes calls whose arguments are JSON, for grammars that force a model to call.
#pragma once

#include <string_view>

namespace nereid::tokenizer {

/// The texts around the names and the arguments of the calls of one answer:
/// `section_begin`, then calls with `separator` between them, then `section_end`. A call is
/// `call_begin`, the function's name, `arguments_begin`, the arguments, `call_end`.
struct CallForm {
  std::string_view section_begin = {};
  std::string_view call_begin = {};
  std::string_view arguments_begin = {};
  std::string_view call_end = {};
  std::string_view separator = {};
  std::string_view section_end = {};
  bool quotes_name = false;   ///< the name is a JSON string
  bool has_one_call = false;  ///< an answer has no second call
};

}  // namespace nereid::tokenizer
