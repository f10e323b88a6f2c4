// API keys: who may do what, from the file of --api-key-file. docs/operations.md describes its
// format. The file contains no key, only a salted hash of each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/api_operation.h"
#include "nereid/status.h"

namespace nereid {

// One key with its permissions.
struct ApiKey {
  struct Permission {
    std::vector<std::string> models;  // patterns: '*' is any text, '?' any character
    uint32_t rights = 0;              // a bit for each ApiRight
  };
  std::string name;
  std::string salt;
  std::string digest;                // hexadecimal, in lower case
  std::optional<int64_t> expires_s;  // Unix time; nullopt: never
  std::vector<Permission> permissions;

  // `model` matters only if the scope is kModel.
  bool Permits(ApiRight right, ApiScope scope, std::string_view model) const;
};

// The keys of one file. Immutable. [any thread]
class ApiKeys {
 public:
  // INVALID_ARG says what is wrong and in which key.
  static Result<ApiKeys> Parse(std::string_view json);

  // Returns the key with the text that a client sent, "<name>.<secret>"; null if there is none or
  // if it had expired at `now_s`. The time that it takes does not depend on how much of the secret
  // is right.
  const ApiKey* Find(std::string_view text, int64_t now_s) const;
  size_t size() const { return keys_.size(); }

 private:
  std::map<std::string, ApiKey, std::less<>> keys_;  // by name
};

// Returns the digest of a key's text in hexadecimal: BLAKE2b-256 of the salt followed by the text.
std::string ApiKeyDigest(std::string_view salt, std::string_view text);

// A file of keys that can be read again. [any thread]
class ApiKeyFile {
 public:
  // INVALID_ARG names the file.
  static Result<std::shared_ptr<ApiKeyFile>> Open(std::string path);
  // Reads the file again. On an error the keys stay as they are.
  Status Reload();
  std::shared_ptr<const ApiKeys> keys() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

 private:
  explicit ApiKeyFile(std::string path) : path_(std::move(path)) {}
  const std::string path_;
  mutable std::mutex mutex_;  // guards keys_
  std::shared_ptr<const ApiKeys> keys_;
};

}  // namespace nereid
