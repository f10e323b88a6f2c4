// One client's request while the engine works on it: collects the output of its rows, each of one
// or several sequences, turns it into responses, ends the request. The engine's thread posts, the
// response thread sends: a slow client never holds up a step. A stream has one response a step;
// when many pile up, the newest are merged.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/configured_outputs.h"
#include "backends/llm_core/adapter/request_reader.h"
#include "backends/llm_core/adapter/row_sink.h"
#include "backends/llm_core/engine/request.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

class LlmMetrics;
class ResponseThread;

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `outputs`, `responses` and `metrics` (may be null) outlive it.
  static Result<std::shared_ptr<Generation>> Create(Request request, const ClientRequest& client,
                                                    const ConfiguredOutputs& outputs,
                                                    ResponseThread& responses,
                                                    LlmMetrics* metrics = nullptr);

  const std::string& id() const { return id_; }
  // A sink for the engine. The prompt is echoed in front of the output where that is asked for.
  // `stop_texts` may be null.
  std::unique_ptr<llm::OutputSink> MakeSink(size_t row,
                                            std::shared_ptr<const StopTexts> stop_texts);

  void Cancel() { is_stopped_.store(true, std::memory_order_relaxed); }  // [any thread]
  // As far as anybody has noticed. [any thread]
  bool IsCancelled() const { return is_stopped_.load(std::memory_order_relaxed); }
  // Asks the host whether the client has given up: then it is cancelled. [watch's thread]
  bool AskForCancellation();
  // `tail`: ids behind those of `output` that were not drawn. [engine thread]
  void Post(size_t row, const llm::Output& output, const Timing& timing,
            const llm::TokenIds& tail = {});
  // Ends the row with an error. [engine thread, instance thread]
  void PostError(size_t row, const Status& status);
  // Sends what was posted. [response thread]
  void Flush();

 private:
  // What a sequence has to say after a step.
  struct News {
    llm::TokenIds ids;
    std::vector<float> log_probs;
    float cum_log_prob = 0.0f;
    int32_t num_output = 0;  // put out in all, `ids` included
    std::vector<float> prompt_log_probs, context_logits, generation_logits;
    int32_t num_reused_blocks = 0;
    int32_t num_new_blocks = 0;
    Timing timing;
    llm::FinishReason finish = llm::FinishReason::kNone;
    Status error;
    bool is_over() const { return finish != llm::FinishReason::kNone || !error.ok(); }
  };
  struct Row {
    llm::TokenIds prompt;  // for the echo and its length
    bool wants_log_probs = false;
    bool wants_cache_stats = false;
    bool wants_perf_metrics = false;
    // One response for all sequences: beams, and models that send one response a request.
    bool is_combined = false;
    size_t first_part = 0;
    size_t num_parts = 1;
    std::vector<News> finals;  // of a combined row, by sequence [response thread]
  };
  // A sequence of a row.
  struct Part {
    size_t row = 0;
    int32_t sequence_index = 0;
    bool is_open = true;      // [response thread]
    llm::TokenIds prior_ids;  // the last ids that were sent [response thread]
    std::vector<News> news;   // guarded by mutex_
  };

  Generation(Request request, const ClientRequest& client, const ConfiguredOutputs& outputs,
             ResponseThread& responses, LlmMetrics* metrics, ResponseFactoryHandle factory);

  void HandleNews(Part& part, News news);
  void Close(Part& part);
  void FailRow(const Row& row, const Status& error);
  // `all`: the sequences of the response.
  void Send(Part& part, std::span<const News> all);
  Status FillResponse(Response& response, Part& part, std::span<const News> all);
  Status FillLogits(Response& response, std::span<const News> all);
  Status SetLogits(Response& response, const char* name, DataType datatype,
                   const std::vector<int64_t>& shape, std::span<const float> logits);
  Status FillStatistics(Response& response, const Row& row, const News& news);
  bool Wants(const Response& response, const char* name) const;
  // With a leading 1 where the model batches.
  std::vector<int64_t> Shape(std::initializer_list<int64_t> dims) const;

  const std::string id_;
  const bool is_streaming_;
  const bool exclude_input_;
  const ConfiguredOutputs& outputs_;
  ResponseThread& responses_;
  LlmMetrics* const metrics_;
  const int64_t arrival_ns_;
  ResponseSender sender_;                // [response thread]
  const ResponseFactoryHandle factory_;  // asked about cancellation alone
  std::atomic<bool> is_stopped_{false};

  std::mutex mutex_;  // guards the news of all parts, is_announced_
  std::vector<Row> rows_;
  std::vector<Part> parts_;
  bool is_announced_ = false;

  size_t num_open_ = 0;  // parts [response thread]
  Status first_error_;   // [response thread]
};

}  // namespace nereid::llm_adapter
