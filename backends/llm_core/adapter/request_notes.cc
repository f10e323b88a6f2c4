// Writes each line once.
#include "backends/llm_core/adapter/request_notes.h"

#include <algorithm>
#include <utility>

#include "nereid/log.h"

namespace nereid::llm {

void RequestNotes::Note(const ClientRequest& client, const std::string& model) {
  if (!client.unused_temperature && client.noted_inputs.empty()) return;
  const std::lock_guard lock(mutex_);
  if (client.unused_temperature && !std::exchange(has_noted_temperature_, true)) {
    LogWarning(StrCat("model '", model, "': a request has 'temperature' ",
                      *client.unused_temperature,
                      " without runtime_top_k, runtime_top_p and min_p. It is greedy, as with "
                      "TensorRT-LLM, so that the temperature has no effect. To sample, send "
                      "runtime_top_p 1, or set the parameter sampling_defaults to "
                      "generation_config"));
  }
  for (const EngineInput* const input : client.noted_inputs) {
    const auto first = noted_inputs_.begin(), last = noted_inputs_.end();
    if (std::find(first, last, input) != last) continue;
    noted_inputs_.push_back(input);
    LogInfo(StrCat("model '", model, "': ", NoteOf(*input)));
  }
}

}  // namespace nereid::llm
