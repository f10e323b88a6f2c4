// The name under which the host keeps a model. It is the model's own name; where repositories are
// namespaces, that name with its repository before it: "<repository>/<name>". Model names have no
// slash, so that the last one divides the two. [any thread]
#pragma once

#include <string>
#include <string_view>

namespace nereid {

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

// The model's own name.
inline std::string_view PlainName(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

// The repository; empty where repositories are no namespaces.
inline std::string_view NamespaceOf(std::string_view key) {
  return key.substr(0, IsQualified(key) ? key.rfind('/') : 0);
}

}  // namespace nereid
