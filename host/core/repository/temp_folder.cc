#include "host/core/repository/temp_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

bool IsPlain(const fs::path& path) {
  if (path.empty() || path.is_absolute() || !path.has_filename()) return false;
  for (const fs::path& part : path) {
    if (part == ".." || part == ".") return false;
  }
  return true;
}

}  // namespace

Result<TempFolder> TempFolder::Create() {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "nereid-model-XXXXXX").string();
  if (error || ::mkdtemp(path.data()) == nullptr) {
    return InternalError("cannot make a folder in the temporary directory: ", std::strerror(errno));
  }
  return TempFolder(std::move(path));
}

TempFolder::TempFolder(TempFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempFolder& TempFolder::operator=(TempFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Status TempFolder::Write(const std::string& relative, std::string_view content) const {
  if (!IsPlain(relative) || relative.find("//") != std::string::npos) {
    return InvalidArgError("file '", relative, "': expected a path inside the model's folder");
  }
  const fs::path target = fs::path(path_) / relative;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  std::ofstream file(target, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (error || !file.flush()) return InternalError("file '", relative, "': cannot be written");
  return Status::Ok();
}

}  // namespace nereid::core
