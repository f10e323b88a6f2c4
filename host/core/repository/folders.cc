#include "host/core/repository/folders.h"

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "host/core/handle/error.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

bool IsModelFolder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored) && entry.path().filename().string().front() != '.';
}

// Subdirectories of a model that have another meaning.
bool IsReservedName(std::string_view name) {
  return name.front() == '.' || name == "configs" || name == "warmup" || name == "initial_state" ||
         name == "__pycache__";
}

// Adds a version directory to `folders` and returns its number; nullopt for other entries.
std::optional<int64_t> AddVersion(const fs::directory_entry& entry, VersionFolders* folders) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (IsReservedName(name) || !entry.is_directory(ignored)) return std::nullopt;
  int64_t version = 0;
  const auto [last, failure] = std::from_chars(name.data(), name.data() + name.size(), version);
  if (failure != std::errc() || last != name.data() + name.size() || version < 0) {
    folders->notes.push_back(
        StrCat("ignore version directory '", name, "' which fails to convert to integral number"));
  } else if (name.front() == '0' && name.size() > 1) {
    folders->notes.push_back(StrCat("ignore version directory '", name,
                                    "' which contains leading zeros in its directory name"));
  } else {
    folders->versions.push_back(version);
    return version;
  }
  return std::nullopt;
}

void Sort(VersionFolders* folders) {
  std::sort(folders->versions.begin(), folders->versions.end());
  std::sort(folders->notes.begin(), folders->notes.end());
}

Status ListingError(std::string_view what, const std::string& path, const std::error_code& error) {
  return InternalError(what, " '", path, "': cannot be listed: ", error.message());
}

std::vector<std::string> ServedNames(const Repository& repository, const std::string& folder) {
  std::vector<std::string> names;
  const auto [first, last] = repository.name_mapping.equal_range(folder);
  for (auto it = first; it != last; ++it) names.push_back(it->second);
  if (names.empty()) names.push_back(folder);
  if (!repository.own_namespace) return names;
  for (std::string& name : names) name = QualifiedName(repository.path, name);
  return names;
}

