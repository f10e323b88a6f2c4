// Traces as a JSON array in a file, in Triton's form. The file is whole JSON after every trace.
// When it cannot be written, the log says so once, and traces are dropped until the settings
// change. [any thread]
#pragma once

#include <mutex>
#include <string>

#include "nereid/status.h"
#include "tracing/trace_sink.h"

namespace nereid {

class TraceFile final : public TraceSink {
 public:
  // With a log frequency the files are `path`.0, `path`.1 ...
  explicit TraceFile(std::string path) : path_(std::move(path)) {}
  ~TraceFile() override;

  void Write(TraceRecord& record, uint64_t log_frequency) override;
  void EndFile() override;

 private:
  Status Append(const std::string& objects, uint64_t log_frequency);
  Status Open(uint64_t log_frequency);
  void Close();

  const std::string path_;
  std::mutex mutex_;  // guards all below
  int fd_ = -1;
  int64_t end_ = 0;  // where the next trace begins: at the closing bracket
  uint64_t num_in_file_ = 0;
  uint64_t next_file_ = 0;
  bool has_failed_ = false;
};

}  // namespace nereid
