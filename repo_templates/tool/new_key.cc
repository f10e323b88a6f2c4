#include "repo_templates/tool/new_key.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/blake2b.h"
#include "host/frontend/api_operation.h"

namespace nereid::repo {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kSaltBytes = 16;

// Returns `count` random bytes as hexadecimal digits.
Result<std::string> RandomHex(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    return InternalError("the operating system gives no random bytes: ", std::strerror(errno));
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

Status CheckName(const std::string& name) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  if (name.empty()) return InvalidArgError("new key: --name is missing");
  if (name.size() <= 64 && name.find_first_not_of(kAllowed) == std::string::npos) return {};
  return InvalidArgError("new key: --name: expected 1 to 64 letters, digits, '_' or '-', got '",
                         name, "'");
}

Status CheckRights(const std::vector<std::string>& rights) {
  if (rights.empty()) return InvalidArgError("new key: --right is missing");
  for (const std::string& right : rights) {
    if (right == "admin") continue;
    if (std::find(kApiRightNames.begin(), kApiRightNames.end(), right) != kApiRightNames.end()) {
      continue;
    }
    std::string known;
    for (const std::string_view name : kApiRightNames) known += StrCat(name, ", ");
    return InvalidArgError("new key: --right: expected one of ", known, "admin, got '", right, "'");
  }
  return Status::Ok();
}

// As the server reads it.
Status CheckExpires(const std::string& text) {
  tm time = {};
  const char* const end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (text.empty() || (text.size() == 20 && end != nullptr && *end == '\0')) return Status::Ok();
  return InvalidArgError("new key: --expires: expected a time like 2027-01-31T00:00:00Z, got '",
                         text, "'");
}

}  // namespace

Result<NewKey> MakeKey(const NewKeyOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckName(options.name));
  NEREID_RETURN_IF_ERROR(CheckRights(options.rights));
  NEREID_RETURN_IF_ERROR(CheckExpires(options.expires));
  NEREID_ASSIGN_OR_RETURN(const std::string secret, RandomHex(kSecretBytes));
  NEREID_ASSIGN_OR_RETURN(const std::string salt, RandomHex(kSaltBytes));
  NewKey key{.text = options.name + "." + secret, .entry = ""};
  Blake2b hash;
  hash.Add(salt);
  hash.Add(key.text);
  nlohmann::ordered_json permission;
  if (!options.models.empty()) permission["models"] = options.models;
  permission["rights"] = options.rights;
  nlohmann::ordered_json entry;
  entry["name"] = options.name;
  entry["hash"] = StrCat("blake2b-256:", salt, ":", hash.HexDigest());
  if (!options.expires.empty()) entry["expires"] = options.expires;
  entry["permissions"] = nlohmann::ordered_json::array({permission});
  key.entry = entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return key;
}

}  // namespace nereid::repo
