// Python's literals and calls as JSON: the arguments of models that write their calls in Python.
// Nesting is limited. [any thread]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nereid::tokenizer::parsers {

// Converts one literal: numbers, strings, True, False, None, lists, tuples and dicts whose keys are
// strings; JSON's true, false and null are accepted, too. False if `text` is anything else.
bool PythonLiteralToJson(std::string_view text, std::string& json);

// Converts the inside of a call's parentheses, keyword arguments only, to a JSON object. False if
// it is anything else.
bool PythonArgumentsToJson(std::string_view text, std::string& json);

// Finds the parenthesis that closes a call, by quotes and brackets alone. Begins behind the opening
// one.
class PythonCallScanner {
 public:
  // Returns how many bytes at the beginning of `text` belong to the call, the closing parenthesis
  // included.
  size_t Scan(std::string_view text);
  bool is_done() const { return depth_ == 0; }

 private:
  size_t depth_ = 1;
  char quote_ = 0;  // of the open string; 0: outside of strings
  bool is_escape_ = false;
};

}  // namespace nereid::tokenizer::parsers
