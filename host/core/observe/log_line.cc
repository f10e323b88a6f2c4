#include "host/core/observe/log_line.h"

#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace nereid::log {
namespace {

constexpr char kLetters[] = {'I', 'W', 'E', 'I'};
constexpr const char* kWords[] = {"INFO", "WARNING", "ERROR", "INFO"};

// "2026-11-21T04:02:11.123456Z", to the second without `has_fraction`.
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

// The length of the UTF-8 character at the start of `text`, which is not empty; 0: there is none.
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
  // Overlong forms, surrogates, and what is above U+10FFFF.
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

// Bytes that are not UTF-8 become U+FFFD, so that the line is JSON whatever a client sent.
std::string ToUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = CharLength(text);
    out += length > 0 ? text.substr(0, length) : std::string_view("\uFFFD");
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
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

}  // namespace

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string LogLine(Format format, Level level, std::string_view file, int line,
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

}  // namespace nereid::log
