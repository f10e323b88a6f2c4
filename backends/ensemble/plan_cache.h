// The plans of one graph, one for each set of requested outputs. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/ensemble/plan.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

class PlanCache {
 public:
  // `absent_outputs` are those that a request may name although no step produces them. Responses
  // leave them out.
  explicit PlanCache(std::shared_ptr<const Graph> graph, std::set<std::string> absent_outputs = {});

  const Graph& graph() const { return *graph_; }
  // Returns the plan for the outputs that the request asks for; all if it names none. INVALID_ARG
  // if there is no such output.
  Result<std::shared_ptr<const Plan>> PlanFor(TRITONBACKEND_Request* request);

 private:
  const std::shared_ptr<const Graph> graph_;
  const std::set<std::string> absent_outputs_;
  std::shared_ptr<const Plan> full_plan_;  // for all outputs

  std::mutex mutex_;  // guards plans_
  std::map<std::vector<int>, std::shared_ptr<const Plan>>
      plans_;  // by requested outputs; limited in number
};

}  // namespace nereid::ensemble