// Fingerprint of a file or directory from path, modification time and size; 0 if it does not exist.
uint64_t EntryHash(const fs::path& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return 0;
  uint64_t hash = std::hash<std::string>()(path.string());
  for (const uint64_t part :
       {static_cast<uint64_t>(info.st_mtim.tv_sec), static_cast<uint64_t>(info.st_mtim.tv_nsec),
        S_ISDIR(info.st_mode) ? 0 : static_cast<uint64_t>(info.st_size)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// Fingerprint of a symbolic link to a directory: the target's path and modification time. The link
// is not followed.
uint64_t LinkedFolderHash(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  return EntryHash(path) ^ std::hash<std::string>()(target.string());
}

// Returns the partial fingerprint for `entry` of the model's directory and everything below it;
// null if only `all` counts it.
uint64_t* SumOf(const fs::directory_entry& entry, const std::string& config_path,
                FolderScan* scan) {
  const std::optional<int64_t> version = AddVersion(entry, &scan->folders);
  if (version.has_value()) return &scan->fingerprints.versions[*version];
  const std::string path = entry.path().string();
  const bool holds_config = config_path == path || config_path.starts_with(path + "/");
  return holds_config ? nullptr : &scan->fingerprints.shared;
}

std::error_code WalkModelFolder(const std::string& model_path, const std::string& config_path,
                                FolderScan* scan) {
  Fingerprints& sums =
      scan->fingerprints;    // sums over entries, so that the listing order does not matter
  uint64_t* part = nullptr;  // the partial fingerprint of the current top-level entry
  sums.all = EntryHash(model_path);
  std::error_code error;
  constexpr auto kSkipForbidden = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(model_path, kSkipForbidden, error), end;
       !error && it != end; it.increment(error)) {
    // Files that a Python interpreter writes while the model serves are no change of the model.
    if (it->path().filename() == "__pycache__") {
      it.disable_recursion_pending();
      continue;
    }
    if (it.depth() == 0) part = SumOf(*it, config_path, scan);
    std::error_code ignored;
    const bool is_folder = it->is_directory(ignored);
    if (is_folder && !it->is_symlink(ignored)) continue;
    const uint64_t hash = is_folder ? LinkedFolderHash(it->path()) : EntryHash(it->path());
    sums.all += hash;
    if (part != nullptr) *part += hash;
  }
  return error;
}

bool Maps(const Repository& repository, const std::string& name) {
  return std::any_of(repository.name_mapping.begin(), repository.name_mapping.end(),
                     [&](const auto& mapping) { return mapping.second == name; });
}

bool IsPlain(const fs::path& path) {
  if (path.empty() || path.is_absolute() || !path.has_filename()) return false;
  for (const fs::path& part : path) {
    if (part == ".." || part == ".") return false;
  }
  return true;
}

}  // namespace

Status CheckIsLocal(const std::string& path) {
  for (const std::string_view scheme : {"s3://", "gs://", "as://"}) {
    if (!path.starts_with(scheme)) continue;
    return UnsupportedError("model repository '", path, "': ", scheme,
                            " file-system not supported, only local folders are");
  }
  return Status::Ok();
}

Result<ScannedModels> ScanRepositories(const std::vector<Repository>& repositories) {
  ScannedModels models;
  for (const Repository& repository : repositories) {
    std::error_code error;
    fs::directory_iterator it(repository.path, error), end;
    for (; !error && it != end; it.increment(error)) {
      if (!IsModelFolder(*it)) continue;
      for (const std::string& name : ServedNames(repository, it->path().filename().string())) {
        models[name].push_back({name, it->path().string()});
      }
    }
    if (error) return ListingError("model repository", repository.path, error);
  }
  return models;
}

std::vector<ScannedModel> FindModel(const std::vector<Repository>& repositories,
                                    const std::string& name) {
  std::vector<ScannedModel> mapped, plain;
  std::error_code ignored;
  for (const Repository& repository : repositories) {
    const std::string own(repository.own_namespace ? PlainName(name) : std::string_view(name));
    if (repository.own_namespace && QualifiedName(repository.path, own) != name) continue;
    // A name must be one path segment; otherwise it could leave the repository.
    if (own.empty() || own.front() == '.' || IsQualified(own)) continue;
    for (const auto& [folder, served] : repository.name_mapping) {
      const fs::path path = fs::path(repository.path) / folder;
      if (served == own && fs::is_directory(path, ignored)) mapped.push_back({name, path.string()});
    }
    if (repository.name_mapping.count(own) > 0) continue;
    const fs::path path = fs::path(repository.path) / own;
    if (fs::is_directory(path, ignored)) plain.push_back({name, path.string()});
  }
  // A mapped name takes precedence over a directory of that name.
  return mapped.empty() ? plain : mapped;
}

Result<VersionFolders> ScanVersions(const std::string& model_path) {
  VersionFolders folders;
  std::error_code error;
  for (fs::directory_iterator it(model_path, error), end; !error && it != end;
       it.increment(error)) {
    AddVersion(*it, &folders);
  }
  if (error) return ListingError("model folder", model_path, error);
  Sort(&folders);
  return folders;
}

Result<FolderScan> ScanModelFolder(const std::string& model_path, const std::string& config_path) {
  constexpr int kMostWalks = 10;
  FolderScan scan;
  std::error_code error;
  // A subdirectory may be removed between its listing and its visit, which ends the walk: retry.
  for (int i = 0; i < kMostWalks; ++i) {
    scan = FolderScan();
    error = WalkModelFolder(model_path, config_path, &scan);
    if (error != std::errc::no_such_file_or_directory) break;
  }
  if (error) return ListingError("model folder", model_path, error);
  Sort(&scan.folders);
  return scan;
}

std::vector<Repository> RepositoryList::All() const {
  std::lock_guard lock(mutex_);
  return repositories_;
}

bool RepositoryList::HasNamespaces() const {
  std::lock_guard lock(mutex_);
  return std::any_of(repositories_.begin(), repositories_.end(),
                     [](const Repository& repository) { return repository.own_namespace; });
}

Status RepositoryList::Register(Repository repository) {
  NEREID_RETURN_IF_ERROR(CheckIsLocal(repository.path));
  std::error_code ignored;
  if (!std::filesystem::is_directory(repository.path, ignored)) {
    return InvalidArgError("failed to register '", repository.path, "', repository not found");
  }
  std::lock_guard lock(mutex_);
  for (const Repository& other : repositories_) {
    if (other.path == repository.path) {
      return AlreadyExistsError("model repository '", repository.path,
                                "' has already been registered");
    }
    for (const auto& [folder, served] : repository.name_mapping) {
      if (repository.own_namespace || !Maps(other, served)) continue;
      return AlreadyExistsError("failed to register '", repository.path,
                                "', there is a conflicting mapping for '", served, "' in '",
                                other.path, "'");
    }
  }
  repositories_.push_back(std::move(repository));
  return Status::Ok();
}

Status RepositoryList::Unregister(const std::string& path) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(repositories_.begin(), repositories_.end(),
                               [&](const Repository& other) { return other.path == path; });
  if (it == repositories_.end()) {
    return InvalidArgError("failed to unregister '", path, "', repository not found");
  }
  repositories_.erase(it);
  return Status::Ok();
}

bool IsEmptyFolder(const std::string& path) {
  std::error_code error;
  const bool is_empty = fs::is_empty(path, error);
  return is_empty && !error;
}

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
