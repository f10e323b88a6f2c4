// Parses the request line and the header lines, then interprets the headers.
#include "host/frontend/http/transport/http_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace nereid::http {
namespace {

using MaybeError = std::optional<HeadError>;

// What a byte may be part of.
enum CharClass : uint8_t { kToken = 1, kHost = 2 };

constexpr std::array<uint8_t, 256> MakeCharClasses() {
  std::array<uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[c] |= kToken;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] |= kToken;
  for (int c = '0'; c <= '9'; ++c) table[c] |= kToken;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) table[static_cast<uint8_t>(c)] |= kToken;
  for (int c = ' ' + 1; c < 256; ++c) table[c] |= kHost;
  for (const char c : std::string_view("/?#@,\\\"<>")) table[static_cast<uint8_t>(c)] &= ~kHost;
  return table;
}
constexpr std::array<uint8_t, 256> kCharClasses = MakeCharClasses();

// Returns the length of the part at the start of `text` whose bytes are all of `char_class`.
size_t PrefixOf(CharClass char_class, std::string_view text) {
  size_t size = 0;
  while (size < text.size() && (kCharClasses[static_cast<uint8_t>(text[size])] & char_class) != 0)
    ++size;
  return size;
}

bool IsToken(std::string_view text) {
  return !text.empty() && PrefixOf(kToken, text) == text.size();
}

// Eight bytes at once.
constexpr size_t kWordBytes = sizeof(uint64_t);
constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighBits = 0x80 * kOnes;

uint64_t LoadWord(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, kWordBytes);
  return word;
}

// True if a byte of `word` is less than `bound`, which is at most 128.
constexpr bool HasByteBelow(uint64_t word, uint8_t bound) {
  return ((word - bound * kOnes) & ~word & kHighBits) != 0;
}

bool IsControl(char c) {
  return (static_cast<uint8_t>(c) < ' ' && c != '\t') || c == 0x7f;
}

// ASCII letters in lower case; other bytes as they are.
constexpr char ToLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

constexpr uint64_t ToLower(uint64_t word) {
  const uint64_t low_bits = word & ~kHighBits;
  const uint64_t from_a = low_bits + (0x80 - 'A') * kOnes;
  const uint64_t above_z = low_bits + (0x7f - 'Z') * kOnes;
  const uint64_t is_upper = (from_a ^ above_z) & ~word & kHighBits;
  return word | is_upper >> 2;  // 0x20 is the difference between the cases
}

