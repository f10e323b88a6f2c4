// Reads a whole file. [any thread]
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid {

// The file's bytes. NOT_FOUND if it cannot be opened; INTERNAL if it cannot be read, for example
// because it is a directory.
inline Result<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return NotFoundError("cannot open '", path, "': ", std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) info.st_size = 0;
  // One byte more than the file has, so that the end of the file is detected without another
  // allocation. The loop also handles a file whose size changes meanwhile.
  std::string content(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t size = 0;
  while (true) {
    if (size == content.size()) content.resize(2 * size);
    const ssize_t taken = ::read(fd.get(), content.data() + size, content.size() - size);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return InternalError("cannot read '", path, "': ", std::strerror(errno));
    if (taken == 0) break;
    size += static_cast<size_t>(taken);
  }
  content.resize(size);
  return content;
}

}  // namespace nereid
