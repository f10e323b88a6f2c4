#include "host/frontend/openai/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/router.h"

namespace nereid::openai {
namespace {

constexpr size_t kMaxPathBytes = 256;

std::string_view NameOf(http::Method method) {
  switch (method) {
    case http::Method::kGet:
      return "GET";
    case http::Method::kHead:
      return "HEAD";
    case http::Method::kPost:
      return "POST";
    case http::Method::kPut:
      return "PUT";
    case http::Method::kDelete:
      return "DELETE";
    case http::Method::kOptions:
      return "OPTIONS";
    default:
      return "other";
  }
}

// "2026-01-31T12:00:00.123Z"
std::string TimeText() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40], whole[48];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(whole, sizeof(whole), "%s.%03dZ", text, static_cast<int>(ms.count() % 1000));
  return whole;
}

std::string Milliseconds(uint64_t start_ns, uint64_t end_ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", static_cast<double>(end_ns - start_ns) / 1e6);
  return text;
}

Result<int> OpenFile(const std::string& path) {
  const int fd = path == "-" ? dup(STDERR_FILENO)
                             : open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (fd >= 0) return fd;
  return UnavailableError("--access-log: '", path, "': ", std::strerror(errno));
}

}  // namespace

class AccessLog::Record final : public http::RequestNotes {
 public:
  Record(AccessLog& log, const http::RequestHead& head, uint64_t start_ns)
      : log_(log),
        method_(head.method),
        path_(head.path.substr(0, kMaxPathBytes)),
        start_ns_(start_ns) {
    model = http::FindRoute(head.path).model.name.substr(0, kMaxPathBytes);
  }
  ~Record() override {
    try {
      log_.Write(Line());
    } catch (const std::bad_alloc&) {
      // The line is lost.
    }
  }

 private:
  std::string Line() const {
    std::string line =
        StrCat("{\"time\":\"", TimeText(), "\",\"method\":\"", NameOf(method_), "\",\"path\":");
    http::AppendLossyJsonString(line, path_);
    line += StrCat(",\"status\":", status);
    for (const auto& [name, text] : {std::pair("id", &id), std::pair("model", &model)}) {
      if (text->empty()) continue;
      line += StrCat(",\"", name, "\":");
      http::AppendLossyJsonString(line, *text);
    }
    if (first_output_ns != 0) {
      line += StrCat(",\"prompt_tokens\":", prompt_tokens, ",\"output_tokens\":", output_tokens,
                     ",\"first_output_ms\":", Milliseconds(start_ns_, first_output_ns));
    }
    return line + StrCat(",\"duration_ms\":", Milliseconds(start_ns_, SteadyNowNs()), "}\n");
  }

  AccessLog& log_;
  const http::Method method_;
  const std::string path_;
  const uint64_t start_ns_;
};

Result<std::unique_ptr<AccessLog>> AccessLog::Open(const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const int fd, OpenFile(path));
  return std::unique_ptr<AccessLog>(new AccessLog(fd, path));
}

Status AccessLog::Reopen() {
  NEREID_ASSIGN_OR_RETURN(const int fd, OpenFile(path_));
  // A thread that writes meanwhile writes its line to the one file or to the other.
  const bool is_replaced = dup3(fd, fd_, O_CLOEXEC) >= 0;
  const int error = errno;
  close(fd);
  if (is_replaced) return Status::Ok();
  return UnavailableError("--access-log: '", path_, "': ", std::strerror(error));
}

AccessLog::~AccessLog() {
  close(fd_);
}

std::shared_ptr<http::RequestNotes> AccessLog::Begin(const http::RequestHead& head,
                                                     uint64_t start_ns) {
  return std::make_shared<Record>(*this, head, start_ns);
}

// One call, so that the lines of several threads do not mix.
void AccessLog::Write(const std::string& line) {
  [[maybe_unused]] const ssize_t num_written = write(fd_, line.data(), line.size());
}

}  // namespace nereid::openai
