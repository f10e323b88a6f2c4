// Plug-ins (backends, caches, repository agents, batching libraries): loading their libraries, and
// calling their functions so that an error, an exception, exit() or a hang is reported.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <string>
#include <string_view>

#include "host/core/handle/error.h"
#include "nereid/status.h"

namespace nereid::core {

// A library opened with dlopen(RTLD_NOW | RTLD_LOCAL). Never closed: code of a plug-in may still
// run in threads that the plug-in does not own. [load threads]
class SharedLibrary {
 public:
  // Opens one library at a time in the whole process. The error contains the loader's message and
  // the path.
  static Result<SharedLibrary> Open(const std::string& path);

  // Returns null if the library does not export `name`.
  template <typename Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(FindSymbol(name));
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* FindSymbol(const char* name) const;

  void* handle_;
};

// Records the call into a plug-in that runs on this thread. A library that calls exit() inside a
// call ends the whole process, and no error can be returned. This class lets the log name that
// library. [any thread]
class PluginCallScope {
 public:
  // `owner` (name of a model, an instance or a plug-in) and `entry` (name of the function) must
  // outlive this object. Calls may nest.
  PluginCallScope(std::string_view owner, const char* entry);
  ~PluginCallScope();
  PluginCallScope(const PluginCallScope&) = delete;
  PluginCallScope& operator=(const PluginCallScope&) = delete;

  // From now on, exit() inside a plug-in call is logged with owner and function, and the process
  // ends with status 1. Destructors of objects that other threads still use do not run. Calling
  // this once is enough.
  static void InstallExitHandler();

 private:
  const std::string_view owner_;
  const char* const entry_;
  PluginCallScope* const outer_;

  static thread_local PluginCallScope* innermost;
  static void OnExit();
};

// Calls a plug-in function. The returned error becomes a Status, and a C++ exception becomes an
// INTERNAL error instead of ending the process. A plug-in that calls exit() is named in the log.
// `owner` and `entry` name the plug-in and the function in messages. [any thread]
template <typename Call>
Status GuardedCall(std::string_view owner, const char* entry, Call&& call) {
  const PluginCallScope current(owner, entry);
  try {
    return TakeError(call());
  } catch (const std::exception& e) {
    return InternalError(owner, ": ", entry, " threw: ", e.what());
  } catch (...) {
    return InternalError(owner, ": ", entry, " threw an unknown exception");
  }
}

// Runs third-party code on a detached thread, which can be abandoned if the code hangs. Runs `run`
// on the calling thread if no thread can be created. `run` must own all objects that it uses. [any
// thread]
std::future<void> RunDetached(std::function<void()> run);

}  // namespace nereid::core
