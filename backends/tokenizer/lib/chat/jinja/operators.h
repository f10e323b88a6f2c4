// Operators of the template language, with Python's semantics. Errors are INVALID_ARG and name the
// types. [one thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "backends/tokenizer/lib/chat/jinja/interpreter.h"
#include "backends/tokenizer/lib/chat/jinja/value.h"

namespace nereid::tokenizer::jinja {

// `op` is one of + - * / // % **.
Result<Value> Binary(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
Result<Value> Negate(const Value& value);
Result<Value> Plus(const Value& value);
// `op` is one of == != < <= > >= in, not in.
Result<bool> Compare(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);
// Whether `item` is in `container`.
Result<bool> Contains(Interpreter& interpreter, const Value& container, const Value& item);
// value[begin:end:step]; nothing means the default.
Result<Value> Slice(Interpreter& interpreter, const Value& value, std::optional<int64_t> begin,
                    std::optional<int64_t> end, std::optional<int64_t> step);

// Text as a sequence of characters.
size_t CountChars(std::string_view text);
// The position in bytes of the character `index`, which is at most their number.
size_t ByteOffset(std::string_view text, size_t index);
// Python's % of text: printf's conversions.
Result<Value> FormatPercent(Interpreter& interpreter, const MarkedText& format,
                            const Value& values);
// `text` with the characters that HTML reserves replaced.
MarkedText EscapeHtml(const MarkedText& text);

}  // namespace nereid::tokenizer::jinja
