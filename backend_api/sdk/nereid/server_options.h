// Options of a server to start; the setters are those of the C API. [one thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nereid/error.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

class ServerOptions {
 public:
  static Result<ServerOptions> Create() {
    TRITONSERVER_ServerOptions* options = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerOptionsNew(&options)));
    return ServerOptions(options);
  }

  TRITONSERVER_ServerOptions* get() const { return options_.get(); }

  // Calls any setter of the C API: options.Set(TRITONSERVER_ServerOptionsSetExitOnError, true).
  template <typename... Params, typename... Args>
  Status Set(TRITONSERVER_Error* (*setter)(TRITONSERVER_ServerOptions*, Params...),
             const Args&... args) {
    return ToStatus(setter(get(), Pass(args)...));
  }

  // May be called several times, one repository each.
  Status AddModelRepository(const std::string& path) {
    return Set(TRITONSERVER_ServerOptionsSetModelRepositoryPath, path);
  }
  Status SetBackendDirectory(const std::string& path) {
    return Set(TRITONSERVER_ServerOptionsSetBackendDirectory, path);
  }
  Status SetBackendConfig(const std::string& backend, const std::string& key,
                          const std::string& value) {
    return Set(TRITONSERVER_ServerOptionsSetBackendConfig, backend, key, value);
  }
  Status SetModelControlMode(TRITONSERVER_ModelControlMode mode) {
    return Set(TRITONSERVER_ServerOptionsSetModelControlMode, mode);
  }
  // Explicit mode only; "*" alone is every model.
  Status AddStartupModel(const std::string& name) {
    return Set(TRITONSERVER_ServerOptionsSetStartupModel, name);
  }

 private:
  explicit ServerOptions(TRITONSERVER_ServerOptions* options) : options_(options) {}

  static const char* Pass(const std::string& text) { return text.c_str(); }
  template <typename T>
  static const T& Pass(const T& value) {
    return value;
  }

  struct Deleter {
    void operator()(TRITONSERVER_ServerOptions* options) const {
      (void)ToStatus(TRITONSERVER_ServerOptionsDelete(options));
    }
  };
  std::unique_ptr<TRITONSERVER_ServerOptions, Deleter> options_;
};

}  // namespace sdk
}  // namespace nereid
