// The Python environment that a model brings (EXECUTION_ENV_PATH): a folder or an archive. An
// archive is unpacked once for all models that name it, and removed after the last of them. [any
// thread]
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::python {

class ExecutionEnv {
 public:
  // `path` as in the configuration; $$TRITON_MODEL_DIRECTORY is replaced by `model_directory`.
  static Result<std::shared_ptr<const ExecutionEnv>> Open(
      const std::string& path, const std::filesystem::path& model_directory);
  ~ExecutionEnv();
  ExecutionEnv(const ExecutionEnv&) = delete;
  ExecutionEnv& operator=(const ExecutionEnv&) = delete;

  // The command that runs the environment's interpreter with `arguments`: where bin/activate
  // exists, through a shell that sources it first.
  std::vector<std::string> Command(const std::vector<std::string>& arguments) const;
  std::filesystem::path interpreter() const { return folder_ / "bin" / "python3"; }

 private:
  ExecutionEnv(std::filesystem::path folder, bool is_unpacked)
      : folder_(std::move(folder)), is_unpacked_(is_unpacked) {}
  static Result<std::shared_ptr<const ExecutionEnv>> Unpack(const std::filesystem::path& file);

  const std::filesystem::path folder_;
  const bool is_unpacked_;
};

}  // namespace nereid::python
