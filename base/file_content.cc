// See file_content.h.
#include "base/file_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace nereid {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status CannotRead(const std::string& path) {
  return InternalError("cannot read '", path, "': ", std::strerror(errno));
}

// Reads up to `max_bytes`. `expected_bytes`: the size of the file when it was opened. The loop also
// handles a file whose size changes meanwhile.
Result<std::string> ReadUpTo(int fd, const std::string& path, size_t expected_bytes,
                             size_t max_bytes) {
  // One byte more than the file has, so that the end of the file is detected without another
  // allocation.
  std::string content(std::min(expected_bytes, max_bytes) + 1, '\0');
  size_t size = 0;
  while (size < max_bytes) {
    if (size == content.size()) content.resize(2 * size);
    const size_t wanted = std::min(content.size(), max_bytes) - size;
    const ssize_t taken = ::read(fd, content.data() + size, wanted);
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) return CannotRead(path);
    if (taken == 0) break;
    size += static_cast<size_t>(taken);
  }
  content.resize(size);
  return content;
}

}  // namespace

Result<std::string> PathInside(const std::string& folder, const std::string& relative) {
  namespace fs = std::filesystem;
  const fs::path name(relative);
  const bool leaves = relative.empty() || relative.find('\0') != std::string::npos ||
                      name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
  if (leaves) {
    return InvalidArgError("expected a path inside of '", folder, "', got '", relative, "'");
  }
  const std::string path = (fs::path(folder) / name).string();
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return path;  // opening it fails, too
  const fs::path target = fs::weakly_canonical(root / name, error);
  if (error) return InvalidArgError("'", path, "': ", error.message());
  const auto [end_of_root, at] =
      std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  if (end_of_root != root.end()) {
    return InvalidArgError("expected a path inside of '", folder, "', got '", relative,
                           "', a link to '", target.string(), "'");
  }
  return path;
}

Result<UniqueFd> OpenRegularFile(const std::string& path, size_t* size_bytes) {
  // O_NONBLOCK: opening a FIFO returns at once. It has no effect on regular files.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.is_open()) {
    const int failure = errno;
    // A socket cannot be opened at all.
    if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) {
      return NotFoundError("cannot open '", path, "': ", std::strerror(failure));
    }
  } else if (::fstat(fd.get(), &info) != 0) {
    return CannotRead(path);
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgError("cannot read '", path, "': expected a regular file, got ",
                           KindOf(info.st_mode));
  }
  *size_bytes = static_cast<size_t>(info.st_size);
  return fd;
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  size_t size_bytes = 0;
  NEREID_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, &size_bytes));
  if (size_bytes <= max_bytes) {
    NEREID_ASSIGN_OR_RETURN(std::string content,
                            ReadUpTo(fd.get(), path, size_bytes, max_bytes + 1));
    if (content.size() <= max_bytes) return content;
    size_bytes = content.size();  // it grew, or is a file of the kernel, whose size is 0
  }
  return InvalidArgError("cannot read '", path, "': expected at most ", max_bytes, " bytes, got ",
                         size_bytes);
}

Result<std::string> ReadFileBeginning(const std::string& path, size_t max_bytes) {
  size_t size_bytes = 0;
  NEREID_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, &size_bytes));
  return ReadUpTo(fd.get(), path, size_bytes, max_bytes);
}

}  // namespace nereid
