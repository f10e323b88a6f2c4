#include "repository/scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>

#include "repository/model_name.h"

namespace nereid {
namespace {

namespace fs = std::filesystem;

bool IsModelFolder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored) && entry.path().filename().string().front() != '.';
}

// Where the entry is a version's folder.
void AddVersion(const fs::directory_entry& entry, std::vector<int64_t>* versions) {
  const std::string name = entry.path().filename().string();
  int64_t version = 0;
  const auto [last, failure] = std::from_chars(name.data(), name.data() + name.size(), version);
  std::error_code ignored;
  if (failure != std::errc() || last != name.data() + name.size() || version < 0 ||
      (name.front() == '0' && name.size() > 1) || !entry.is_directory(ignored)) {
    return;
  }
  versions->push_back(version);
}

Status ListingError(std::string_view what, const std::string& path, const std::error_code& error) {
  return NotFoundError(what, " '", path, "': cannot be listed: ", error.message());
}

std::string ServedName(const Repository& repository, const std::string& folder) {
  const auto it = repository.name_mapping.find(folder);
  const std::string& name = it == repository.name_mapping.end() ? folder : it->second;
  return repository.own_namespace ? QualifiedName(repository.path, name) : name;
}

// 0 when there is no such entry.
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

std::error_code WalkModelFolder(const std::string& model_path, const std::string& config_path,
                                FolderScan* scan) {
  Fingerprints& sums = scan->prints;  // of entries, so that the order of listing does not matter
  sums.all = EntryHash(model_path);
  std::error_code error;
  constexpr auto kSkipForbidden = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(model_path, kSkipForbidden, error), end;
       !error && it != end; it.increment(error)) {
    // What interpreters leave behind while the model serves is no change of the model.
    if (it->path().filename() == "__pycache__") {
      it.disable_recursion_pending();
      continue;
    }
    if (it.depth() == 0) AddVersion(*it, &scan->versions);
    std::error_code ignored;
    if (it->is_directory(ignored)) continue;
    const uint64_t hash = EntryHash(it->path());
    sums.all += hash;
    if (it->path() != config_path) sums.files += hash;
  }
  return error;
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

Result<std::map<std::string, std::vector<ScannedModel>>> ScanRepositories(
    const std::vector<Repository>& repositories) {
  std::map<std::string, std::vector<ScannedModel>> models;
  for (const Repository& repository : repositories) {
    std::error_code error;
    fs::directory_iterator it(repository.path, error), end;
    for (; !error && it != end; it.increment(error)) {
      if (!IsModelFolder(*it)) continue;
      const std::string name = ServedName(repository, it->path().filename().string());
      models[name].push_back({name, it->path().string()});
    }
    if (error) return ListingError("model repository", repository.path, error);
  }
  return models;
}

std::vector<ScannedModel> FindModel(const std::vector<Repository>& repositories,
                                    const std::string& name) {
  std::vector<ScannedModel> found;
  std::error_code ignored;
  for (const Repository& repository : repositories) {
    const std::string own(repository.own_namespace ? PlainName(name) : std::string_view(name));
    if (repository.own_namespace && QualifiedName(repository.path, own) != name) continue;
    // A name is one path segment; anything else would leave the repository.
    if (own.empty() || own.front() == '.' || IsQualified(own)) continue;
    for (const auto& [folder, served] : repository.name_mapping) {
      const fs::path path = fs::path(repository.path) / folder;
      if (served == own && fs::is_directory(path, ignored)) found.push_back({name, path.string()});
    }
    const fs::path path = fs::path(repository.path) / own;
    if (repository.name_mapping.count(own) == 0 && fs::is_directory(path, ignored)) {
      found.push_back({name, path.string()});
    }
  }
  return found;
}

Result<std::vector<int64_t>> ScanVersions(const std::string& model_path) {
  std::vector<int64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(model_path, error), end; !error && it != end;
       it.increment(error)) {
    AddVersion(*it, &versions);
  }
  if (error) return ListingError("model folder", model_path, error);
  std::sort(versions.begin(), versions.end());
  return versions;
}

Result<FolderScan> ScanModelFolder(const std::string& model_path, const std::string& config_path) {
  constexpr int kMostWalks = 10;
  FolderScan scan;
  std::error_code error;
  // A folder below may vanish between its listing and its visit, which ends the walk.
  for (int i = 0; i < kMostWalks; ++i) {
    scan = FolderScan();
    error = WalkModelFolder(model_path, config_path, &scan);
    if (error != std::errc::no_such_file_or_directory) break;
  }
  if (error) return ListingError("model folder", model_path, error);
  std::sort(scan.versions.begin(), scan.versions.end());
  return scan;
}

}  // namespace nereid
