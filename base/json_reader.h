// Reads JSON texts that come from files and clients. All JSON that becomes a tree goes through this
// reader, because deep trees overflow the stack: copying, writing and comparing a tree recurse. A
// text outside of the limits is refused before any of it becomes a tree. [any thread]
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  // Levels of nested arrays and objects; {"a": [1]} has two.
  size_t max_depth = 64;
  // Elements and members of all arrays and objects together. Each takes about a hundred bytes of
  // memory, up to fifty times its size in the text.
  size_t max_values = size_t{4} << 20;
};

// Compares the text with the limits in one pass, without recursion or allocation. It need not be
// valid JSON. INVALID_ARG names the line, the outermost field, the value and the limit.
Status CheckJsonLimits(std::string_view text, const JsonLimits& limits = {});

// Whether `text` is JSON within the limits, without reading it into a tree. Errors as ReadJson.
Status CheckJson(std::string_view text, std::string_view name, const JsonLimits& limits = {});

// The 1-based line of a byte of `text`.
size_t LineOfByte(std::string_view text, size_t byte);

// Reads a whole text. INVALID_ARG names `name` (such as the file; may be empty), the line, and what
// is wrong; see CheckJsonLimits. The last value of a repeated name counts.
// `Json` is nlohmann::json or nlohmann::ordered_json in all functions of this header.
template <typename Json>
Result<Json> ReadJson(std::string_view text, std::string_view name, const JsonLimits& limits = {});

// ReadJson of a text that must be an object.
template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name,
                            const JsonLimits& limits = {});

// ReadJsonObject that shows each value to `callback` while it reads, as nlohmann's parse does. A
// value for which `callback` returns false does not become part of the tree.
template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name, const JsonLimits& limits,
                            const typename Json::parser_callback_t& callback);

// The value as JSON for an error text, cut off after about sixty bytes. `json` may have any size.
// Bytes that are not UTF-8 become U+FFFD.
template <typename Json>
std::string ShowJson(const Json& json);

// `text` for an error text, cut off after two hundred bytes.
std::string ShowText(std::string_view text);

}  // namespace nereid

// json_reader.cc holds the code of both types, so that not every file that includes this header
// compiles it again.
extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
