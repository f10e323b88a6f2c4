// Lines of the log about inputs that have no effect: one for each input of a model, because clients
// usually repeat what they send. [any thread]
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/client_request.h"

namespace nereid::llm {

class RequestNotes {
 public:
  // Logs what `client` notes and no request before it did. `model`: the name for the log.
  void Note(const ClientRequest& client, const std::string& model);

 private:
  std::mutex mutex_;  // guards the members below
  bool has_noted_temperature_ = false;
  std::vector<const EngineInput*> noted_inputs_;
};

}  // namespace nereid::llm
