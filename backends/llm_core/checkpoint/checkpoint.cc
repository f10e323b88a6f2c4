// Opens a checkpoint directory, sharded or not.
#include "llm_core/checkpoint/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace nereid::llm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kMaxJsonBytes = 64 << 20;

Result<std::string> ReadText(const fs::path& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return NotFoundError("cannot read '", path.string(), "': ", error.message());
  if (size > kMaxJsonBytes) {
    return InvalidArgError("'", path.string(), "': ", size, " bytes, limit ", kMaxJsonBytes);
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return InternalError("cannot read '", path.string(), "'");
  return std::move(text).str();
}

// What is there instead of a checkpoint, and what to give.
Status NotACheckpoint(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) {
    return NotFoundError("checkpoint directory '", directory.string(),
                         "' does not exist: give the path of a Hugging Face checkpoint directory "
                         "(config.json and *.safetensors)");
  }
  if (!fs::is_directory(directory, error)) {
    return InvalidArgError("'", directory.string(),
                           "' is not a directory: give the path of a Hugging Face checkpoint "
                           "directory (config.json and *.safetensors)");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".engine" || extension == ".plan") {
      return UnsupportedError("'", directory.string(), "' holds a TensorRT engine ('",
                              entry.path().filename().string(),
                              "'), which only TensorRT runs: give the Hugging Face checkpoint "
                              "directory (config.json and *.safetensors) it was built from");
    }
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      return UnsupportedError("'", directory.string(), "' holds pickled weights ('",
                              entry.path().filename().string(),
                              "') but no safetensors: convert it with save_pretrained()");
    }
  }
  return NotFoundError("'", directory.string(),
                       "' holds no checkpoint: expected config.json and model.safetensors or "
                       "model.safetensors.index.json");
}

// The shard file names of an index, each once. A name may not leave the directory.
Result<std::set<std::string>> ShardNames(const std::string& index, const std::string& path) {
  const Json json = Json::parse(index, nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgError("'", path, "': no object 'weight_map'");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name) {
      return InvalidArgError("'", path, "': tensor '", tensor, "' is in ", file.dump(),
                             ", expected a file name");
    }
    names.insert(name);
  }
  return names;
}

// A tensor that the index promises must be in the shard it names.
Status CheckIndex(const std::string& index, const std::string& path, const TensorMap& tensors) {
  const Json json = Json::parse(index, nullptr, false);
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (tensors.find(tensor) == tensors.end()) {
      return InvalidArgError("'", path, "': tensor '", tensor, "' is not in '",
                             file.get<std::string>(), "'");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Checkpoint> Checkpoint::OpenConfig(const std::string& directory) {
  const fs::path root(directory);
  std::error_code error;
  if (!fs::exists(root / "config.json", error)) {
    return NotFoundError("'", directory, "' has no config.json");
  }
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  NEREID_ASSIGN_OR_RETURN(checkpoint.config_json_, ReadText(root / "config.json"));
  if (fs::exists(root / "generation_config.json", error)) {
    NEREID_ASSIGN_OR_RETURN(checkpoint.generation_config_json_,
                            ReadText(root / "generation_config.json"));
  }
  return checkpoint;
}

Result<Checkpoint> Checkpoint::Open(const std::string& directory) {
  const fs::path root(directory);
  std::error_code error;
  const fs::path single = root / "model.safetensors";
  const fs::path index = root / "model.safetensors.index.json";
  const bool sharded = !fs::exists(single, error) && fs::exists(index, error);
  const bool is_trtllm =
      !sharded && !fs::exists(single, error) && fs::exists(root / "rank0.safetensors", error);
  if (!fs::exists(root / "config.json", error) ||
      (!is_trtllm && !sharded && !fs::exists(single, error))) {
    return NotACheckpoint(root);
  }
  NEREID_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenConfig(directory));
  if (is_trtllm) {
    Result<TrtLlmCheckpoint> read = ReadTrtLlmCheckpoint(directory, checkpoint.config_json_);
    if (!read.ok()) return std::move(read).status().WithContext(StrCat("'", directory, "'"));
    checkpoint.config_json_ = std::move(read->config_json);
    checkpoint.files_ = std::move(read->files);
    checkpoint.merged_ = std::move(read->merged);
    checkpoint.tensors_ = std::move(read->tensors);
    return checkpoint;
  }
  std::set<std::string> names = {"model.safetensors"};
  std::string index_text;
  if (sharded) {
    NEREID_ASSIGN_OR_RETURN(index_text, ReadText(index));
    NEREID_ASSIGN_OR_RETURN(names, ShardNames(index_text, index.string()));
  }
  for (const std::string& name : names) {
    NEREID_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open((root / name).string()));
    for (const auto& [tensor, view] : file.tensors()) {
      if (!checkpoint.tensors_.emplace(tensor, view).second) {
        return InvalidArgError("'", directory, "': tensor '", tensor, "' occurs in two shards");
      }
    }
    checkpoint.files_.push_back(std::move(file));
  }
  if (sharded) NEREID_RETURN_IF_ERROR(CheckIndex(index_text, index.string(), checkpoint.tensors_));
  return checkpoint;
}

Checkpoint Checkpoint::FromParts(std::string directory, std::string config_json,
                                 std::string generation_config_json, TensorMap tensors) {
  Checkpoint checkpoint;
  checkpoint.directory_ = std::move(directory);
  checkpoint.config_json_ = std::move(config_json);
  checkpoint.generation_config_json_ = std::move(generation_config_json);
  checkpoint.tensors_ = std::move(tensors);
  return checkpoint;
}

void Checkpoint::LetGo(const TensorView& tensor) const {
  for (const SafetensorsFile& file : files_) file.file().LetGo(tensor.bytes);
  for (const MergedTensor& merged : merged_) {
    if (merged.bytes.get() == tensor.bytes.data()) ReleasePages({merged.bytes.get(), merged.size});
  }
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace nereid::llm
