// Errors of requests whose rules leave no token.
#include "backends/llm_core/engine/stuck_requests.h"

#include <set>
#include <utility>

namespace nereid::llm {

void StuckRequests::Fail(int32_t vocab_size, Scheduler& scheduler, StepsInFlight& steps) {
  std::set<const GenerationRequest*> failed;
  for (StuckRequest& stuck : requests_) {
    const GenerationRequest* request = stuck.request.get();
    if (!failed.insert(request).second) continue;
    std::vector<std::unique_ptr<Sequence>> removed = scheduler.Remove(
        [&](const Sequence& sequence) { return sequence.request.get() == request; });
    for (const auto& sequence : removed) sequence->finish = FinishReason::kStop;
    Status error = InvalidArgError(
        "output token ", stuck.output_token, ": the request's rules ban all ", vocab_size,
        " tokens of the vocabulary (bad_words_list, embedding_bias, logit_bias, "
        "allowed_token_ids, no_repeat_ngram_size, guided_decoding_guide and, before min_tokens, "
        "the end ids)");
    if (!stuck.error.ok()) {
      error = std::move(stuck.error).WithContext(StrCat("output token ", stuck.output_token));
    }
    request->sink->OnError(error);
    steps.Retire(std::move(removed));
  }
  requests_.clear();
}

}  // namespace nereid::llm
