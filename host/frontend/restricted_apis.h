// Endpoint groups restricted by --http-restricted-api and --grpc-restricted-protocol: only clients
// that send a secret header may call them. Constant after the server has started. [any thread]
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
    // Compares in constant time, whatever `received` is.
    bool Matches(std::string_view received) const;
  };

  // Parses "<group>[,<group>...]:<key>=<value>". INVALID_ARG for an unknown group, and for one that
  // is already restricted.
  Status Add(const std::string& text);

  // Null if the group is not restricted.
  const Secret* Find(ApiGroup group) const {
    const auto& secret = secrets_[static_cast<size_t>(group)];
    return secret ? &*secret : nullptr;
  }

 private:
  std::array<std::optional<Secret>, 9> secrets_;
};

}  // namespace nereid