std::string_view TrimBlanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Returns true if `list`, a comma-separated header value, contains `token`.
bool ListContains(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (EqualsIgnoreCase(TrimBlanks(list.substr(0, comma)), token)) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

Method ToMethod(std::string_view name) {
  if (name == "GET") return Method::kGet;
  if (name == "POST") return Method::kPost;
  if (name == "HEAD") return Method::kHead;
  if (name == "PUT") return Method::kPut;
  if (name == "DELETE") return Method::kDelete;
  if (name == "OPTIONS") return Method::kOptions;
  return Method::kOther;
}

// Removes scheme and host from an absolute request target (RFC 9112, 3.2.2).
std::string_view StripAuthority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

MaybeError ParseRequestLine(std::string_view line, RequestHead& head) {
  const size_t first_space = line.find(' ');
  const size_t last_space = line.rfind(' ');
  if (first_space == std::string_view::npos || first_space == last_space) {
    return HeadError{400, "malformed request line"};
  }
  const std::string_view method = line.substr(0, first_space);
  if (!IsToken(method)) return HeadError{400, "malformed method"};
  head.method = ToMethod(method);

  std::string_view target = line.substr(first_space + 1, last_space - first_space - 1);
  for (const unsigned char c : target) {
    if (c <= ' ' || c == 0x7f) return HeadError{400, "malformed request target"};
  }
  target = StripAuthority(target);
  if (target.empty() || (target.front() != '/' && target != "*")) {
    return HeadError{400, "malformed request target"};
  }
  const size_t question_mark = target.find('?');
  head.path = target.substr(0, question_mark);
  if (question_mark != std::string_view::npos) head.query = target.substr(question_mark + 1);

  const std::string_view version = line.substr(last_space + 1);
  if (version == "HTTP/1.1") return std::nullopt;
  if (version != "HTTP/1.0") return HeadError{505, "HTTP version not supported"};
  head.is_http10 = true;
  head.keep_alive = false;
  return std::nullopt;
}

// Splits `line` into `name` and `value`. Returns the reason if it is not a name, a colon and a
// value.
const char* SplitHeaderLine(std::string_view line, std::string_view& name,
                            std::string_view& value) {
  const size_t colon = PrefixOf(kToken, line);
  // A name followed by a blank and a folded line fail here, because neither is a token.
  if (colon == 0 || colon == line.size() || line[colon] != ':') return "malformed header line";
  name = line.substr(0, colon);
  value = line.substr(colon + 1);
  return HasControlCharacter(value) ? "control character in a header" : nullptr;
}

MaybeError ParseHeaderLine(std::string_view line, RequestHead& head) {
  std::string_view name, value;
  if (const char* const fault = SplitHeaderLine(line, name, value)) return HeadError{400, fault};
  head.headers.emplace_back(name, TrimBlanks(value));
  return std::nullopt;
}

MaybeError ReadContentLength(std::string_view value, RequestHead& head) {
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
  if (error != std::errc() || end != value.data() + value.size()) {
    return HeadError{400, "malformed Content-Length"};
  }
  if (head.content_length && *head.content_length != length) {
    return HeadError{400, "conflicting Content-Length headers"};
  }
  head.content_length = length;
  return std::nullopt;
}

// A request has exactly one Host header, which only HTTP/1.0 may omit (RFC 9112, 3.2).
MaybeError CheckHost(size_t num_hosts, const RequestHead& head) {
  if (num_hosts > 1) return HeadError{400, "more than one Host header"};
  if (num_hosts == 0 && !head.is_http10) return HeadError{400, "no Host header"};
  return std::nullopt;
}

MaybeError InterpretConnection(std::string_view value, RequestHead& head) {
  if (ListContains(value, "close")) {
    head.keep_alive = false;
  } else if (head.is_http10 && ListContains(value, "keep-alive")) {
    head.keep_alive = true;
  }
  return std::nullopt;
}

MaybeError InterpretTransferEncoding(std::string_view value, RequestHead& head) {
  if (head.is_chunked || head.is_http10 || !EqualsIgnoreCase(value, "chunked")) {
    return HeadError{501, "unsupported Transfer-Encoding"};
  }
  head.is_chunked = true;
  return std::nullopt;
}

MaybeError InterpretExpect(std::string_view value, RequestHead& head) {
  if (!EqualsIgnoreCase(value, "100-continue")) return HeadError{417, "unknown expectation"};
  head.expects_continue = !head.is_http10;
  return std::nullopt;
}

MaybeError InterpretHost(std::string_view value, size_t& num_hosts) {
  ++num_hosts;
  if (PrefixOf(kHost, value) == value.size()) return std::nullopt;
  return HeadError{400, "malformed Host header"};
}

// Evaluates a header if it describes the body or the lifetime of the connection. No two of these
// have names of one length.
MaybeError InterpretHeader(std::string_view name, std::string_view value, size_t& num_hosts,
                           RequestHead& head) {
  const auto is = [name](std::string_view known) { return EqualsIgnoreCase(name, known); };
  switch (name.size()) {
    case 4:
      return is("host") ? InterpretHost(value, num_hosts) : std::nullopt;
    case 6:
      return is("expect") ? InterpretExpect(value, head) : std::nullopt;
    case 10:
      return is("connection") ? InterpretConnection(value, head) : std::nullopt;
    case 14:
      return is("content-length") ? ReadContentLength(value, head) : std::nullopt;
    case 17:
      return is("transfer-encoding") ? InterpretTransferEncoding(value, head) : std::nullopt;
    default:
      return std::nullopt;
  }
}

MaybeError InterpretHeaders(RequestHead& head) {
  size_t num_hosts = 0;
  for (const auto& [name, value] : head.headers) {
    if (MaybeError error = InterpretHeader(name, value, num_hosts, head)) return error;
  }
  if (MaybeError error = CheckHost(num_hosts, head)) return error;
  if (head.is_chunked && head.content_length) {
    return HeadError{400, "both Transfer-Encoding and Content-Length"};
  }
  return std::nullopt;
}

// Removes the next line from `text` and returns it without its CR LF.
MaybeError ConsumeLine(std::string_view& text, std::string_view& line) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end == 0 || text[end - 1] != '\r') {
    return HeadError{400, "line does not end in CR LF"};
  }
  line = text.substr(0, end - 1);
  text.remove_prefix(end + 1);
  return std::nullopt;
}

}  // namespace

