// A library opened with dlopen(RTLD_NOW | RTLD_LOCAL). Never closed: code of a backend may still
// run in threads that it does not own. [load threads]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid {

class SharedLibrary {
 public:
  // One library at a time in the whole process. The error is the loader's own, with the path.
  static Result<SharedLibrary> Open(const std::string& path);

  // Null when the library does not export `name`.
  template <typename Function>
  Function* Find(const char* name) const {
    return reinterpret_cast<Function*>(FindSymbol(name));
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* FindSymbol(const char* name) const;

  void* handle_;
};

}  // namespace nereid
