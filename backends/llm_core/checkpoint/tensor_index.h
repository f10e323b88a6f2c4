// model.safetensors.index.json: which shard of a checkpoint holds which tensor. Value type.
// [any thread]
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::llm {

struct TensorIndex {
  std::map<std::string, std::string> file_of;  // by tensor

  // Every file once.
  std::set<std::string> files() const;
};

// Of the file's text. No file name leaves the directory; INVALID_ARG names every tensor (512 at
// most) whose file is not such a name. `path` stands in messages.
Result<TensorIndex> ParseTensorIndex(std::string_view text, std::string_view path);

}  // namespace nereid::llm
