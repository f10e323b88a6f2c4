// Opens a checkpoint directory, with or without shards.
#include "backends/llm_core/checkpoint/checkpoint.h"

#include <filesystem>

#include "backends/llm_core/checkpoint/error_list.h"
#include "backends/llm_core/checkpoint/safetensors.h"
#include "base/file_content.h"

namespace nereid::llm {
namespace {

namespace fs = std::filesystem;

Result<std::string> ReadText(const fs::path& path) {
  return ReadFile(path.string(), kMaxTextFileBytes);
}

// An error that describes what the path contains and what is expected.
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
  if (!sharded) {
    NEREID_RETURN_IF_ERROR(checkpoint.OpenFiles({"model.safetensors"}));
    return checkpoint;
  }
  NEREID_ASSIGN_OR_RETURN(const std::string text, ReadText(index));
  NEREID_ASSIGN_OR_RETURN(const TensorIndex promised, ParseTensorIndex(text, index.string()));
  NEREID_RETURN_IF_ERROR(checkpoint.OpenFiles(promised.files()));
  for (const auto& [tensor, file] : promised.file_of) {
    if (checkpoint.Find(tensor) == nullptr) checkpoint.missing_in_files_.emplace(tensor, file);
  }
  return checkpoint;
}

Result<Checkpoint> Checkpoint::OpenFile(const std::string& directory, const std::string& file) {
  NEREID_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenConfig(directory));
  NEREID_RETURN_IF_ERROR(checkpoint.OpenFiles({file}));
  return checkpoint;
}

Status Checkpoint::OpenFiles(const std::set<std::string>& names) {
  ErrorList unreadable("files that cannot be read"), twice("in two files");
  for (const std::string& name : names) {
    Result<SafetensorsFile> file = SafetensorsFile::Open((fs::path(directory_) / name).string());
    if (!file.ok()) {
      if (names.size() == 1) return std::move(file).status();
      unreadable.Add(std::string(file.status().message()));
      continue;
    }
    for (const auto& [tensor, view] : file->tensors()) {
      if (!tensors_.emplace(tensor, view).second) twice.Add(StrCat("'", tensor, "'"));
    }
    files_.push_back(*std::move(file));
  }
  if (unreadable.empty() && twice.empty()) return Status::Ok();
  return InvalidArgError("'", directory_, "': the shards are not a valid checkpoint",
                         unreadable.Text(), twice.Text());
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

Status Checkpoint::CheckIntact() const {
  for (const SafetensorsFile& file : files_) NEREID_RETURN_IF_ERROR(file.file().CheckIntact());
  return {};
}

void Checkpoint::DropPages(const CheckpointTensor& tensor) const {
  for (const SafetensorsFile& file : files_) file.file().DropPages(tensor.bytes);
  for (const MergedTensor& merged : merged_) {
    if (merged.bytes.get() == tensor.bytes.data()) ReleasePages({merged.bytes.get(), merged.size});
  }
}

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace nereid::llm
