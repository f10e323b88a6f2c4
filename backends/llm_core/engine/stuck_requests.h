// The requests of a step that cannot go on, because one of their sequences has no token that it may
// continue with. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/engine/steps_in_flight.h"

namespace nereid::llm {

class StuckRequests {
 public:
  // `output_token`: the number of the token, from 1. `error`: Ok means that the rules ban all
  // tokens.
  void Add(std::shared_ptr<GenerationRequest> request, int32_t output_token, Status error = {}) {
    requests_.push_back({std::move(request), output_token, std::move(error)});
  }
  // Sends the first error of each request to its sink, and removes the request's sequences from the
  // scheduler.
  void Fail(int32_t vocab_size, Scheduler& scheduler, StepsInFlight& steps);

 private:
  struct StuckRequest {
    std::shared_ptr<GenerationRequest> request;
    int32_t output_token;
    Status error;
  };
  std::vector<StuckRequest> requests_;
};

}  // namespace nereid::llm
