// The inputs and outputs that a model accepts in requests. It is computed from the configuration
// once per load, so that a request is checked with small arrays. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/observe/statistics.h"
#include "host/core/request/tensor.h"
#include "nereid/data_type.h"
#include "nereid/status.h"

namespace nereid::core {

class InferRequest;

struct InputSpec {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape dims;      // without the batch dimension; -1: variable
  Shape expected;  // dims, preceded by -1 if there is a batch dimension
  bool has_reshape = false;
  Shape reshape;  // without the batch dimension; may be empty
  bool optional = false;
  bool ragged = false;
  bool shape_tensor = false;
  bool any_byte_size = false;  // the byte size need not match the shape (non-linear formats)
};

struct OutputSpec {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape dims;
  bool has_reshape = false;
  Shape reshape;
  std::vector<std::string> labels;  // class labels, by index
};

struct RequestSchema {
  RequestSchema() = default;
  // A move does not move the strings in `inputs` and `outputs`, to which the index maps point.
  RequestSchema(RequestSchema&&) = default;
  RequestSchema& operator=(RequestSchema&&) = default;

  // `model_dir`: the directory with the label files. NOT_FOUND if a label file cannot be opened.
  static Result<RequestSchema> Make(const ModelConfig& config, int64_t version,
                                    const std::string& model_dir);

  // The index in inputs or outputs; -1 if there is no tensor of this name.
  int FindInput(std::string_view name) const;
  int FindOutput(std::string_view name) const;

  std::string model_name;
  std::string model_namespace;  // the repository, if repositories may have models of the same name
  int64_t model_version = 0;
  int64_t max_batch_size = 0;  // 0: no batch dimension
  bool decoupled = false;
  bool is_ensemble = false;
  bool iterative_sequence = false;  // a backend may release a request for rescheduling
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  size_t num_required_inputs = 0;
  // Indices of inputs with variable shapes that must be equal for all requests of a batch.
  std::vector<int> equal_shape_inputs;
  bool has_optional_inputs = false;
  uint64_t priority_levels = 0;
  uint64_t default_priority_level = 0;

 private:
  void BuildIndex();

  std::unordered_map<std::string_view, int> input_index_;   // the keys point into inputs
  std::unordered_map<std::string_view, int> output_index_;  // the keys point into outputs
};

// The model version that a request is sent to. A model implements this interface, so that the
// folder request/ does not depend on scheduling/ and model/.
class RequestTarget {
 public:
  virtual ~RequestTarget() = default;

  virtual const RequestSchema& schema() const = 0;
  virtual ModelStatistics& statistics() = 0;

  // Puts a prepared request into the queue. On error the caller stays its owner. [any thread]
  virtual Status Enqueue(InferRequest* request) = 0;
  // Called during shutdown: Ok for a request that continues a sequence, otherwise UNAVAILABLE. [any
  // thread]
  virtual Status CheckContinuesSequence(const InferRequest& request) const = 0;
  // `request` was just cancelled. If it is still in the queue, it is answered soon. [any thread]
  virtual void OnCancelled(InferRequest* request) = 0;
  // The host accepted a request, by Enqueue or in another way. [any thread]
  virtual void OnAccepted() = 0;
  // The host released a request. The client owns it again after this call. [any thread]
  virtual void OnReleased() = 0;
};

}  // namespace nereid::core
