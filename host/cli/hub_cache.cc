#include "host/cli/hub_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file_content.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// A leading ~ stands for the home folder, as in Hugging Face's own tools.
std::string ExpandHome(const std::string& path) {
  if (path == "~" || path.starts_with("~/")) return Variable("HOME") + path.substr(1);
  return path;
}

Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return Status::Ok();
  return InternalError("'", path.string(), "': cannot be made: ", error.message());
}

// Gives a file that was written beside `path` its name, so that no reader sees half of it.
Status Rename(const fs::path& from, const fs::path& path) {
  std::error_code error;
  fs::rename(from, path, error);
  if (!error) return Status::Ok();
  return InternalError("'", path.string(), "': ", error.message());
}

fs::path Beside(const fs::path& path) {
  return path.string() + StrCat(".new-", getpid());
}

}  // namespace

std::string HubHome() {
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return ExpandHome(home);
  const std::string cache = Variable("XDG_CACHE_HOME");
  return (cache.empty() ? Variable("HOME") + "/.cache" : ExpandHome(cache)) + "/huggingface";
}

HubCache HubCache::FromEnvironment() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = Variable(name); !folder.empty()) {
      return HubCache(ExpandHome(folder));
    }
  }
  return HubCache(HubHome() + "/hub");
}

std::string HubCache::RepositoryFolder(const HubId& id) const {
  return StrCat(root_, "/models--", id.organization, "--", id.model);
}

std::string HubCache::BlobPath(const HubId& id, const std::string& hash) const {
  return StrCat(RepositoryFolder(id), "/blobs/", hash);
}

std::string HubCache::SnapshotFolder(const HubId& id, const std::string& commit) const {
  return StrCat(RepositoryFolder(id), "/snapshots/", commit);
}

Result<std::string> HubCache::FindSnapshot(const HubId& id) const {
  constexpr size_t kMaxRefBytes = 1024;
  std::string commit = id.revision;
  const std::string ref = StrCat(RepositoryFolder(id), "/refs/", id.revision);
  if (!IsCommit(commit)) {
    Result<std::string> text = ReadFile(ref, kMaxRefBytes);
    if (!text.ok()) {
      return NotFoundError("'", id.repository(), "' (revision ", id.revision,
                           ") is not in the cache: '", ref, "' does not exist");
    }
    commit = text->substr(0, text->find_first_of(" \r\n"));
    if (!IsCommit(commit)) {
      return InvalidArgError("'", ref, "': expected a commit of 40 hexadecimal digits, got '",
                             commit.substr(0, 64), "'");
    }
  }
  std::string folder = SnapshotFolder(id, commit);
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return folder;
  return NotFoundError("'", id.repository(), "' (revision ", id.revision,
                       ") is not in the cache: '", folder, "' does not exist");
}

Status HubCache::MakeFolders(const HubId& id, const std::string& commit) const {
  NEREID_RETURN_IF_ERROR(MakeFolder(RepositoryFolder(id) + "/blobs"));
  return MakeFolder(SnapshotFolder(id, commit));
}

Status HubCache::LinkFile(const HubId& id, const std::string& commit, const std::string& file,
                          const std::string& hash) const {
  const fs::path link = fs::path(SnapshotFolder(id, commit)) / file;
  const fs::path target = fs::path("../../blobs") / hash;
  std::error_code error;
  if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return Status::Ok();
  const fs::path made = Beside(link);
  fs::remove(made, error);
  fs::create_symlink(target, made, error);
  if (error) return InternalError("'", made.string(), "': ", error.message());
  return Rename(made, link);
}

Status HubCache::WriteRef(const HubId& id, const std::string& commit) const {
  if (IsCommit(id.revision)) return Status::Ok();
  const fs::path path = StrCat(RepositoryFolder(id), "/refs/", id.revision);
  NEREID_RETURN_IF_ERROR(MakeFolder(path.parent_path()));
  const fs::path made = Beside(path);
  std::ofstream file(made, std::ios::binary | std::ios::trunc);
  file << commit;
  file.close();
  if (!file) return InternalError("'", made.string(), "': cannot be written");
  return Rename(made, path);
}

}  // namespace nereid::cli
