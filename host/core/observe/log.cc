#include "host/core/observe/log.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>

#include "nereid/unique_fd.h"

namespace nereid::core::log {
namespace {

constexpr char kLetters[] = {'I', 'W', 'E', 'I'};
constexpr const char* kWords[] = {"INFO", "WARNING", "ERROR", "INFO"};

// "2026-11-21T04:02:11.123456Z", without the fraction if `has_fraction` is false.
std::string Iso8601(const timeval& now, bool has_fraction) {
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char text[64], fraction[16] = "";
  if (has_fraction) {
    snprintf(fraction, sizeof(fraction), ".%06ld", static_cast<long>(now.tv_usec));
  }
  snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d%sZ", utc.tm_year + 1900,
           utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, fraction);
  return text;
}

// "I1121 04:02:11.123456"
std::string ShortTime(Level level, const timeval& now) {
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  char text[64];
  snprintf(text, sizeof(text), "%c%02d%02d %02d:%02d:%02d.%06ld",
           kLetters[static_cast<size_t>(level)], utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
           utc.tm_min, utc.tm_sec, static_cast<long>(now.tv_usec));
  return text;
}

// The length in bytes of the UTF-8 character at the start of `text`, which must not be empty; 0 if
// the bytes are not valid UTF-8.
size_t CharLength(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong encodings, surrogates and code points above U+10FFFF.
  const bool is_wrong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                        (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return is_wrong ? 0 : length;
}

void AppendEscaped(char c, std::string* out) {
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    case '\b':
      *out += "\\b";
      return;
    case '\f':
      *out += "\\f";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    out->push_back(c);
    return;
  }
  char code[8];
  snprintf(code, sizeof(code), "\\u%04X", static_cast<unsigned>(c));
  *out += code;
}

void AppendQuoted(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) AppendEscaped(c, out);
  out->push_back('"');
}

// Replaces bytes that are not UTF-8 by U+FFFD, so that the line is valid JSON for any client input.
std::string ToUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharLength(text);
    out += length > 0 ? text.substr(0, length) : std::string_view("\uFFFD");
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

// The part of a path after its last slash.
std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string JsonLine(const timeval& now, Level level, std::string_view file, int line,
                     std::string_view message) {
  std::string text =
      StrCat("{\"time\":\"", Iso8601(now, true), "\",\"level\":\"",
             level == Level::kVerbose ? "VERBOSE" : kWords[static_cast<size_t>(level)],
             "\",\"pid\":", getpid(), ",\"file\":");
  AppendQuoted(ToUtf8(Basename(file)), &text);
  text += StrCat(",\"line\":", line, ",\"message\":");
  AppendQuoted(ToUtf8(message), &text);
  return text + "}\n";
}

// Formats a line of the log, including its line feed. With `escape`, the message is escaped and
// quoted. JSON always escapes it. `file` may be a path; only its last component is printed.
std::string FormatLine(Format format, Level level, std::string_view file, int line,
                       std::string_view message, bool escape) {
  timeval now;
  gettimeofday(&now, nullptr);
  if (format == kJsonFormat) return JsonLine(now, level, file, line, message);
  const std::string_view letter(&kLetters[static_cast<size_t>(level)], 1);
  const std::string time =
      format == Format::kIso8601 ? StrCat(Iso8601(now, false), " ", letter) : ShortTime(level, now);
  std::string text = StrCat(time, " ", getpid(), " ", Basename(file), ":", line, "] ");
  if (escape) {
    AppendQuoted(message, &text);
  } else {
    text += message;
  }
  return text + "\n";
}

Format InitialFormat() {
  const char* const value = std::getenv("NEREID_LOG_FORMAT");
  return value != nullptr && std::string_view(value) == "json" ? kJsonFormat : Format::kDefault;
}

// The same variable as in Triton: "0" disables escaping. A message may then span several lines.
bool EscapesMessages() {
  const char* const value = std::getenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES");
  return value == nullptr || std::string_view(value) != "0";
}

// The atomic settings are read without a lock. The mutex guards the destination of the lines.
struct Logger {
  std::atomic<bool> enabled[3] = {true, true, true};
  std::atomic<int> verbose_depth{0};
  std::atomic<Format> format{InitialFormat()};
  const bool escapes = EscapesMessages();

  std::mutex mutex;  // guards the members below
  UniqueFd fd;       // closed if the log goes to stderr
  std::string file;
  std::shared_ptr<const Callback> callback;
};

Logger& Get() {
  // Never destroyed, because threads of backends may log while the process exits.
  static Logger* const logger = new Logger;
  return *logger;
}

// Writes each line with one system call, so that lines of several threads and processes do not mix.
void Emit(const std::string& text) {
  Logger& logger = Get();
  std::lock_guard lock(logger.mutex);
  const int fd = logger.fd.is_open() ? logger.fd.get() : STDERR_FILENO;
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return;  // an error of the log itself cannot be reported
    done += static_cast<size_t>(n);
  }
}

void WriteLine(Level level, std::string_view file, int line, std::string_view message,
               bool escape) {
  if (!Enabled(level)) return;
  const Format format = Get().format.load(std::memory_order_relaxed);
  Emit(FormatLine(format, level, file, line, message, escape));
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

}  // namespace nereid::core::log
