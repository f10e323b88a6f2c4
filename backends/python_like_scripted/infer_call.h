// One inference call that a worker makes of another model, from its start to the release of its
// inputs. Responses are forwarded to the worker as they come; while the worker's model leaves too
// many of them unread, the called model has to wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/python_like_scripted/call_outputs.h"
#include "backends/python_like_scripted/gpu_region.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/tensor_codec.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid::python {

class InferCall;

// The calls of a session that are in flight, by number. Each removes itself when it ends.
struct InferCallTable {
  std::atomic<int> num_full{0};  // calls whose models wait until their responses are read
  std::mutex mutex;              // guards calls
  std::unordered_map<int64_t, std::shared_ptr<InferCall>> calls;
};

// Keeps itself alive from Send() until the called model needs it no more. Callbacks come on threads
// of the called model.
class InferCall : public InferObserver, public std::enable_shared_from_this<InferCall> {
 public:
  using Clock = std::chrono::steady_clock;

  InferCall(int64_t number, std::shared_ptr<Worker> worker, std::shared_ptr<InferCallTable> table)
      : number_(number), worker_(std::move(worker)), table_(std::move(table)), target_{*worker_} {}

  // --- before the start [worker thread] ---

  // Outputs go to this GPU, if the called model can write them there; -1: none.
  void PreferGpu(int64_t gpu_id) { target_.gpu_id = gpu_id; }
  // Copies inputs in GPU memory, so that the worker can have its memory back.
  Status CopyGpuInputs();
  // Makes the call the receiver of what becomes of the request.
  Status Prepare(InferRequest& request);
  // If Ok, the callbacks follow. Otherwise none does, and the caller handles the error. Owns
  // `trace` in both cases.
  Status Send(const Server& server, InferRequest request, TRITONSERVER_InferenceTrace* trace);

  // --- [any thread] ---

  // Sends the worker (kind, call, response or None, is_final) with an error as the response.
  void PostError(const Status& error, bool is_final);
  void Cancel() { (void)InferRequest::Cancel(handle_); }
  // The worker's model has read `count` further responses.
  void OnConsumed(int64_t count);
  // Lets the called model go on if it has waited too long for the worker's model to read.
  void ReleaseIfStalled(Clock::time_point now);
  // Gives back the memory of the inputs.
  void ReleaseInputs();

  void OnResponse(InferResponse response, bool is_final) noexcept override;
  void OnRelease(InferRequest request) noexcept override;

  std::vector<PackedTensor> inputs;                 // valid until OnRelease
  std::vector<std::optional<GpuBlock>> gpu_inputs;  // copies of those in GPU memory, by index
  std::string message;                              // contains the bytes of inline tensors

 private:
  // Begins a message of this call with its kind and number. The response and is_final follow.
  void Begin(MarshalWriter& writer) const;
  Status ForwardResponse(InferResponse response, bool is_final);
  void CountUnread(size_t bytes);
  // Requires unread_mutex_.
  void MakeRoom();
  void RemoveFromTable();
  // The final response and the release come in any order; after both no callback follows.
  void ReleaseOne();

  const int64_t number_;
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<InferCallTable> table_;
  CallOutputTarget target_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;  // valid during this object's life
  std::optional<InferRequest> released_;             // owns handle_ after OnRelease
  std::shared_ptr<InferCall> self_;
  std::atomic<int> num_pending_callbacks_{2};

  std::mutex unread_mutex_;    // guards the members below
  std::deque<size_t> unread_;  // bytes of each response that is not known to be read
  size_t unread_bytes_ = 0;
  std::optional<Clock::time_point> full_since_;  // set while the called model has to wait
  bool is_unlimited_ = false;
};

}  // namespace nereid::python
