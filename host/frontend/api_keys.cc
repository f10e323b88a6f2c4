#include "host/frontend/api_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/blake2b.h"
#include "host/frontend/http/json/json_reader.h"
#include "nereid/unique_fd.h"

namespace nereid {
namespace {

using http::JsonReader;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxNameChars = 64;
constexpr std::string_view kAlgorithm = "blake2b-256:";
constexpr std::string_view kNameChars =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
constexpr std::string_view kHexChars = "0123456789abcdef";

uint32_t BitOf(ApiRight right) {
  return uint32_t{1} << static_cast<unsigned>(right);
}

bool IsWord(std::string_view text, std::string_view chars, size_t min, size_t max) {
  return text.size() >= min && text.size() <= max &&
         text.find_first_not_of(chars) == std::string_view::npos;
}

// Runs in time proportional to the product of the lengths, whatever the pattern.
bool MatchesPattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos;  // the last '*' in the pattern
  size_t after_star = 0;                 // where the text after its match begins
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// The time does not depend on where the texts differ.
bool IsSameDigest(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

Result<uint32_t> ParseRight(std::string_view name) {
  if (name == "admin") {
    return BitOf(ApiRight::kModelControl) | BitOf(ApiRight::kLog) | BitOf(ApiRight::kTrace) |
           BitOf(ApiRight::kSharedMemory);
  }
  const auto found = std::find(kApiRightNames.begin(), kApiRightNames.end(), name);
  if (found != kApiRightNames.end()) return uint32_t{1} << (found - kApiRightNames.begin());
  return InvalidArgError("unknown right '", name,
                         "': expected infer, metadata, statistics, model-control, log, trace, "
                         "shared-memory, metrics or admin");
}

// "2027-01-31T00:00:00Z"
Result<int64_t> ParseTime(std::string_view text) {
  tm time = {};
  const std::string copy(text);
  const char* const end = strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  if (text.size() == 20 && end != nullptr && *end == '\0') return timegm(&time);
  return InvalidArgError("'expires': expected a time like 2027-01-31T00:00:00Z, got '", text, "'");
}

Status ReadStrings(JsonReader& reader, const auto& on_text) {
  return reader.ReadArray([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    return on_text(text);
  });
}

Status ReadPermission(JsonReader& reader, ApiKey& key) {
  ApiKey::Permission permission;
  bool has_models = false;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view member) -> Status {
    if (member == "models") {
      has_models = true;
      return ReadStrings(reader, [&](std::string_view pattern) {
        permission.models.emplace_back(pattern);
        return Status::Ok();
      });
    }
    if (member != "rights") {
      return InvalidArgError("unknown member '", member, "': expected 'models' or 'rights'");
    }
    return ReadStrings(reader, [&](std::string_view name) -> Status {
      NEREID_ASSIGN_OR_RETURN(const uint32_t bits, ParseRight(name));
      permission.rights |= bits;
      return Status::Ok();
    });
  }));
  if (!has_models) permission.models.emplace_back("*");
  key.permissions.push_back(std::move(permission));
  return Status::Ok();
}

Status ReadHash(std::string_view text, ApiKey& key) {
  const std::string_view rest =
      text.starts_with(kAlgorithm) ? text.substr(kAlgorithm.size()) : std::string_view();
  const size_t colon = std::min(rest.find(':'), rest.size());
  key.salt = rest.substr(0, colon);
  key.digest = rest.substr(std::min(colon + 1, rest.size()));
  if (IsWord(key.salt, kNameChars, 16, 64) && IsWord(key.digest, kHexChars, 64, 64)) {
    return Status::Ok();
  }
  return InvalidArgError(
      "'hash': expected blake2b-256:<salt of 16 to 64 letters and digits>:<64 hexadecimal "
      "digits>");
}

Status ReadKeyMember(JsonReader& reader, std::string_view member, ApiKey& key) {
  if (member == "permissions") {
    return reader.ReadArray([&] { return ReadPermission(reader, key); });
  }
  if (member != "name" && member != "hash" && member != "expires") {
    return InvalidArgError("unknown member '", member,
                           "': expected name, hash, expires or permissions");
  }
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
  if (member == "hash") return ReadHash(text, key);
  if (member == "expires") {
    NEREID_ASSIGN_OR_RETURN(key.expires_s, ParseTime(text));
    return Status::Ok();
  }
  key.name = text;
  if (IsWord(text, kNameChars, 1, kMaxNameChars)) return Status::Ok();
  return InvalidArgError("'name': expected 1 to ", kMaxNameChars,
                         " letters, digits, '_' or '-', got '", text, "'");
}

