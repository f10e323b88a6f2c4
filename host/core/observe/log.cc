#include "host/core/observe/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "host/core/observe/log_line.h"
#include "nereid/unique_fd.h"

namespace nereid::log {
namespace {

Format InitialFormat() {
  const char* const wanted = std::getenv("NEREID_LOG_FORMAT");
  return wanted != nullptr && std::string_view(wanted) == "json" ? kJsonFormat : Format::kDefault;
}

// As Triton's: "0" leaves messages as they are, which may then look like several lines.
bool EscapesMessages() {
  const char* const wanted = std::getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
  return wanted == nullptr || std::string_view(wanted) != "0";
}

// Switches are read without a lock; what a line is made of and where it goes is guarded.
struct Logger {
  std::atomic<bool> enabled[3] = {true, true, true};
  std::atomic<int> verbose_depth{0};
  std::atomic<Format> format{InitialFormat()};
  const bool escapes = EscapesMessages();

  std::mutex mutex;  // guards the members below
  UniqueFd fd;       // closed: stderr
  std::string file;
  std::shared_ptr<const Callback> callback;
};

Logger& Get() {
  // Never destroyed: threads of backends may log while the process exits.
  static Logger* const logger = new Logger;
  return *logger;
}

// One write a line, so that lines of several threads and processes do not mix.
void Emit(const std::string& text) {
  Logger& logger = Get();
  std::lock_guard lock(logger.mutex);
  const int fd = logger.fd.is_open() ? logger.fd.get() : STDERR_FILENO;
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return;  // nowhere to complain
    done += static_cast<size_t>(n);
  }
}

void WriteLine(Level level, std::string_view file, int line, std::string_view message,
               bool escape) {
  if (!Enabled(level)) return;
  const Format format = Get().format.load(std::memory_order_relaxed);
  Emit(LogLine(format, level, file, line, message, escape));
  std::shared_ptr<const Callback> callback;
  {
    std::lock_guard lock(Get().mutex);
    callback = Get().callback;
  }
  if (callback != nullptr) (*callback)(level, Basename(file), line, message);
}

}  // namespace

bool Enabled(Level level) {
  if (level == Level::kVerbose) return VerboseEnabled(1);
  const auto index = static_cast<size_t>(level);
  return index < 3 && Get().enabled[index].load(std::memory_order_relaxed);
}

bool VerboseEnabled(int depth) {
  return Get().verbose_depth.load(std::memory_order_relaxed) >= depth;
}

void SetEnabled(Level level, bool enabled) {
  const auto index = static_cast<size_t>(level);
  if (index < 3) Get().enabled[index].store(enabled, std::memory_order_relaxed);
}

void SetVerboseDepth(int depth) {
  Get().verbose_depth.store(depth, std::memory_order_relaxed);
}

void SetFormat(Format format) {
  Get().format.store(format, std::memory_order_relaxed);
}

Status SetFile(const std::string& path) {
  UniqueFd fd;
  if (!path.empty()) {
    fd.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!fd.is_open())
      return InvalidArgError("log file '", path, "': cannot be opened for writing");
  }
  std::lock_guard lock(Get().mutex);
  Get().fd = std::move(fd);
  Get().file = path;
  return Status::Ok();
}

Settings GetSettings() {
  Logger& logger = Get();
  std::lock_guard lock(logger.mutex);
  return {logger.enabled[0],    logger.enabled[1], logger.enabled[2],
          logger.verbose_depth, logger.format,     logger.file};
}

void SetCallback(Callback callback) {
  auto shared = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
  std::lock_guard lock(Get().mutex);
  Get().callback = std::move(shared);
}

void Write(Level level, std::string_view file, int line, std::string_view message) {
  WriteLine(level, file, line, message, Get().escapes);
}

void WriteRaw(Level level, std::string_view file, int line, std::string_view message) {
  WriteLine(level, file, line, message, false);
}

}  // namespace nereid::log
