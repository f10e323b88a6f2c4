// The repository agent `checksum`: fails the load of a model if the checksum of a file differs from
// the expected one. Parameters in the model's configuration: the key is "MD5:<file, relative to the
// model's folder>", the value the 32 hexadecimal digits that md5sum prints. [load threads]
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nereid/error.h"
#include "nereid/unique_fd.h"
#include "triton/core/tritonrepoagent.h"

namespace {

using nereid::Result;
using nereid::Status;
using nereid::ToStatus;

constexpr std::string_view kMd5 = "MD5:";

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

Result<std::string> Md5OfFile(const std::filesystem::path& path) {
  // Only a regular file has an end. O_NONBLOCK: opening a FIFO returns at once.
  const nereid::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return nereid::NotFoundError("checksum: file '", path.string(), "' cannot be read");
  }
  const std::unique_ptr<EVP_MD_CTX, FreeContext> md5(EVP_MD_CTX_new());
  bool is_good = md5 != nullptr && EVP_DigestInit_ex(md5.get(), EVP_md5(), nullptr) == 1;
  std::vector<char> piece(1 << 16);
  // Not more than the file had: a file of the kernel may have no end.
  for (auto left = static_cast<size_t>(info.st_size); is_good && left > 0;) {
    const ssize_t taken = ::read(fd.get(), piece.data(), std::min(left, piece.size()));
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) {
      return nereid::InternalError("checksum: file '", path.string(), "' cannot be read");
    }
    is_good = EVP_DigestUpdate(md5.get(), piece.data(), static_cast<size_t>(taken)) == 1;
    left -= static_cast<size_t>(taken);
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (!is_good || EVP_DigestFinal_ex(md5.get(), digest, &size) != 1) {
    return nereid::UnavailableError("checksum: OpenSSL cannot compute MD5 hashes");
  }
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

bool IsInside(const std::filesystem::path& relative) {
  if (relative.empty() || relative.is_absolute()) return false;
  return std::none_of(relative.begin(), relative.end(),
                      [](const std::filesystem::path& part) { return part == ".."; });
}

Status CheckFile(const std::string& folder, std::string_view key, std::string expected) {
  if (key.substr(0, kMd5.size()) != kMd5) {
    return nereid::InvalidArgError("checksum: parameter '", key, "': expected MD5:<file>");
  }
  const std::filesystem::path file(key.substr(kMd5.size()));
  if (!IsInside(file)) {
    return nereid::InvalidArgError("checksum: parameter '", key,
                                   "': expected a file inside the model's folder");
  }
  NEREID_ASSIGN_OR_RETURN(const std::string actual, Md5OfFile(folder / file));
  std::transform(expected.begin(), expected.end(), expected.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (actual == expected) return {};
  return nereid::InvalidArgError("Mismatched MD5 hash for file ", file.string(),
                                 ", expecting: ", expected, ", got: ", actual);
}

Status CheckFiles(TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  TRITONREPOAGENT_ArtifactType type = TRITONREPOAGENT_ARTIFACT_FILESYSTEM;
  const char* folder = nullptr;
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &folder)));
  if (type != TRITONREPOAGENT_ARTIFACT_FILESYSTEM) {
    return nereid::UnsupportedError("checksum: expected a model in the filesystem, got type ",
                                    static_cast<int>(type));
  }
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONREPOAGENT_ModelParameterCount(agent, model, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char *key = nullptr, *value = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONREPOAGENT_ModelParameter(agent, model, i, &key, &value)));
    NEREID_RETURN_IF_ERROR(CheckFile(folder, key, value));
  }
  return {};
}

}  // namespace

extern "C" {

TRITONREPOAGENT_ISPEC TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model,
    const TRITONREPOAGENT_ActionType action_type) {
  return nereid::GuardCBoundary("checksum", [&]() -> Status {
    if (action_type != TRITONREPOAGENT_ACTION_LOAD) return {};
    return CheckFiles(agent, model);
  });
}

}  // extern "C"
