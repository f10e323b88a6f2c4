// What one request needs of the graph: only the steps from which a requested output is reached run,
// as in Triton. Made once for each set of requested outputs that occurs; immutable. [any thread]
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/ensemble/graph.h"

namespace nereid::ensemble {

// Tensors and steps are sorted by depth: a Scope of depth d holds tensors_at[d] and runs
// steps_at[d]. The answer to the client is treated as one more step, the sink, at the depth of the
// deepest output.
struct Plan {
  std::shared_ptr<const Graph> graph;
  std::vector<int> outputs;  // requested ones, indices into Graph::outputs
  int leaf_depth = 0;        // each scope of this depth becomes one response
  int sink = 0;              // its index as a consumer: one past the last step

  std::vector<std::vector<int>> tensors_at;  // by depth, tensors that are needed
  std::vector<std::vector<int>> steps_at;    // by depth, steps that are needed; the sink is the
                                             // last at leaf_depth
  std::vector<std::vector<int>> needed_by;   // by step, then the sink: tensors that it waits for
  std::vector<int> slot_of_tensor;           // position in tensors_at; -1 when not needed
  std::vector<int> slot_of_step;             // position in steps_at, by step, then the sink
  std::vector<std::vector<int>> consumers;   // by tensor: steps that are needed, perhaps the sink
  std::vector<std::vector<int>> followers;   // by step: the needed steps that read its outputs

  bool needs_tensor(int tensor) const { return slot_of_tensor[tensor] >= 0; }
  int depth_of(int step) const { return step == sink ? leaf_depth : graph->steps[step].depth; }
};

// `outputs`: indices into graph->outputs, without duplicates.
Plan MakePlan(std::shared_ptr<const Graph> graph, std::span<const int> outputs);

}  // namespace nereid::ensemble
