// A directory below the system's temporary directory, removed with its content by the destructor.
// Stores the files of a load call. Move-only. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::core {

class TempFolder {
 public:
  static Result<TempFolder> Create();
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&& other) noexcept;
  ~TempFolder();

  const std::string& path() const { return path_; }
  // `relative` is a path below the directory, such as "m/1/model.py". INVALID_ARG if it would leave
  // the directory.
  Status Write(const std::string& relative, std::string_view content) const;

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace nereid::core
