// Finds where each field of a config.pbtxt is written, and placeholders that a template left
// unfilled. It reads the text's outline only and never fails: the parser judges the text. Included
// by config/*.cc alone. [any thread]
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>
#include <vector>

namespace nereid::config {

struct KeyPosition {
  std::string path;  // "instance_group[0].count": an index on repeated fields
  int line = 0;      // 1-based
  int column = 0;    // 1-based
};

struct Placeholder {
  std::string name;   // "${engine_dir}"
  KeyPosition where;  // the field whose value it stands for
};

struct KeyIndex {
  std::vector<KeyPosition> keys;  // in the order of the text
  std::vector<Placeholder>
      placeholders;  // outside of strings, where no value of any type can be meant

  // The last key that starts at or before the place; null in front of the first.
  // With `name`: the last one of that field.
  const KeyPosition* Before(int line, int column, std::string_view name = {}) const;
  // The place of `path` or, if it is not written, of its nearest enclosing field; null if none is.
  const KeyPosition* Nearest(std::string_view path) const;
};

KeyIndex IndexKeys(std::string_view text, const google::protobuf::Descriptor& type);

}  // namespace nereid::config
