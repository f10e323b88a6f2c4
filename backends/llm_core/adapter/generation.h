// One client's request while the engine works on it: collects the output of its rows, turns it into
// responses, ends the request. The engine's thread posts, the response thread sends: a slow client
// never holds up a step. A stream has one response a step; when many pile up, the newest are merged.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "llm_core/adapter/request_reader.h"
#include "llm_core/engine/request.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

class ResponseThread;

// Which outputs the model's configuration has.
struct ConfiguredOutputs {
  explicit ConfiguredOutputs(const ModelConfig& config);
  bool Has(std::string_view name) const;

  bool is_batching;
  std::vector<std::string> names;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `outputs` and `responses` outlive it.
  static Result<std::shared_ptr<Generation>> Create(Request request, const ClientRequest& client,
                                                    const ConfiguredOutputs& outputs,
                                                    ResponseThread& responses);

  const std::string& id() const { return id_; }
  // A sink for the engine. The prompt is echoed in front of the output where that is asked for.
  std::unique_ptr<llm::OutputSink> MakeSink(size_t row);

  void Cancel() { is_stopped_.store(true, std::memory_order_relaxed); }  // [any thread]
  bool IsCancelled() const;                                              // [engine thread]
  void Post(size_t row, const llm::Output& output);                      // [engine thread]
  // Ends the row with an error. [engine thread, instance thread]
  void PostError(size_t row, const Status& status);
  // Sends what was posted. [response thread]
  void Flush();

 private:
  // What a row has to say after a step.
  struct News {
    llm::TokenIds ids;
    std::vector<float> log_probs;
    float cum_log_prob = 0.0f;
    int32_t num_output = 0;  // put out in all, `ids` included
    llm::FinishReason finish = llm::FinishReason::kNone;
    Status error;
    bool is_over() const { return finish != llm::FinishReason::kNone || !error.ok(); }
  };
  struct Row {
    llm::TokenIds prompt;  // for the echo and its length
    bool wants_log_probs = false;
    llm::TokenIds prior_ids;  // the last ids that were sent [response thread]
    std::vector<News> news;   // guarded by mutex_
  };

  Generation(Request request, const ClientRequest& client, const ConfiguredOutputs& outputs,
             ResponseThread& responses, ResponseFactoryHandle factory);

  void SendNews(size_t row, const News& news);
  Status FillResponse(Response& response, size_t row, const News& news);

  const std::string id_;
  const bool is_streaming_;
  const bool exclude_input_;
  const ConfiguredOutputs& outputs_;
  ResponseThread& responses_;
  ResponseSender sender_;                // [response thread]
  const ResponseFactoryHandle factory_;  // asked about cancellation alone
  std::atomic<bool> is_stopped_{false};

  std::mutex mutex_;  // guards the news of all rows, is_announced_
  std::vector<Row> rows_;
  bool is_announced_ = false;

  size_t num_open_rows_;  // [response thread]
  Status first_error_;    // [response thread]
};

}  // namespace nereid::llm_adapter
