// Finds the position of each field in a config.pbtxt, and placeholders of a template that were not
// filled in. It scans only the structure of the text and never fails; the parser reports syntax
// errors. Included only by config/*.cc. [any thread]
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace nereid::core::config {

struct KeyPosition {
  std::string path;  // such as "instance_group[0].count"; repeated fields have an index
  int line = 0;      // 1-based
  int column = 0;    // 1-based
};

struct Placeholder {
  std::string name;      // such as "${engine_dir}"
  KeyPosition position;  // of the placeholder, with the path of its field
};

struct KeyIndex {
  std::vector<KeyPosition> keys;  // in the order of the text
  // Only placeholders outside of strings: there they cannot be a valid value.
  std::vector<Placeholder> placeholders;

  // The last key that starts at or before this position; null before the first key. With `name`,
  // only fields of that name are considered.
  const KeyPosition* Before(int line, int column, std::string_view name = {}) const;
  // The position of `path` or, if the text does not contain it, of the nearest enclosing field.
  // Null if there is neither.
  const KeyPosition* Nearest(std::string_view path) const;
};

KeyIndex IndexKeys(std::string_view text, const google::protobuf::Descriptor& type);

}  // namespace nereid::core::config
