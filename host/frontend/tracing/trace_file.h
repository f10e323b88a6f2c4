// Writes traces as a JSON array to a file, in Triton's form. The file is valid JSON after every
// trace. If writing fails, this is logged once and traces are dropped until the settings change.
// [any thread]
#pragma once

#include <mutex>
#include <string>

#include "host/frontend/tracing/trace_record.h"
#include "nereid/status.h"

namespace nereid {

class TraceFile final : public TraceSink {
 public:
  // With a limit of traces per file, the files are `path`.0, `path`.1 ...
  explicit TraceFile(std::string path) : path_(std::move(path)), main_file_{path_} {}
  ~TraceFile() override;

  void Write(TraceRecord& record, const TraceFileRule& rule) override;
  void EndFile() override;

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t end = 0;  // offset of the closing bracket, where the next trace is written
    uint64_t num_traces = 0;
  };

  Status Append(const std::string& objects, const TraceFileRule& rule);
  static Status AppendTo(File& file, const std::string& objects);
  static Status Open(File& file);
  static void Close(File& file);
  // Ends the indexed file. A partial one is appended to the main file if its policy requires that.
  Status EndIndexed();
  // Reads back the traces of an open file.
  static Result<std::string> ReadObjects(const File& file);

  const std::string path_;
  std::mutex mutex_;  // guards all below
  File main_file_;
  File indexed_file_;
  bool merges_partial_file_ = false;
  uint64_t next_index_ = 0;
  bool has_failed_ = false;
};

}  // namespace nereid
