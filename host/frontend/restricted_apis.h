// --http-restricted-api and --grpc-restricted-protocol: groups of endpoints that answer only those
// who send a secret header. Constant once the server has started. [any thread]
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

enum class ApiGroup {
  kHealth,
  kMetadata,
  kInference,
  kSharedMemory,
  kModelConfig,
  kModelRepository,
  kStatistics,
  kTrace,
  kLogging,
};

class RestrictedApis {
 public:
  struct Secret {
    std::string key;  // the header's name
    std::string value;
    // Takes as long whatever `given` is.
    bool Matches(std::string_view given) const;
  };

  // "<group>[,<group>...]:<key>=<value>". INVALID_ARG for an unknown group, and for one that is
  // restricted already.
  Status Add(const std::string& text);

  // Null when everybody may.
  const Secret* Find(ApiGroup group) const {
    const auto& secret = secrets_[static_cast<size_t>(group)];
    return secret ? &*secret : nullptr;
  }

 private:
  std::array<std::optional<Secret>, 9> secrets_;
};

}  // namespace nereid
