#include "host/core/backend/shared_library.h"

#include <dlfcn.h>

#include <mutex>

namespace nereid {

Result<SharedLibrary> SharedLibrary::Open(const std::string& path) {
  static std::mutex mutex;  // dlerror and the libraries' own initialisers are not for two at a time
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

}  // namespace nereid
