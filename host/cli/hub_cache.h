// The folder in which Hugging Face's tools keep what they have downloaded, in their layout:
//
//   models--<organization>--<model>/
//     refs/<revision>              the commit of a branch or tag
//     snapshots/<commit>/<file>    a link to ../../blobs/<hash>
//     blobs/<hash>                 the contents, by the hash that the hub gives
//
// [one thread at a time; several processes may use one cache]
#pragma once

#include <string>

#include "host/cli/hub_id.h"
#include "nereid/status.h"

namespace nereid::cli {

class HubCache {
 public:
  explicit HubCache(std::string root) : root_(std::move(root)) {}
  // HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
  // ~/.cache/huggingface/hub.
  static HubCache FromEnvironment();

  const std::string& root() const { return root_; }

  // The folder of the snapshot of id.revision. NOT_FOUND names the folder in which it is expected.
  // The snapshot may lack files.
  Result<std::string> FindSnapshot(const HubId& id) const;

  std::string BlobPath(const HubId& id, const std::string& hash) const;
  std::string SnapshotFolder(const HubId& id, const std::string& commit) const;

  // Makes the folders of the repository and of the snapshot.
  Status MakeFolders(const HubId& id, const std::string& commit) const;
  // Makes `file` of the snapshot a link to the blob, in place of any older link.
  Status LinkFile(const HubId& id, const std::string& commit, const std::string& file,
                  const std::string& hash) const;
  // Notes which commit id.revision is. Without effect if the revision is a commit.
  Status WriteRef(const HubId& id, const std::string& commit) const;

 private:
  std::string RepositoryFolder(const HubId& id) const;

  std::string root_;
};

// HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::string HubHome();

}  // namespace nereid::cli
