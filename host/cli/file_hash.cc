#include "host/cli/file_hash.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/file_content.h"
#include "net/openssl_on_demand.h"

namespace nereid::cli {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

std::string ToHex(const unsigned char* bytes, size_t size) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

}  // namespace

HashKind KindOfHash(std::string_view hash) {
  const bool is_hex = std::all_of(hash.begin(), hash.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (is_hex && hash.size() == 64) return HashKind::kSha256;
  return is_hex && hash.size() == 40 ? HashKind::kGitBlob : HashKind::kNone;
}

Result<std::string> HashFile(const std::string& path, HashKind kind) {
  NEREID_RETURN_IF_ERROR(net::LoadOpenSsl());
  size_t size_bytes = 0;
  NEREID_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path, &size_bytes));
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  const EVP_MD* const digest = kind == HashKind::kSha256 ? EVP_sha256() : EVP_sha1();
  bool is_good = context != nullptr && EVP_DigestInit_ex(context.get(), digest, nullptr) == 1;
  if (is_good && kind == HashKind::kGitBlob) {
    const std::string header = StrCat("blob ", size_bytes);
    is_good = EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1) == 1;
  }
  std::vector<char> buffer(size_t{1} << 20);
  while (is_good) {
    const ssize_t count = read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return InternalError("'", path, "': ", std::strerror(errno));
    if (count == 0) break;
    is_good = EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(count)) == 1;
  }
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned num_bytes = 0;
  if (!is_good || EVP_DigestFinal_ex(context.get(), bytes, &num_bytes) != 1) {
    return InternalError("'", path, "': OpenSSL cannot compute the hash");
  }
  return ToHex(bytes, num_bytes);
}

}  // namespace nereid::cli
