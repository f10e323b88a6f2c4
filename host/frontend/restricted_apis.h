// Endpoint groups restricted by --http-restricted-api and --grpc-restricted-protocol: only clients
// that send a secret header may call them. Constant after the server has started. [any thread]
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
    std::string header;  // in lower case, because header names are compared without case
    std::string value;
    // Compares in constant time, whatever `received` is.
    bool Matches(std::string_view received) const;
  };

  // Each header's name is `header_prefix`, which is in lower case, followed by the <key> of Add.
  explicit RestrictedApis(std::string header_prefix = "")
      : header_prefix_(std::move(header_prefix)) {}

  // Parses "<group>[,<group>...]:<key>=<value>". INVALID_ARG for an unknown group, and for one that
  // is already restricted; no error repeats a key or a value.
  Status Add(const std::string& text);
  // Adds each line of the file `path`, so that secrets stand on no command line. Empty lines and
  // those that begin with # have no effect. An error names the file and the line.
  Status AddFile(const std::string& path);

  // Null if the group is not restricted.
  const Secret* Find(ApiGroup group) const {
    const auto& secret = secrets_[static_cast<size_t>(group)];
    return secret ? &*secret : nullptr;
  }

  // The names of the restricted groups, in the order of ApiGroup.
  std::vector<std::string_view> GroupNames() const;

  // True if `name` is the header of a group, without regard to case.
  bool IsSecretHeader(std::string_view name) const;

 private:
  std::string header_prefix_;
  std::array<std::optional<Secret>, 9> secrets_;
};

}  // namespace nereid
