#include "backends/python_like_scripted/execution_env.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>

#include "backends/python_like_scripted/child_process.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;

std::mutex unpacking_mutex;  // guards UnpackedEnvs(); one archive is unpacked at a time
std::map<std::string, std::weak_ptr<const ExecutionEnv>>& UnpackedEnvs() {
  static auto* const envs = new std::map<std::string, std::weak_ptr<const ExecutionEnv>>();
  return *envs;
}

// A key of the archive that changes when the file is replaced.
std::string Identity(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error).time_since_epoch().count();
  return StrCat(file.string(), "\n", fs::file_size(file, error), "\n", time);
}

Status RunTar(const fs::path& file, const fs::path& folder) {
  ProcessCommand command;
  command.environment = EnvironmentWith({});
  // The shell drops the descriptor number that ChildProcess::Start appends.
  command.arguments = {"/bin/sh", "-c", "exec tar -xf \"$0\" -C \"$1\"", file.string(),
                       folder.string()};
  NEREID_ASSIGN_OR_RETURN(const auto process,
                          ChildProcess::Start(std::move(command), {}, STDERR_FILENO));
  const std::string how = process->Wait();
  if (how == "exited with code 0") return {};
  return InvalidArgError("EXECUTION_ENV_PATH '", file.string(), "' cannot be unpacked: tar ", how);
}

}  // namespace

Result<std::shared_ptr<const ExecutionEnv>> ExecutionEnv::Open(const std::string& path,
                                                               const fs::path& model_directory) {
  static constexpr char kPlaceholder[] = "$$TRITON_MODEL_DIRECTORY";
  std::string expanded = path;
  if (const size_t at = expanded.find(kPlaceholder); at != std::string::npos) {
    expanded.replace(at, sizeof kPlaceholder - 1, model_directory.string());
  }
  std::error_code error;
  const fs::path place = expanded;
  if (!place.is_absolute()) {
    return InvalidArgError("EXECUTION_ENV_PATH: expected an absolute path or one that begins with ",
                           kPlaceholder, ", got '", path, "'");
  }
  std::shared_ptr<const ExecutionEnv> env;
  if (fs::is_directory(place, error)) {
    env.reset(new ExecutionEnv(place, /*is_unpacked=*/false));
  } else if (fs::is_regular_file(place, error)) {
    NEREID_ASSIGN_OR_RETURN(env, Unpack(place));
  } else {
    return NotFoundError("EXECUTION_ENV_PATH: '", expanded, "' is neither a folder nor a file");
  }
  if (fs::exists(env->interpreter(), error)) return env;
  return InvalidArgError("EXECUTION_ENV_PATH '", expanded, "': expected bin/python3 in it");
}

Result<std::shared_ptr<const ExecutionEnv>> ExecutionEnv::Unpack(const fs::path& file) {
  std::lock_guard lock(unpacking_mutex);
  std::weak_ptr<const ExecutionEnv>& known = UnpackedEnvs()[Identity(file)];
  if (auto env = known.lock()) return env;
  std::string folder = (fs::temp_directory_path() / "nereid_python_env_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return UnavailableError("EXECUTION_ENV_PATH: cannot make '", folder,
                            "': ", std::strerror(errno));
  }
  std::shared_ptr<const ExecutionEnv> env(new ExecutionEnv(folder, /*is_unpacked=*/true));
  NEREID_RETURN_IF_ERROR(RunTar(file, folder));
  known = env;
  return env;
}

ExecutionEnv::~ExecutionEnv() {
  std::error_code ignored;
  if (is_unpacked_) fs::remove_all(folder_, ignored);
}

std::vector<std::string> ExecutionEnv::Command(const std::vector<std::string>& arguments) const {
  // The environment's libraries come first: its packages need the versions that they were built
  // with.
  static constexpr char kEnter[] =
      "enter() { source \"$1/bin/activate\"; }; enter \"$0\" && "
      "LD_LIBRARY_PATH=\"$0/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" exec python3 \"$@\"";
  std::error_code error;
  std::vector<std::string> command{interpreter().string()};
  if (fs::exists(folder_ / "bin" / "activate", error)) {
    command = {"bash", "-c", kEnter, folder_.string()};
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace nereid::python
