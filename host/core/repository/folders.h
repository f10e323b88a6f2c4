// Model repositories on disk: the names of models, their directories and versions, and fingerprints
// of changes. Lists directories, never reads files. A listing that fails half-way is INTERNAL with
// the directory's name, never a shorter list. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid::core {

// ---- the key under which the host stores a model ----
// Without model namespacing the key is the model's name. With namespacing it is the qualified name
// "<repository>/<name>". Model names contain no slash, so the last slash separates the two.

inline std::string QualifiedName(std::string_view space, std::string_view name) {
  while (space.size() > 1 && space.back() == '/') space.remove_suffix(1);
  std::string key(space);
  key += '/';
  key += name;
  return key;
}

inline bool IsQualified(std::string_view key) {
  return key.find('/') != std::string_view::npos;
}

// Returns the plain model name.
inline std::string_view PlainName(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

// Returns the repository; empty without model namespacing.
inline std::string_view NamespaceOf(std::string_view key) {
  return key.substr(0, IsQualified(key) ? key.rfind('/') : 0);
}

// ---- repositories and their models ----

struct Repository {
  std::string path;
  // Directory name -> name under which its model is served instead; may have several names.
  std::multimap<std::string, std::string> name_mapping;
  // Its models are stored under qualified names, because other repositories may have
  // models of the same names.
  bool own_namespace = false;
};

struct ScannedModel {
  std::string name;  // the key of the model
  std::string path;  // <repository>/<directory>
};

// The directories of each name. A name with several directories is ambiguous.
using ScannedModels = std::map<std::string, std::vector<ScannedModel>>;

// UNSUPPORTED if the repository is in cloud storage (s3:// and the like); names the scheme.
Status CheckIsLocal(const std::string& path);

// All model directories of the repositories, by model name.
Result<ScannedModels> ScanRepositories(const std::vector<Repository>& repositories);

// The directories that serve `name`; empty if there are none.
std::vector<ScannedModel> FindModel(const std::vector<Repository>& repositories,
                                    const std::string& name);

struct VersionFolders {
  std::vector<int64_t> versions;   // ascending; from decimal names without leading zeros
  std::vector<std::string> notes;  // why other subdirectories are not versions
};
Result<VersionFolders> ScanVersions(const std::string& model_path);

// Fingerprints of a model directory. They change when a file below it is added, removed or written.
// For a symbolic link to a directory, they change when the link or the target's listing changes.
struct Fingerprints {
  uint64_t all = 0;
  uint64_t shared = 0;                   // of entries that are neither configuration nor version
  std::map<int64_t, uint64_t> versions;  // of each version's directory
};

// The result of one walk through a model's directory.
struct FolderScan {
  Fingerprints fingerprints;
  VersionFolders folders;
};
// `config_path`: path of the configuration in the directory; may be empty. Unreadable
// subdirectories are ignored.
Result<FolderScan> ScanModelFolder(const std::string& model_path, const std::string& config_path);

// The list of model repositories. [any thread]
class RepositoryList {
 public:
  explicit RepositoryList(std::vector<Repository> repositories)
      : repositories_(std::move(repositories)) {}

  std::vector<Repository> All() const;
  bool HasNamespaces() const;

  // INVALID_ARG if the directory does not exist. ALREADY_EXISTS if the repository is registered, or
  // if it maps a directory to a name that another repository maps.
  Status Register(Repository repository);
  // INVALID_ARG if the repository is not registered.
  Status Unregister(const std::string& path);

 private:
  mutable std::mutex mutex_;  // guards repositories_
  std::vector<Repository> repositories_;
};

// Whether the directory holds nothing.
bool IsEmptyFolder(const std::string& path);

// A directory below the system's temporary directory, removed with its content by the destructor.
// Stores the files of a load call and of repository agents. Move-only.
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
