// A model folder for a test. The constructor writes it, the destructor removes it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "host/core/config/config_loader.h"
#include "tests/support/test_folder.h"

namespace nereid::core::config {

class TempModel {
 public:
  explicit TempModel(const std::string& pbtxt, const std::string& name = "m")
      : folder_(parent_.path() / name) {
    std::filesystem::create_directories(folder_ / "1");
    if (!pbtxt.empty()) Write("config.pbtxt", pbtxt);
  }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }

  std::string path() const { return folder_.string(); }
  ConfigSource folder() const { return {folder_.filename().string(), path(), "", std::nullopt}; }

 private:
  const TestFolder parent_;
  std::filesystem::path folder_;
};

inline constexpr char kIo[] =
    "backend: \"b\"\n"
    "input [ { name: \"I\" data_type: TYPE_FP32 dims: [ 4 ] } ]\n"
    "output [ { name: \"O\" data_type: TYPE_FP32 dims: [ 4 ] } ]\n";

}  // namespace nereid::core::config
