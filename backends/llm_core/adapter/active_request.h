// A client's request while the engine works on it. It collects the output of the request's batch
// items, turns it into responses and completes the request. The engine thread posts updates and the
// response thread sends them, so that a slow client never delays a step. A stream gets one response
// per step; if many are queued, the newest are merged. While the client has no room for responses,
// they stay queued, so that a slow client delays no other request either.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/client_request.h"
#include "backends/llm_core/adapter/configured_outputs.h"
#include "backends/llm_core/adapter/extra_outputs.h"
#include "backends/llm_core/engine/request.h"
#include "nereid/backend.h"

namespace nereid::llm {

class LlmMetrics;
class ResponseThread;

class ActiveRequest : public std::enable_shared_from_this<ActiveRequest> {
 public:
  // `outputs`, `responses` and `metrics` (may be null) must outlive the object.
  static Result<std::shared_ptr<ActiveRequest>> Create(Request request, const ClientRequest& client,
                                                       const ConfiguredOutputs& outputs,
                                                       ResponseThread& responses,
                                                       LlmMetrics* metrics = nullptr);

  const std::string& id() const { return id_; }
  // Creates the engine's sink for one batch item. Unless the client excluded it, the prompt is
  // repeated before the output. `stop_strings` may be null.
  std::unique_ptr<llm::OutputSink> MakeSink(size_t item,
                                            std::shared_ptr<const StopStrings> stop_strings,
                                            StopReasons stop_reasons,
                                            std::unique_ptr<AdapterUse> adapter_use);

  void Cancel() { is_cancelled_ = true; }  // [any thread]
  // Whether Cancel was called or a cancellation was polled. [any thread]
  bool IsCancelled() const { return is_cancelled_; }
  // Asks the host whether the client has cancelled, and cancels if so. Sends updates that waited
  // for room if there is some. [cancellation poller's thread]
  bool PollClient();
  // `stop_reason`: what ended the sequence, if the request named it. `replacement_ids`: ids that
  // follow those of `output` and were not sampled. [engine thread]
  void Post(size_t item, const llm::SequenceOutput& output, const SequenceTiming& timing,
            std::string stop_reason, const llm::TokenIds& replacement_ids);
  // Fails the item. [engine thread, instance thread, grammar compiler's thread]
  void PostError(size_t item, const Status& status);
  // Sends the posted updates as responses, unless the client has no room: then PollClient has it
  // called again. [response thread]
  void Flush();

 private:
  struct Item {
    llm::TokenIds prompt;  // repeated before the output; its length is reported
    ExtraOutputs extras;
    bool has_sent_prompt = false;  // the ids of `prompt`, as an output [response thread]
    // All sequences share one response: with beam search, and for models that are not decoupled.
    bool is_combined = false;
    size_t first_sequence = 0;
    size_t num_sequences = 1;
    size_t num_ended = 0;                       // sequences [response thread]
    int64_t num_output_tokens = 0;              // of the ended sequences [response thread]
    std::vector<SequenceUpdate> final_updates;  // of a combined item, by sequence [response thread]
  };
  // A sequence of an item.
  struct SequenceState {
    size_t item = 0;
    int32_t sequence_index = 0;
    bool is_open = true;  // [response thread]
    // The number of the stream, 0 until its first response, and of its next response.
    uint64_t stream = 0, num_responses = 0;  // [response thread]
    llm::TokenIds prior_ids;                 // the last ids sent [response thread]
    std::vector<SequenceUpdate> updates;     // guarded by mutex_
  };

  ActiveRequest(Request request, const ClientRequest& client, const ConfiguredOutputs& outputs,
                ResponseThread& responses, LlmMetrics* metrics, ResponseFactoryHandle factory);

  bool PollCancellation();
  bool MustHold();
  void HandleUpdate(SequenceState& sequence, SequenceUpdate update);
  void Close(SequenceState& sequence);
  void CountEnd(Item& item, const SequenceUpdate& update);
  void FailItem(const Item& item, const Status& error);
  // `all`: the sequences that the response contains.
  void Send(SequenceState& sequence, std::span<const SequenceUpdate> all);
  Status FillResponse(ResponseTensors tensors, SequenceState& sequence,
                      std::span<const SequenceUpdate> all);
  // Sets the ids of all sequences, padded to `longest`.
  Status FillIds(ResponseTensors& tensors, const llm::TokenIds& prompt,
                 std::span<const SequenceUpdate> all, size_t longest);
  // Sets the numbers of tokens that the request returns.
  Status FillCounts(ResponseTensors& tensors, const llm::TokenIds& prompt,
                    std::span<const SequenceUpdate> all);
  Status FillStreamPosition(ResponseTensors& tensors, SequenceState& sequence);

  const std::string id_;
  const bool is_streaming_;
  const bool exclude_input_;
  const bool returns_num_input_tokens_, returns_num_output_tokens_;
  const ConfiguredOutputs& outputs_;
  ResponseThread& responses_;
  LlmMetrics* const metrics_;
  const int64_t arrival_ns_;
  ResponseSender sender_;                // [response thread]
  const ResponseFactoryHandle factory_;  // used by PollClient only
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> has_client_cancelled_{false};  // not only a stop request
  // Flush found no room. The thread that resets it continues with held_self_, which keeps this
  // object after the engine has finished with it.
  std::atomic<bool> is_held_{false};
  std::shared_ptr<ActiveRequest> held_self_;

  std::mutex mutex_;  // guards is_queued_ and the updates of all sequences
  std::vector<Item> items_;
  std::vector<SequenceState> sequences_;
  bool is_queued_ = false;

  size_t num_open_ = 0;  // sequences without a final update [response thread]
  Status first_error_;   // [response thread]
};

}  // namespace nereid::llm
