// A private folder that disappears with the process, also where a signal ends the process before
// its destructors run. A process has at most one. [main thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::cli {

class TemporaryFolder {
 public:
  // Made in TMPDIR, else /tmp, for this user only.
  static Result<TemporaryFolder> Create();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

  // Call it when the contents are complete: from now on, SetExitAction's action removes them. Later
  // files would keep the folder from being removed by it.
  void RemoveAtExit() const;

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace nereid::cli
