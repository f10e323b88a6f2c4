#include "host/frontend/tracing/http_post.h"

#include <chrono>
#include <utility>

#include "host/frontend/tracing/collector_stream.h"

namespace nereid {
namespace {

// Only its status is of interest.
constexpr size_t kMaxAnswerBytes = 64 << 10;

// Ok when the final status is 2xx.
Status ReadAnswer(CollectorStream& stream, int timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::string answer;
  char block[512];
  while (answer.size() < kMaxAnswerBytes && std::chrono::steady_clock::now() < deadline) {
    const ssize_t received = stream.Receive(block, sizeof(block));
    if (received <= 0) break;
    answer.append(block, static_cast<size_t>(received));
    NEREID_ASSIGN_OR_RETURN(const int status, ReadHttpStatus(answer));
    if (status == 0) continue;
    if (status / 100 == 2) return Status::Ok();
    return UnavailableError("answered ", status);
  }
  return UnavailableError("no answer");
}

}  // namespace

Result<int> ReadHttpStatus(std::string_view answer) {
  constexpr std::string_view kForm = "HTTP/1.N NNN";  // N: a digit
  while (true) {
    const std::string_view line = answer.substr(0, kForm.size());
    for (size_t i = 0; i < line.size(); ++i) {
      if (kForm[i] == 'N' ? line[i] >= '0' && line[i] <= '9' : line[i] == kForm[i]) continue;
      return UnavailableError("expected an answer of HTTP/1.1, got '", line, "'");
    }
    if (line.size() < kForm.size()) return 0;
    const int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status / 100 != 1) return status;
    // Not the final answer, which stands behind it.
    const size_t end = answer.find("\r\n\r\n");
    if (end == std::string_view::npos) return 0;
    answer.remove_prefix(end + 4);
  }
}

Status HttpPost(const HttpUrl& url, const TlsClient* tls, std::string_view content_type,
                std::string_view body, int timeout_s) {
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  const std::string name = StrCat(is_ipv6 ? "[" : "", url.host, is_ipv6 ? "]:" : ":", url.port);
  Result<CollectorStream> stream = CollectorStream::Connect(url, tls, timeout_s);
  if (!stream.ok()) return std::move(stream).status().WithContext(name);
  const std::string head =
      StrCat("POST ", url.path, " HTTP/1.1\r\nHost: ", name, "\r\nContent-Type: ", content_type,
             "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n");
  if (!stream->SendAll(head) || !stream->SendAll(body)) {
    return UnavailableError(name, ": cannot send");
  }
  return ReadAnswer(*stream, timeout_s).WithContext(name);
}

}  // namespace nereid
