// The filters, tests, methods and functions of the template language, by name. [any thread]
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/interpreter.h"
#include "backends/tokenizer/lib/chat/jinja/objects.h"
#include "backends/tokenizer/lib/chat/jinja/value.h"

namespace nereid::tokenizer::jinja {

using FilterFunction = Result<Value> (*)(Interpreter& interpreter, const Value& input,
                                         Arguments& arguments);
using TestFunction = Result<bool> (*)(Interpreter& interpreter, const Value& input,
                                      Arguments& arguments);

// Null if there is none of this name.
FilterFunction FindFilter(std::string_view name);
FilterFunction FindTextFilter(std::string_view name);  // only those of texts and numbers
TestFunction FindTest(std::string_view name);
// A global function, such as `range`.
const Value* FindFunction(std::string_view name);

// The method or attribute `name` of `object`, such as "abc".upper; nothing if there is none.
// INVALID_ARG if it would change the object, which templates may not do.
Result<std::optional<Value>> FindMethod(const Value& object, std::string_view name);

// The arguments of a call in the order of `names`; nothing where an argument is missing.
// INVALID_ARG if there are too many, if one is unknown or given twice, or if one of the first
// `num_required` is missing.
using BoundArguments = std::vector<std::optional<Value>>;
Result<BoundArguments> Bind(std::string_view function, Arguments& arguments,
                            std::initializer_list<std::string_view> names, size_t num_required = 0);
// The value of an argument of this type; `fallback` if it is missing or None.
Result<int64_t> IntegerOf(std::string_view function, const std::optional<Value>& argument,
                          int64_t fallback);
// As str() makes it.
MarkedText TextOf(const std::optional<Value>& argument, std::string_view fallback);
bool BoolOf(const std::optional<Value>& argument, bool fallback);

}  // namespace nereid::tokenizer::jinja
