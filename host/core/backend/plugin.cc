#include "host/core/backend/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/thread.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

pid_t watched_process = 0;

}  // namespace

Result<SharedLibrary> SharedLibrary::Open(const std::string& path) {
  // dlopen would wait for a writer of a FIFO, and every other load with it.
  std::error_code ignored;
  const std::filesystem::file_status kind = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind)) {
    return InvalidArgError("unable to load shared library '", path,
                           "': expected a regular file, got something else");
  }
  // Neither dlerror nor the initialisers of libraries are safe to run concurrently.
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return SharedLibrary(handle);
  const char* reason = dlerror();
  return InternalError("unable to load shared library '", path,
                       "': ", reason == nullptr ? "unknown reason" : reason);
}

void* SharedLibrary::FindSymbol(const char* name) const {
  return dlsym(handle_, name);
}

thread_local PluginCallScope* PluginCallScope::innermost = nullptr;

PluginCallScope::PluginCallScope(std::string_view owner, const char* entry)
    : owner_(owner), entry_(entry), outer_(innermost) {
  innermost = this;
}

PluginCallScope::~PluginCallScope() {
  innermost = outer_;
}

void PluginCallScope::InstallExitHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    watched_process = getpid();
    std::atexit(&PluginCallScope::OnExit);
  });
}

void PluginCallScope::OnExit() {
  // A child process that a plug-in forked may exit normally.
  if (innermost == nullptr || getpid() != watched_process) return;
  NEREID_LOG_ERROR(innermost->owner_, ": ", innermost->entry_,
                   " called exit(), which ends the whole process");
  std::_Exit(1);
}

std::future<void> RunDetached(std::function<void()> run) {
  const auto ended = std::make_shared<std::promise<void>>();
  const auto body = [run = std::move(run), ended] {
    run();
    ended->set_value();
  };
  try {
    StartThread(body).detach();
  } catch (const std::system_error&) {
    body();
  }
  return ended->get_future();
}

}  // namespace nereid::core
