// The engine's output sink for one batch item of a request. It adds timestamps, applies the
// request's stop strings and forwards the output to the ActiveRequest. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/lora_requests.h"
#include "backends/llm_core/adapter/stop_string_detector.h"
#include "backends/llm_core/engine/request.h"

namespace nereid::llm {

class ActiveRequest;

// Timestamps of a sequence by the steady clock, in nanoseconds. 0: not reached yet.
struct SequenceTiming {
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  // Between each token and the one before it, in seconds. Only in the last update of a sequence.
  std::vector<float> token_gaps;
};

int64_t SteadyNowNs();

// What the output stop_reason says of the end ids and stop words of an item.
struct StopReasons {
  llm::TokenIds stop_token_ids;            // of the request, without the model's own end ids
  std::vector<std::string> id_word_texts;  // parallel to StopCriteria::stop_words; may be shorter
  // What to say of a sequence that ends by its length; empty unless max_tokens was cut.
  std::string cut_length;
};

class ItemOutputSink : public llm::OutputSink {
 public:
  // `stop_strings` and `adapter_use` may be null.
  ItemOutputSink(std::shared_ptr<ActiveRequest> active_request, size_t item,
                 std::shared_ptr<const StopStrings> stop_strings, StopReasons stop_reasons,
                 std::unique_ptr<AdapterUse> adapter_use, int64_t arrival_ns);

  bool IsCancelled() const override;
  void OnScheduled() override;
  llm::StopResult OnToken(int32_t sequence_index, std::span<const int32_t> ids) override;
  void OnOutput(const llm::SequenceOutput& output) override;
  void OnError(const Status& status) override;

 private:
  // The stop string search of a sequence and its latest result.
  struct StopSearch {
    std::optional<StopStringDetector> detector;
    llm::StopResult result;
  };

  // Replacement ids for the text before a stop string that begins within a token.
  llm::TokenIds ReplacementIds(const llm::SequenceOutput& output) const;
  // The id or text that ended the sequence, or that max_tokens was cut; empty for the model's end
  // id and for other reasons.
  std::string StopReason(const llm::SequenceOutput& output) const;

  const std::shared_ptr<ActiveRequest> active_request_;
  const size_t item_;
  const std::shared_ptr<const StopStrings> stop_strings_;
  const StopReasons stop_reasons_;
  const std::unique_ptr<AdapterUse> adapter_use_;
  const int64_t arrival_ns_;
  int64_t first_scheduled_ns_ = 0;
  std::vector<SequenceTiming> timings_;         // by sequence
  std::vector<std::vector<float>> token_gaps_;  // by sequence
  std::vector<StopSearch> stop_searches_;       // by sequence
};

}  // namespace nereid::llm
