#include "host/frontend/tracing/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "nereid/log.h"

namespace nereid {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AppendObjects(const TracedInference& inference, std::string& text) {
  const auto append = [&](const OrderedJson& object) {
    if (!text.empty()) text += ",\n";
    text += object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  };
  OrderedJson head{{"id", inference.id}};
  if (inference.parent_id != 0) head["parent_id"] = inference.parent_id;
  head["model_name"] = inference.model;
  head["model_version"] = inference.version;
  head["request_id"] = inference.request_id;
  append(head);
  if (!inference.events.empty()) {
    OrderedJson events = OrderedJson::array();
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
  if (const Status status = EndIndexed(); !status.ok()) LogError(status.message());
  Close(main_file_);
}

void TraceFile::Write(TraceRecord& record, const TraceFileRule& rule) {
  std::string objects;
  for (const TracedInference& inference : record.Take()) AppendObjects(inference, objects);
  if (objects.empty()) return;
  const std::lock_guard lock(mutex_);
  if (has_failed_) return;
  const Status status = Append(objects, rule);
  if (status.ok()) return;
  has_failed_ = true;  // the main file is kept, and later traces are appended to it
  Close(indexed_file_);
  LogError(StrCat("trace file '", path_, "': ", status.message(),
                  "; traces are dropped until the trace settings change"));
}

Status TraceFile::Append(const std::string& objects, const TraceFileRule& rule) {
  if (rule.traces_per_file == 0) return AppendTo(main_file_, objects);
  if (indexed_file_.fd < 0) indexed_file_ = {path_ + "." + std::to_string(next_index_++)};
  merges_partial_file_ = rule.merges_partial_file;
  NEREID_RETURN_IF_ERROR(AppendTo(indexed_file_, objects));
  if (indexed_file_.num_traces >= rule.traces_per_file) Close(indexed_file_);
  return Status::Ok();
}

Status TraceFile::AppendTo(File& file, const std::string& objects) {
  if (file.fd < 0) NEREID_RETURN_IF_ERROR(Open(file));
  const std::string text = (file.num_traces == 0 ? "[\n" : ",\n") + objects + "\n]\n";
  NEREID_RETURN_IF_ERROR(WriteAll(file.fd, text, file.end));
  file.end += static_cast<int64_t>(text.size()) - 3;
  ++file.num_traces;
  return Status::Ok();
}

Status TraceFile::Open(File& file) {
  file.fd = open(file.path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd < 0) return InternalError(std::strerror(errno));
  file.end = 0;
  file.num_traces = 0;
  return Status::Ok();
}

void TraceFile::Close(File& file) {
  if (file.fd >= 0) close(file.fd);
  file.fd = -1;
}

Result<std::string> TraceFile::ReadObjects(const File& file) {
  constexpr int64_t kOpening = 2;  // bytes of "[\n"
  std::string text(static_cast<size_t>(file.end - kOpening), '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = pread(file.fd, text.data() + size, text.size() - size,
                              kOpening + static_cast<int64_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return InternalError("file '", file.path, "' cannot be read back");
    size += static_cast<size_t>(got);
  }
  return text;
}

Status TraceFile::EndIndexed() {
  if (indexed_file_.fd < 0) return Status::Ok();
  Status status;
  if (merges_partial_file_) {
    Result<std::string> objects = ReadObjects(indexed_file_);
    status = objects.ok() ? AppendTo(main_file_, *objects) : objects.status();
    if (status.ok()) {
      unlink(indexed_file_.path.c_str());
      --next_index_;
    }
  }
  Close(indexed_file_);
  return status;
}

void TraceFile::EndFile() {
  const std::lock_guard lock(mutex_);
  if (const Status status = EndIndexed(); !status.ok()) LogError(status.message());
  has_failed_ = false;
}

}  // namespace nereid