Status ReadKey(JsonReader& reader, std::map<std::string, ApiKey, std::less<>>& keys) {
  ApiKey key;
  const Status status = reader.ReadObject(
      [&](std::string_view member) { return ReadKeyMember(reader, member, key); });
  const auto fail = [&](const Status& why) {
    const std::string number = StrCat("key ", keys.size() + 1);
    return Status(why).WithContext(key.name.empty() ? number
                                                    : StrCat(number, " ('", key.name, "')"));
  };
  if (!status.ok()) return fail(status);
  if (key.name.empty()) return fail(InvalidArgError("'name' is missing"));
  if (key.digest.empty()) return fail(InvalidArgError("'hash' is missing"));
  if (keys.contains(key.name)) return fail(InvalidArgError("the name is used twice"));
  keys.emplace(key.name, std::move(key));
  return Status::Ok();
}

// Reads a regular file of limited size. Does not wait for a writer if it is a pipe.
Result<std::string> ReadKeyFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return InvalidArgError(std::strerror(errno));
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidArgError("expected a file");
  }
  std::string content(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t count = read(fd.get(), content.data() + size, content.size() - size);
    if (count < 0) return InvalidArgError(std::strerror(errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > kMaxFileBytes) {
    return InvalidArgError("expected at most ", kMaxFileBytes, " bytes, got more");
  }
  content.resize(size);
  return content;
}

Result<std::shared_ptr<const ApiKeys>> ReadKeys(const std::string& path) {
  const auto read = [&]() -> Result<std::shared_ptr<const ApiKeys>> {
    NEREID_ASSIGN_OR_RETURN(const std::string content, ReadKeyFile(path));
    NEREID_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Parse(content));
    return std::make_shared<const ApiKeys>(std::move(keys));
  };
  auto keys = read();
  if (keys.ok()) return keys;
  return Status(keys.status()).WithContext(StrCat("--api-key-file '", path, "'"));
}

}  // namespace

bool ApiKey::Permits(ApiRight right, ApiScope scope, std::string_view model) const {
  for (const Permission& permission : permissions) {
    if ((permission.rights & BitOf(right)) == 0) continue;
    for (const std::string& pattern : permission.models) {
      if (scope == ApiScope::kServer) return true;
      if (scope == ApiScope::kModel ? MatchesPattern(pattern, model) : pattern == "*") return true;
    }
  }
  return false;
}

Result<ApiKeys> ApiKeys::Parse(std::string_view json) {
  constexpr size_t kMaxDepth = 6;
  ApiKeys result;
  bool has_keys = false;
  JsonReader reader(json, kMaxDepth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view member) -> Status {
    if (member != "keys") return InvalidArgError("unknown member '", member, "': expected 'keys'");
    has_keys = true;
    return reader.ReadArray([&] { return ReadKey(reader, result.keys_); });
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  if (!has_keys) return InvalidArgError("'keys' is missing");
  return result;
}

const ApiKey* ApiKeys::Find(std::string_view text, int64_t now_s) const {
  const std::string_view name = text.substr(0, text.find('.'));
  const auto found = keys_.find(name);
  if (found == keys_.end()) return nullptr;  // names are no secret
  const ApiKey& key = found->second;
  if (!IsSameDigest(ApiKeyDigest(key.salt, text), key.digest)) return nullptr;
  return key.expires_s && now_s >= *key.expires_s ? nullptr : &key;
}

std::string ApiKeyDigest(std::string_view salt, std::string_view text) {
  Blake2b hash;
  hash.Add(salt);
  hash.Add(text);
  return hash.HexDigest();
}

Result<std::shared_ptr<ApiKeyFile>> ApiKeyFile::Open(std::string path) {
  std::shared_ptr<ApiKeyFile> file(new ApiKeyFile(std::move(path)));
  NEREID_RETURN_IF_ERROR(file->Reload());
  return file;
}

Status ApiKeyFile::Reload() {
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const ApiKeys> keys, ReadKeys(path_));
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
  return Status::Ok();
}

}  // namespace nereid
