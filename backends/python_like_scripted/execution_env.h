// The Python environment that a model brings: EXECUTION_ENV_PATH, a folder or a packed one. A
// packed one is unpacked once for all models that name it, and removed after the last. [any thread]
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "nereid/status.h"

namespace nereid::scripted {

class ExecutionEnv {
 public:
  // `path` as the configuration gives it; $$TRITON_MODEL_DIRECTORY stands for `model_directory`.
  static Result<std::shared_ptr<const ExecutionEnv>> Open(
      const std::string& path, const std::filesystem::path& model_directory);
  ~ExecutionEnv();
  ExecutionEnv(const ExecutionEnv&) = delete;
  ExecutionEnv& operator=(const ExecutionEnv&) = delete;

  // The folder that holds bin/.
  const std::filesystem::path& folder() const { return folder_; }
  // bin/activate is there, to be read by a shell before the interpreter starts.
  bool has_activate() const;
  std::filesystem::path interpreter() const { return folder_ / "bin" / "python3"; }

 private:
  ExecutionEnv(std::filesystem::path folder, bool is_unpacked)
      : folder_(std::move(folder)), is_unpacked_(is_unpacked) {}
  static Result<std::shared_ptr<const ExecutionEnv>> Unpack(const std::filesystem::path& file);

  const std::filesystem::path folder_;
  const bool is_unpacked_;
};

}  // namespace nereid::scripted
