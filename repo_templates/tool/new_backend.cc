#include "repo_templates/tool/new_backend.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/file_content.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The name becomes part of a C++ class and of a library's file name.
Status CheckBackendName(const std::string& name) {
  const bool is_valid = !name.empty() && name.size() <= 64 && IsLetter(name.front()) &&
                        std::all_of(name.begin(), name.end(), [](char c) {
                          return IsLetter(c) || (c >= '0' && c <= '9') || c == '_';
                        });
  if (is_valid) return {};
  return InvalidArgError("'", name,
                         "' cannot be the name of a backend: expected 1 to 64 letters, digits and "
                         "'_', of which the first is a letter");
}

// "image_resizer" -> "ImageResizer".
std::string CamelCase(const std::string& name) {
  std::string camel;
  bool starts_word = true;
  for (const char c : name) {
    if (c != '_') camel += starts_word && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    starts_word = c == '_';
  }
  return camel;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string Renamed(const std::string& text, const std::string& name) {
  std::string renamed = Replaced(text, "my_backend", name);
  for (const char* kind : {"Model", "Instance"}) {
    renamed = Replaced(std::move(renamed), StrCat("My", kind), CamelCase(name) + kind);
  }
  return renamed;
}

Status CopyFiles(const NewBackendOptions& options) {
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) return InternalError("'", options.out, "': ", error.message());
  size_t num_files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(options.source, error)) {
    if (!entry.is_regular_file(error)) continue;
    NEREID_ASSIGN_OR_RETURN(const std::string text,
                            nereid::ReadFile(entry.path().string(), kMaxTextFileBytes));
    const fs::path target =
        fs::path(options.out) / Renamed(entry.path().filename().string(), options.name);
    std::ofstream file(target, std::ios::binary);
    file << Renamed(text, options.name);
    file.close();
    if (!file) return InternalError("'", target.string(), "': cannot be written");
    ++num_files;
  }
  if (num_files > 0) return {};
  return NotFoundError("'", options.source, "': holds no sample backend; name its folder with ",
                       "--templates");
}

}  // namespace

Status CopyBackendTemplate(const NewBackendOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckBackendName(options.name));
  std::error_code ignored;
  const bool existed = fs::exists(options.out, ignored);
  if (existed && !(fs::is_directory(options.out, ignored) && fs::is_empty(options.out, ignored))) {
    return AlreadyExistsError("'", options.out, "': exists already and is not an empty folder");
  }
  Status status = CopyFiles(options);
  if (status.ok()) return status;
  for (const auto& entry : fs::directory_iterator(options.out, ignored)) {
    fs::remove_all(entry.path(), ignored);
  }
  if (!existed) fs::remove(options.out, ignored);
  return status;
}

}  // namespace nereid::repo
