// Parses the request line and the header lines, then interprets the headers.
#include "host/frontend/http/transport/http_request.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace nereid::http {
namespace {

using MaybeError = std::optional<HeadError>;

constexpr std::array<bool, 256> MakeTokenTable() {
  std::array<bool, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[c] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = true;
  for (int c = '0'; c <= '9'; ++c) table[c] = true;
  for (const char c : std::string_view("!#$%&'*+-.^_`|~"))
    table[static_cast<unsigned char>(c)] = true;
  return table;
}
constexpr std::array<bool, 256> kIsTokenChar = MakeTokenTable();

bool IsToken(std::string_view text) {
  for (const unsigned char c : text) {
    if (!kIsTokenChar[c]) return false;
  }
  return !text.empty();
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

// Returns the reason if `line` is not a name, a colon and a value.
const char* FaultOfHeaderLine(std::string_view line) {
  const size_t colon = line.find(':');
  // A name followed by a blank and a folded line fail here, because neither is a token.
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    return "malformed header line";
  }
  return HasControlCharacter(line.substr(colon + 1)) ? "control character in a header" : nullptr;
}

MaybeError ParseHeaderLine(std::string_view line, RequestHead& head) {
  if (const char* const fault = FaultOfHeaderLine(line)) return HeadError{400, fault};
  const size_t colon = line.find(':');
  head.headers.emplace_back(line.substr(0, colon), TrimBlanks(line.substr(colon + 1)));
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

bool IsHostChar(unsigned char c) {
  return c > ' ' &&
         std::string_view("/?#@,\\\"<>").find(static_cast<char>(c)) == std::string_view::npos;
}

// Evaluates the headers that describe the body and the lifetime of the connection.
MaybeError InterpretHeaders(RequestHead& head) {
  size_t num_hosts = 0;
  for (const auto& [name, value] : head.headers) {
    if (EqualsIgnoreCase(name, "content-length")) {
      if (MaybeError error = ReadContentLength(value, head)) return error;
    } else if (EqualsIgnoreCase(name, "transfer-encoding")) {
      if (head.is_chunked || head.is_http10 || !EqualsIgnoreCase(value, "chunked")) {
        return HeadError{501, "unsupported Transfer-Encoding"};
      }
      head.is_chunked = true;
    } else if (EqualsIgnoreCase(name, "connection")) {
      if (ListContains(value, "close")) {
        head.keep_alive = false;
      } else if (head.is_http10 && ListContains(value, "keep-alive")) {
        head.keep_alive = true;
      }
    } else if (EqualsIgnoreCase(name, "expect")) {
      if (!EqualsIgnoreCase(value, "100-continue")) return HeadError{417, "unknown expectation"};
      head.expects_continue = !head.is_http10;
    } else if (EqualsIgnoreCase(name, "host")) {
      ++num_hosts;
      if (!std::all_of(value.begin(), value.end(), IsHostChar)) {
        return HeadError{400, "malformed Host header"};
      }
    }
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
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; });
}

bool IsHeaderLine(std::string_view line) {
  return FaultOfHeaderLine(line) == nullptr;
}

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; };
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

std::string_view RequestHead::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoreCase(key, name)) return value.data() == nullptr ? "" : value;
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
