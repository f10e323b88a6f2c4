// The ensemble as a graph: tensors and steps by index instead of by name. Built once at load from a
// validated configuration; immutable afterwards. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/ensemble/ensemble_config.h"
#include "backends/ensemble/tensor.h"

namespace nereid::ensemble {

constexpr int kEnsembleInput = -1;  // the producer of a tensor that the request brings

// An entry of a step's input_map or output_map.
struct Binding {
  std::string name;       // the model's tensor
  int tensor = 0;         // index into Graph::tensors
  bool optional = false;  // an input that the model can do without
  int rank = 0;           // dimensions that the model expects, batch dimension included
  bool batching = false;  // the first of them is the batch dimension
  // Of a reader: the batch dimension that its producer knows and it does not, or the reverse.
  bool drops_batch = false;
  bool adds_batch = false;
};

struct Step {
  std::string model_name;
  std::string target = {};  // the name to call it by
  int64_t model_version = -1;
  bool decoupled = false;
  int depth = 0;  // decoupled steps upstream: the step runs once for each of their responses
  std::vector<Binding> inputs = {};
  std::vector<Binding> outputs = {};
};

struct GraphTensor {
  std::string name;
  int producer = kEnsembleInput;    // index into Graph::steps
  int depth = 0;                    // decoupled steps upstream, its producer included
  std::vector<int> consumers = {};  // indices into Graph::steps
};

struct Graph {
  std::string name;  // the ensemble's
  std::vector<Step> steps = {};
  std::vector<GraphTensor> tensors = {};
  std::vector<Binding> inputs = {};   // the ensemble's own, in the order of its configuration
  std::vector<Binding> outputs = {};  // likewise
  bool decoupled = false;             // some step is

  // -1 when there is none of that name.
  int FindInput(std::string_view name) const;
  int FindOutput(std::string_view name) const;
};

// `shape` as the reader expects it: a batch dimension of 1 is added or dropped where its producer
// sees that differently. Any other difference stays, for the host to report.
Shape ShapeFor(const Binding& reader, const Shape& shape);

// `config` has passed Validate() with the same `models`, one a step.
Graph BuildGraph(const EnsembleConfig& config, std::span<const ModelSpec> models);

}  // namespace nereid::ensemble
