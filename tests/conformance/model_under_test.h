// The model on which the suite tests a backend: a separate server with only this model, and
// requests to it. [any thread]
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

struct ModelUnderTestOptions {
  std::string library;       // libtriton_<backend>.so
  std::string model_folder;  // the folder of a model that uses the backend; empty: one is created
                             // from `config`
  std::string config;        // text of config.pbtxt; empty: the backend completes it
  std::vector<std::pair<std::string, std::string>> backend_settings;
  std::chrono::seconds patience{60};  // timeout of one answer
};

struct TensorInfo {
  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> dims;  // without the batch dimension; -1: variable
};

// How a request differs from the default one, which has batch size 1, undivided inputs and every
// output.
struct RequestVariant {
  int64_t rows = 1;
  int64_t free_dim = 2;              // the size of variable dimensions
  size_t num_buffers = 1;            // number of buffers for each input's data
  std::vector<std::string> outputs;  // requested outputs; empty: none is named
  std::string id;
  bool cancelled = false;  // cancel right after sending
};

// The result of one request.
struct Answer {
  bool complete = false;  // the final response and the release came in time
  size_t num_responses = 0, num_final = 0;
  Status error;  // of the first response with an error
  std::string request_id;
  std::map<std::string, std::string> outputs;  // name -> bytes, concatenated over all responses
};

class ModelUnderTest {
 public:
  static Result<std::unique_ptr<ModelUnderTest>> Create(const ModelUnderTestOptions& options);
  ~ModelUnderTest();

  Status Load() const { return server_->LoadModel(name_.c_str()); }
  // Reloads the model with `count` instances in its first instance group. UNSUPPORTED if the model
  // has no instances.
  Status LoadInstances(int64_t count) const;
  // Waits until the model is unloaded. UNAVAILABLE if that exceeds the timeout.
  Status Unload() const;
  // Reads the configuration of the loaded model.
  Status Describe();

  // An error means that the host rejected the request before the backend received it.
  Result<Answer> Ask(const RequestVariant& shape) const;
  // Sends all requests from one thread before it waits for the first answer.
  Result<std::vector<Answer>> AskAtOnce(const std::vector<RequestVariant>& shapes) const;
  Result<uint64_t> NumReported() const;  // successful inferences in the model's statistics

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  int64_t max_batch_size() const { return max_batch_size_; }
  bool decoupled() const { return decoupled_; }

 private:
  class Call;
  explicit ModelUnderTest(std::filesystem::path root) : root_(std::move(root)) {}
  Status MakeRepository(const ModelUnderTestOptions& options);
  Status StartServer(const ModelUnderTestOptions& options);
  Result<std::shared_ptr<Call>> Send(const RequestVariant& shape) const;

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
