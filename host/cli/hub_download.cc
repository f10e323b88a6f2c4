#include "host/cli/hub_download.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file_content.h"
#include "base/json_reader.h"

namespace nereid::cli {
namespace {

using Json = nlohmann::json;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kSingleFile[] = "model.safetensors";

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Files in folders are not needed, but their names must not be attacks either.
Status CheckPath(std::string_view path) {
  std::string_view rest = path;
  while (true) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    const bool is_hidden_file = part.size() > 1 && part.front() == '.' && part != "..";
    if (!IsPlainFileName(part) && !(is_hidden_file && IsPlainFileName(part.substr(1)))) {
      return InvalidArgError("the hub names a file '", std::string(path.substr(0, 200)),
                             "', which is no path inside of the repository");
    }
    if (slash == std::string_view::npos) return Status::Ok();
    rest.remove_prefix(slash + 1);
  }
}

// Git refers to branches with slashes by one URL segment.
std::string EncodedRevision(const std::string& revision) {
  std::string text;
  for (const char c : revision) text += c == '/' ? std::string("%2F") : std::string(1, c);
  return text;
}

}  // namespace

Result<HubRevision> ParseHubRevision(const std::string& text, const std::string& name) {
  NEREID_ASSIGN_OR_RETURN(const Json answer, ReadJsonObject<Json>(text, name));
  HubRevision revision;
  const auto sha = answer.find("sha");
  if (sha != answer.end() && sha->is_string()) revision.commit = sha->get<std::string>();
  if (!IsCommit(revision.commit)) {
    return InvalidArgError(name, ": 'sha': expected a commit of 40 hexadecimal digits, got '",
                           revision.commit.substr(0, 64), "'");
  }
  const auto files = answer.find("siblings");
  if (files == answer.end() || !files->is_array()) {
    return InvalidArgError(name, ": 'siblings': expected the list of files");
  }
  for (const Json& file : *files) {
    const auto path = file.is_object() ? file.find("rfilename") : file.end();
    if (!file.is_object() || path == file.end() || !path->is_string()) {
      return InvalidArgError(name, ": 'siblings': expected objects with 'rfilename'");
    }
    revision.files.push_back(path->get<std::string>());
  }
  return revision;
}

Result<std::vector<std::string>> SideFiles(const std::vector<std::string>& files) {
  std::vector<std::string> chosen;
  for (const std::string& file : files) {
    NEREID_RETURN_IF_ERROR(CheckPath(file));
    if (!IsPlainFileName(file)) continue;
    for (const char* ending : {".json", ".model", ".jinja", ".tiktoken"}) {
      if (file.ends_with(ending)) chosen.push_back(file);
    }
  }
  return chosen;
}

Result<std::vector<std::string>> WeightFilesToDownload(const std::vector<std::string>& files,
                                                       const std::string& index_text) {
  if (index_text.empty()) {
    if (Contains(files, kSingleFile)) return std::vector<std::string>{kSingleFile};
    std::string found;
    for (const std::string& file : files) {
      if (found.size() < 300) found += StrCat(found.empty() ? "" : ", ", file);
    }
    return NotFoundError("the repository has neither ", kSingleFile, " nor ", kIndex,
                         ", which serving needs; found: ", found.empty() ? "nothing" : found);
  }
  NEREID_ASSIGN_OR_RETURN(const Json index, ReadJsonObject<Json>(index_text, kIndex));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    return InvalidArgError(kIndex, ": has no weight_map");
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return InvalidArgError(kIndex, ": weight_map['", tensor, "']");
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) {
    if (!IsPlainFileName(shard) || !shard.ends_with(".safetensors") || !Contains(files, shard)) {
      return InvalidArgError(kIndex, ": names '", shard.substr(0, 200),
                             "', which is no safetensors file of the repository");
    }
  }
  return std::vector<std::string>(shards.begin(), shards.end());
}

Result<std::string> DownloadSnapshot(const HubId& id, const HubCache& cache,
                                     const HubConnection& hub, const DownloadEvents& events) {
  constexpr size_t kMaxIndexBytes = size_t{64} << 20;
  if (hub.is_offline) {
    return UnavailableError("'", id.repository(), "' (revision ", id.revision,
                            ") is not complete in ", cache.root(),
                            ", and HF_HUB_OFFLINE forbids to download it");
  }
  NEREID_ASSIGN_OR_RETURN(net::HttpClient client, net::HttpClient::Create());
  const std::string path =
      StrCat("/api/models/", id.repository(), "/revision/", EncodedRevision(id.revision));
  NEREID_ASSIGN_OR_RETURN(const std::string answer, AskHub(client, hub, id, path, events));
  NEREID_ASSIGN_OR_RETURN(const HubRevision revision,
                          ParseHubRevision(answer, hub.endpoint + path));
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string> side_files, SideFiles(revision.files));
  if (!Contains(revision.files, kIndex)) {
    NEREID_RETURN_IF_ERROR(WeightFilesToDownload(revision.files, "").status());
  }
  NEREID_RETURN_IF_ERROR(cache.MakeFolders(id, revision.commit));
  const auto download = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      NEREID_RETURN_IF_ERROR(
          DownloadHubFile(client, hub, id, revision.commit, file, cache, events));
    }
    return Status::Ok();
  };
  NEREID_RETURN_IF_ERROR(download(side_files));
  std::string folder = cache.SnapshotFolder(id, revision.commit);
  std::string index_text;
  if (Contains(side_files, kIndex)) {
    NEREID_ASSIGN_OR_RETURN(index_text, ReadFile(folder + "/" + kIndex, kMaxIndexBytes));
  }
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string> weights,
                          WeightFilesToDownload(revision.files, index_text));
  NEREID_RETURN_IF_ERROR(download(weights));
  NEREID_RETURN_IF_ERROR(cache.WriteRef(id, revision.commit));
  return folder;
}

}  // namespace nereid::cli
