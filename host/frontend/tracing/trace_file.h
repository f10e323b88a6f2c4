// Traces as a JSON array in a file, in Triton's form. The file is whole JSON after every trace.
// When it cannot be written, the log says so once, and traces are dropped until the settings
// change. [any thread]
#pragma once

#include <mutex>
#include <string>

#include "host/frontend/tracing/trace_sink.h"
#include "nereid/status.h"

namespace nereid {

class TraceFile final : public TraceSink {
 public:
  // Files of so many traces are `path`.0, `path`.1 ...
  explicit TraceFile(std::string path) : path_(std::move(path)), all_{path_} {}
  ~TraceFile() override;

  void Write(TraceRecord& record, const TraceFileRule& rule) override;
  void EndFile() override;

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t end = 0;  // where the next trace begins: at the closing bracket
    uint64_t num_traces = 0;
  };

  Status Append(const std::string& objects, const TraceFileRule& rule);
  static Status AppendTo(File& file, const std::string& objects);
  static Status Open(File& file);
  static void Close(File& file);
  // Ends the indexed file; what belongs to the file of all goes there.
  Status EndIndexed();
  // The traces of a file that is open.
  static Result<std::string> Objects(const File& file);

  const std::string path_;
  std::mutex mutex_;  // guards all below
  File all_;
  File indexed_;
  bool is_indexed_whole_or_none_ = false;
  uint64_t next_index_ = 0;
  bool has_failed_ = false;
};

}  // namespace nereid
