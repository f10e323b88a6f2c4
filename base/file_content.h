// Reads whole files of repositories and checkpoints. Only regular files are read: opening a FIFO
// without a writer would block, and a device may have no end. [any thread]
#pragma once

#include <cstddef>
#include <string>

#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid {

// The limit of text files of kinds that have no limit of their own.
inline constexpr size_t kMaxTextFileBytes = size_t{64} << 20;

// The file's bytes. NOT_FOUND if it cannot be opened; INVALID_ARG if it is no regular file or has
// more than `max_bytes`; INTERNAL if it cannot be read. Messages name the path and both values.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes);

// The first `max_bytes` of the file, or all bytes if it has fewer. Errors as ReadFile.
Result<std::string> ReadFileBeginning(const std::string& path, size_t max_bytes);

// Opens a regular file for reading, for files that are read in parts or mapped. `size_bytes`
// receives its size. Errors as ReadFile.
Result<UniqueFd> OpenRegularFile(const std::string& path, size_t* size_bytes);

// The path of `relative` in `folder`, for names that a configuration gives. INVALID_ARG if it is
// absolute, contains "..", or leads out of `folder` through a symbolic link. The file need not
// exist.
Result<std::string> PathInside(const std::string& folder, const std::string& relative);

}  // namespace nereid
