#include "observe/log.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>

#include "nereid/unique_fd.h"

namespace nereid::log {
namespace {

// Switches are read without a lock; what a line is made of and where it goes is guarded.
struct Logger {
  std::atomic<bool> enabled[3] = {true, true, true};
  std::atomic<int> verbose_depth{0};
  std::atomic<Format> format{Format::kDefault};

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

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

constexpr char kLetters[] = {'I', 'W', 'E', 'I'};
constexpr const char* kWords[] = {"INFO", "WARNING", "ERROR", "INFO"};

// "I1121 04:02:11.123456 321 file.cc:12] " or "2026-11-21T04:02:11Z INFO 321 file.cc:12] ".
std::string Prefix(Level level, std::string_view file, int line) {
  timeval now;
  gettimeofday(&now, nullptr);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  const auto index = static_cast<size_t>(level);
  char time[64];
  if (Get().format.load(std::memory_order_relaxed) == Format::kIso8601) {
    snprintf(time, sizeof(time), "%04d-%02d-%02dT%02d:%02d:%02dZ %s", utc.tm_year + 1900,
             utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, kWords[index]);
  } else {
    snprintf(time, sizeof(time), "%c%02d%02d %02d:%02d:%02d.%06ld", kLetters[index], utc.tm_mon + 1,
             utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<long>(now.tv_usec));
  }
  return StrCat(time, " ", getpid(), " ", Basename(file), ":", line, "] ");
}

void AppendEscaped(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char code[8];
          snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
          *out += code;
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
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
  std::string text = Prefix(level, file, line);
  if (escape) {
    AppendEscaped(message, &text);
  } else {
    text += message;
  }
  text.push_back('\n');
  Emit(text);
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
  WriteLine(level, file, line, message, true);
}

void WriteRaw(Level level, std::string_view file, int line, std::string_view message) {
  WriteLine(level, file, line, message, false);
}

}  // namespace nereid::log
