// A temporary folder that is deleted with the object, and helpers that write and read files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace nereid::repo {

inline void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nereid_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// A safetensors file of one tensor, whose header declares `declared_bytes`.
inline std::string SafetensorsBytes(size_t declared_bytes, size_t held_bytes) {
  const std::string header = R"({"w":{"dtype":"U8","shape":[)" + std::to_string(declared_bytes) +
                             R"(],"data_offsets":[0,)" + std::to_string(declared_bytes) + "]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + std::string(held_bytes, '\1');
}

// The smallest checkpoint that the tool accepts.
inline void WriteCheckpoint(const std::string& folder) {
  const std::filesystem::path path(folder);
  WriteFile(path / "config.json",
            R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,
                "max_position_embeddings":128})");
  WriteFile(path / "generation_config.json", R"({"eos_token_id":2})");
  WriteFile(path / "tokenizer.json", "{}");
  WriteFile(path / "model.safetensors", SafetensorsBytes(4, 4));
}

}  // namespace nereid::repo
