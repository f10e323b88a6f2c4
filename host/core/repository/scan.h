// Looks at model repositories on disk: which models, which versions, did anything change. Reads
// directories, never files. A listing that breaks off is no shorter one: it is INTERNAL, with the
// folder's name. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid {

struct Repository {
  std::string path;
  // Folder -> a name under which its model is served in place of the folder's own; may be several.
  std::multimap<std::string, std::string> name_mapping;
  // Its models are kept under qualified names (model_name.h): those of other repositories may have
  // the same names.
  bool own_namespace = false;
};

struct ScannedModel {
  std::string name;  // under which it is kept
  std::string path;  // <repository>/<folder>
};

// UNSUPPORTED names the scheme of a repository in a cloud's storage (s3:// and the like).
Status CheckIsLocal(const std::string& path);

// Every model folder of the repositories, by name. More than one folder under a name: the model is
// ambiguous.
Result<std::map<std::string, std::vector<ScannedModel>>> ScanRepositories(
    const std::vector<Repository>& repositories);

// The folders that serve `name`; empty when there is none.
std::vector<ScannedModel> FindModel(const std::vector<Repository>& repositories,
                                    const std::string& name);

struct VersionFolders {
  std::vector<int64_t> versions;   // ascending: decimal names without leading zero
  std::vector<std::string> notes;  // of other folders: why they are none
};
Result<VersionFolders> ScanVersions(const std::string& model_path);

// Change when a file below the folder is added, removed or written; of a folder behind a link, when
// the link or the list of that folder changes.
struct Fingerprints {
  uint64_t all = 0;
  uint64_t shared = 0;                   // of what is neither configuration nor a version
  std::map<int64_t, uint64_t> versions;  // of what lies in each version's folder
};

// What one walk through a model's folder finds.
struct FolderScan {
  Fingerprints prints;
  VersionFolders folders;
};
// `config_path`: of the configuration in the folder; may be empty. Folders that may not be read do
// not count.
Result<FolderScan> ScanModelFolder(const std::string& model_path, const std::string& config_path);

}  // namespace nereid
