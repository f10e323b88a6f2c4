// The small bodies of the repository extension, which may all be empty. [any thread]
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::http {

// A file that the model shall have beside, or instead of, those of the repository.
struct LoadFile {
  std::string name;  // "file:<path>"
  std::string bytes;
};

// What a load says beside the model's name.
struct LoadBody {
  std::optional<std::string> config;  // JSON, instead of the model's config.pbtxt
  std::vector<LoadFile> files;
};

Result<LoadBody> ReadLoadBody(std::string_view body, size_t max_depth);
// Whether the models that an ensemble is made of shall go with it.
Result<bool> ReadUnloadBody(std::string_view body, size_t max_depth);
// Whether models that are ready are asked for alone.
Result<bool> ReadIndexBody(std::string_view body, size_t max_depth);

}  // namespace nereid::http
