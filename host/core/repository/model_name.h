// The key under which the host stores a model. Without model namespacing, it is the model's name.
// With namespacing it is the qualified name "<repository>/<name>". Model names contain no slash, so
// the last slash separates the two. [any thread]
#pragma once

#include <string>
#include <string_view>

namespace nereid::core {

inline std::string QualifiedName(std::string_view space, std::string_view name) {
  while (space.size() > 1 && space.back() == '/') space.remove_suffix(1);
  std::string key(space);
  key += '/';
  key += name;
  return key;
}

inline bool IsQualified(std::string_view key) {
  return key.find('/') != std::string_view::npos;
}

// Returns the plain model name.
inline std::string_view PlainName(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

// Returns the repository; empty without model namespacing.
inline std::string_view NamespaceOf(std::string_view key) {
  return key.substr(0, IsQualified(key) ? key.rfind('/') : 0);
}

}  // namespace nereid::core
