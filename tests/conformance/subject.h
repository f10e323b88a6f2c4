// The model on which a backend is judged: a server of its own with that one model, and requests to
// it. [any thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nereid/server.h"

namespace nereid::conformance {

struct SubjectOptions {
  std::string library;       // libtriton_<backend>.so
  std::string model_folder;  // of a model that uses it; empty: one is made from `config`
  std::string config;        // text of config.pbtxt; empty: the backend completes it
  std::vector<std::pair<std::string, std::string>> backend_settings;
  std::chrono::seconds patience{60};  // for one answer
};

struct TensorInfo {
  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> dims;  // without the batch dimension; -1: any
};

// How a request deviates from the plain one: whole inputs of one row, every output.
struct RequestShape {
  int64_t rows = 1;
  int64_t free_dim = 2;              // what stands for -1
  size_t num_pieces = 1;             // in which each input's data lies
  std::vector<std::string> outputs;  // asked for; empty: none is named
  std::string id;
  bool cancelled = false;  // right after it was sent
};

// What came back for one request.
struct Answer {
  bool complete = false;  // the final response and the release came in time
  size_t num_responses = 0, num_final = 0;
  Status error;  // of the first response that carries one
  std::string request_id;
  std::map<std::string, std::string> outputs;  // name -> bytes, of all responses in their order
};

class Subject {
 public:
  static Result<std::unique_ptr<Subject>> Create(const SubjectOptions& options);
  ~Subject();

  Status Load() const { return server_->LoadModel(name_.c_str()); }
  // With so many instances in its first group, else as it is loaded now. UNSUPPORTED where it has
  // no instances of its own.
  Status LoadInstances(int64_t count) const;
  // Waits until it is gone. UNAVAILABLE when that takes too long.
  Status Unload() const;
  // Reads what the loaded model says of itself.
  Status Describe();

  // The error is the host's own, before the backend saw anything.
  Result<Answer> Ask(const RequestShape& shape) const;
  // As many at once, from one thread.
  Result<std::vector<Answer>> AskAtOnce(const std::vector<RequestShape>& shapes) const;
  Result<uint64_t> NumReported() const;  // successful inferences in its statistics

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  int64_t max_batch_size() const { return max_batch_size_; }
  bool decoupled() const { return decoupled_; }

 private:
  class Call;
  explicit Subject(std::filesystem::path root) : root_(std::move(root)) {}
  Status MakeRepository(const SubjectOptions& options);
  Status StartServer(const SubjectOptions& options);
  Result<std::shared_ptr<Call>> Send(const RequestShape& shape) const;

  const std::filesystem::path root_;  // temporary
  std::string name_;
  std::string backend_;
  std::chrono::seconds patience_{60};
  std::unique_ptr<Server> server_;
  std::unique_ptr<ResponseAllocator> allocator_;
  std::vector<TensorInfo> inputs_, outputs_;
  int64_t max_batch_size_ = 0;
  bool decoupled_ = false;
};

}  // namespace nereid::conformance