bool HasControlCharacter(std::string_view text) {
  size_t at = 0;
  for (; at + kWordBytes <= text.size(); at += kWordBytes) {
    const uint64_t word = LoadWord(text.data() + at);
    const bool may_have = HasByteBelow(word, ' ') || HasByteBelow(word ^ 0x7f * kOnes, 1);
    if (may_have && std::any_of(text.begin() + at, text.begin() + at + kWordBytes, &IsControl)) {
      return true;
    }
  }
  return std::any_of(text.begin() + at, text.end(), &IsControl);
}

bool IsHeaderLine(std::string_view line) {
  std::string_view name, value;
  return SplitHeaderLine(line, name, value) == nullptr;
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  const size_t size = a.size();
  if (size != b.size()) return false;
  if (size < kWordBytes) {
    return std::equal(a.begin(), a.end(), b.begin(),
                      [](char x, char y) { return ToLower(x) == ToLower(y); });
  }
  const auto is_same = [&](size_t at) {
    const uint64_t x = LoadWord(a.data() + at), y = LoadWord(b.data() + at);
    return x == y || ToLower(x) == ToLower(y);
  };
  for (size_t at = 0; at + kWordBytes < size; at += kWordBytes) {
    if (!is_same(at)) return false;
  }
  return is_same(size - kWordBytes);  // the last word may overlap the one before
}

std::string_view RequestHead::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key.size() != name.size() || !EqualsIgnoreCase(key, name)) continue;
    return value.data() == nullptr ? "" : value;
  }
  return {};
}

std::optional<size_t> FindHeadEnd(std::string_view bytes, size_t scanned) {
  // A bare "\n\n" also ends the search, so that such a client gets an answer, which is 400.
  for (size_t at = bytes.find('\n', scanned < 2 ? 0 : scanned - 2); at != std::string_view::npos;
       at = bytes.find('\n', at + 1)) {
    if (bytes.substr(at + 1, 2) == "\r\n") return at + 3;
    if (at + 1 < bytes.size() && bytes[at + 1] == '\n') return at + 2;
  }
  return std::nullopt;
}

std::optional<HeadError> ParseHead(std::string_view text, const HttpLimits& limits,
                                   RequestHead& head) {
  auto headers = std::move(head.headers);  // keeps the capacity
  headers.clear();
  head = RequestHead();
  head.headers = std::move(headers);
  std::string_view line;
  if (MaybeError error = ConsumeLine(text, line)) return error;
  if (MaybeError error = ParseRequestLine(line, head)) return error;
  while (true) {
    if (MaybeError error = ConsumeLine(text, line)) return error;
    if (line.empty()) break;
    if (head.headers.size() >= limits.max_headers)
      return HeadError{431, "too many header lines (--http-max-headers)"};
    if (MaybeError error = ParseHeaderLine(line, head)) return error;
  }
  return InterpretHeaders(head);
}

}  // namespace nereid::http
