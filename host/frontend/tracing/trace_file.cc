#include "tracing/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "nereid/log.h"

namespace nereid {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AppendObjects(const TracedInference& inference, std::string& text) {
  const auto append = [&](const Json& object) {
    if (!text.empty()) text += ",\n";
    text += Dump(object);
  };
  Json head{{"id", inference.id}};
  if (inference.parent_id != 0) head["parent_id"] = inference.parent_id;
  head["model_name"] = inference.model;
  head["model_version"] = inference.version;
  head["request_id"] = inference.request_id;
  append(head);
  if (!inference.events.empty()) {
    Json events = Json::array();
    for (const TraceEvent& event : inference.events) {
      events.push_back({{"name", event.name}, {"ns", event.steady_ns}});
    }
    append({{"id", inference.id}, {"timestamps", events}});
  }
  for (const TraceTensor& tensor : inference.tensors) {
    append({{"id", inference.id},
            {"activity", tensor.activity},
            {"tensor",
             {{"name", tensor.name},
              {"data", tensor.data},
              {"shape", tensor.shape},
              {"dtype", tensor.datatype}}}});
  }
}

Status WriteAll(int fd, std::string_view bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return InternalError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return Status::Ok();
}

}  // namespace

TraceFile::~TraceFile() {
  Close();
}

void TraceFile::Write(TraceRecord& record, uint64_t log_frequency) {
  std::string objects;
  for (const TracedInference& inference : record.Take()) AppendObjects(inference, objects);
  if (objects.empty()) return;
  const std::lock_guard lock(mutex_);
  if (has_failed_) return;
  const Status status = Append(objects, log_frequency);
  if (status.ok()) return;
  has_failed_ = true;
  Close();
  LogError(StrCat("trace file '", path_, "': ", status.message(),
                  "; traces are dropped until the trace settings change"));
}

Status TraceFile::Append(const std::string& objects, uint64_t log_frequency) {
  if (fd_ < 0) NEREID_RETURN_IF_ERROR(Open(log_frequency));
  const std::string text = (num_in_file_ == 0 ? "[\n" : ",\n") + objects + "\n]\n";
  NEREID_RETURN_IF_ERROR(WriteAll(fd_, text, end_));
  end_ += static_cast<int64_t>(text.size()) - 3;
  ++num_in_file_;
  if (log_frequency != 0 && num_in_file_ >= log_frequency) Close();
  return Status::Ok();
}

Status TraceFile::Open(uint64_t log_frequency) {
  const std::string path = log_frequency == 0 ? path_ : path_ + "." + std::to_string(next_file_++);
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return InternalError(std::strerror(errno));
  end_ = 0;
  num_in_file_ = 0;
  return Status::Ok();
}

void TraceFile::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void TraceFile::EndFile() {
  const std::lock_guard lock(mutex_);
  has_failed_ = false;
}

}  // namespace nereid
