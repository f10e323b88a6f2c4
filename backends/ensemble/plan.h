// The part of the graph that one set of requested outputs needs: as in Triton, only the steps that
// lead to a requested output run. Created once for each set that occurs; immutable. [any thread]
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/ensemble/graph.h"

namespace nereid::ensemble {

// Tensors and steps are grouped by depth: a Scope of depth d has slots for tensors_at[d] and runs
// steps_at[d]. The response to the client is treated as one more step, the sink, at the depth of
// the deepest output.
struct Plan {
  std::shared_ptr<const Graph> graph;
  std::vector<int> outputs;  // requested outputs, as indices into Graph::outputs
  int response_depth = 0;    // each scope of this depth becomes one response
  int sink = 0;              // index of the sink as a consumer: one past the last step

  std::vector<std::vector<int>> tensors_at;  // by depth: the needed tensors
  // By depth: the needed steps. The sink is the last entry at response_depth.
  std::vector<std::vector<int>> steps_at;
  std::vector<std::vector<int>> needed_by;  // by step, then the sink: the tensors that it waits for
  std::vector<int> slot_of_tensor;          // position in tensors_at; -1 if not needed
  std::vector<int> slot_of_step;            // position in steps_at, by step, then the sink
  std::vector<std::vector<int>>
      consumers;  // by tensor: the needed steps and the sink, if it reads the tensor
  std::vector<std::vector<int>>
      downstream_steps;  // by step: the needed steps that read its outputs

  bool needs_tensor(int tensor) const { return slot_of_tensor[tensor] >= 0; }
  int depth_of(int step) const { return step == sink ? response_depth : graph->steps[step].depth; }
};

// `outputs`: indices into graph->outputs, without duplicates.
Plan MakePlan(std::shared_ptr<const Graph> graph, std::span<const int> outputs);

}  // namespace nereid::ensemble
