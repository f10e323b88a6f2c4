#include "host/cli/temporary_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "host/process_signals.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

// Files before the folders that contain them. A signal handler reads the list, so it changes only
// while no action is set.
std::vector<std::string>& PathsToRemove() {
  static std::vector<std::string>& paths = *new std::vector<std::string>;
  return paths;
}

// Makes only async-signal-safe calls.
void RemovePaths() {
  for (const std::string& path : PathsToRemove()) {
    if (unlink(path.c_str()) != 0) (void)rmdir(path.c_str());
  }
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::Create() {
  const char* const parent = std::getenv("TMPDIR");
  std::string path =
      StrCat(parent == nullptr || *parent == '\0' ? "/tmp" : parent, "/nereid-serve-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return InternalError("'", path, "': cannot be made: ", std::strerror(errno));
  }
  TemporaryFolder folder(path);
  folder.RemoveAtExit();
  return folder;
}

void TemporaryFolder::RemoveAtExit() const {
  SetExitAction(nullptr);
  std::vector<std::string>& paths = PathsToRemove();
  paths.clear();
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(path_, error)) {
    paths.insert(paths.begin(), entry.path().string());
  }
  paths.push_back(path_);
  SetExitAction(&RemovePaths);
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  SetExitAction(nullptr);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace nereid::cli
