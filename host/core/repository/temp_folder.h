// A folder below the system's temporary directory, removed with its content on destruction. Holds
// the files that a load call brought along. Move-only. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

class TempFolder {
 public:
  static Result<TempFolder> Create();
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&& other) noexcept;
  ~TempFolder();

  const std::string& path() const { return path_; }
  // `relative` is a plain path below the folder, as "m/1/model.py"; INVALID_ARG when it would leave
  // it.
  Status Write(const std::string& relative, std::string_view content) const;

 private:
  explicit TempFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace nereid
