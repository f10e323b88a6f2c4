// The access log of the HTTP port: one line of JSON for each request, with ids, counts and times
// and never a text of a client or a model. [any thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/request_notes.h"
#include "nereid/status.h"

namespace nereid::openai {

class AccessLog {
 public:
  // Appends to the file `path`; "-" is standard error. UNAVAILABLE if it cannot be opened.
  static Result<std::unique_ptr<AccessLog>> Open(const std::string& path);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Opens the file of this name again, after it was renamed. If that fails, lines
  // are still written to the renamed file.
  Status Reopen();

  // Notes of a request that began at `start_ns`, by the steady clock. Their destructor writes the
  // line. The log outlives them.
  std::shared_ptr<http::RequestNotes> Begin(const http::RequestHead& head, uint64_t start_ns);

 private:
  class Record;
  AccessLog(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  void Write(const std::string& line);

  const int fd_;  // keeps its number when it gets another file
  const std::string path_;
};

}  // namespace nereid::openai
