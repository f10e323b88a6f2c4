// A complete model configuration as JSON: a tree while the configuration is being processed, and
// compact text, which takes less memory, once it is only shown. Immutable. Included only by
// config/*.cc. [any thread]
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "base/json_reader.h"
#include "host/core/config/proto_json.h"

namespace nereid::core::config {

// Formats a tree as compact JSON with the same result as the tree's own dump(), in a fifth of the
// time. Bytes that are not UTF-8 become U+FFFD.
std::string CompactText(const Json& json);

class ConfigDocument {
 public:
  explicit ConfigDocument(Json tree) : value_(std::move(tree)) {}
  explicit ConfigDocument(std::string text) : value_(std::move(text)) {}

  Json Tree() const {
    const auto* tree = std::get_if<Json>(&value_);
    if (tree != nullptr) return *tree;
    // The text is that of a tree that was in the limits, with defaults added.
    constexpr JsonLimits kOwnText{.max_bytes = SIZE_MAX, .max_depth = 64, .max_values = SIZE_MAX};
    return ReadJson<Json>(std::get<std::string>(value_), "", kOwnText).value();
  }
  // Null if the document is stored as text.
  const Json* tree() const { return std::get_if<Json>(&value_); }
  std::string Text() const {
    const auto* tree = std::get_if<Json>(&value_);
    return tree != nullptr ? CompactText(*tree) : std::get<std::string>(value_);
  }

 private:
  std::variant<Json, std::string> value_;
};

}  // namespace nereid::core::config
