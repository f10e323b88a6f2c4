// The hashes by which a hub names contents. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::cli {

enum class HashKind {
  kNone,     // an ETag of another form
  kSha256,   // of large files
  kGitBlob,  // SHA-1 of the contents after git's header, of all other files
};

// The kind of hash that has as many hexadecimal digits as `hash`.
HashKind KindOfHash(std::string_view hash);

// The hash of a whole file in hexadecimal digits. `kind` is not kNone. UNAVAILABLE if OpenSSL is
// not installed.
Result<std::string> HashFile(const std::string& path, HashKind kind);

}  // namespace nereid::cli
