// What the engine tells of one row of a request, on its way to the request's Generation: with the
// times at which it happened, and stopped at the stop strings that the request has. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/llm_core/adapter/stop_text.h"
#include "backends/llm_core/engine/request.h"

namespace nereid::llm_adapter {

class Generation;

// When a sequence got how far, by the steady clock. 0: not yet.
struct Timing {
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
};

int64_t SteadyNowNs();

class RowSink : public llm::OutputSink {
 public:
  // `stop_texts` may be null.
  RowSink(std::shared_ptr<Generation> generation, size_t row,
          std::shared_ptr<const StopTexts> stop_texts, int64_t arrival_ns);

  bool IsCancelled() const override;
  void OnScheduled() override;
  llm::StopVerdict OnToken(int32_t sequence_index, std::span<const int32_t> ids) override;
  void OnOutput(const llm::Output& output) override;
  void OnError(const Status& status) override;

 private:
  // What a stop string was found in, and the last word on it.
  struct Watched {
    std::optional<StopText> text;
    llm::StopVerdict verdict;
  };

  // The ids for what a token has before the stop string that begins within it.
  llm::TokenIds Tail(const llm::Output& output) const;

  const std::shared_ptr<Generation> generation_;
  const size_t row_;
  const std::shared_ptr<const StopTexts> stop_texts_;
  const int64_t arrival_ns_;
  int64_t first_scheduled_ns_ = 0;
  std::vector<Timing> timings_;   // by sequence
  std::vector<Watched> watched_;  // by sequence
};

}  // namespace nereid::llm_adapter
