// The whole of a configuration as JSON: a tree while it is worked on, its text once it is only
// shown, which takes less memory. Immutable. Included by config/*.cc alone. [any thread]
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "host/core/config/json_text.h"

namespace nereid::config {

class ConfigForm {
 public:
  explicit ConfigForm(Json tree) : form_(std::move(tree)) {}
  explicit ConfigForm(std::string text) : form_(std::move(text)) {}

  Json Tree() const {
    const auto* tree = std::get_if<Json>(&form_);
    return tree != nullptr ? *tree : Json::parse(std::get<std::string>(form_));
  }
  // Null once there is only the text.
  const Json* tree() const { return std::get_if<Json>(&form_); }
  std::string Text() const {
    const auto* tree = std::get_if<Json>(&form_);
    return tree != nullptr ? CompactText(*tree) : std::get<std::string>(form_);
  }

 private:
  std::variant<Json, std::string> form_;
};

}  // namespace nereid::config
