// The use of one worker by an instance, from the worker's start to its exit: it runs the instance's
// requests and serves the worker's calls of the host and of other models.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/python_like_scripted/deferred_calls.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::python {

class HostCalls;

class SessionOwner {
 public:
  // `how` as in WorkerListener::OnWorkerExit. [worker thread]
  virtual void OnSessionEnd(const std::string& how) = 0;

 protected:
  ~SessionOwner() = default;
};

class Session : public WorkerListener {
 public:
  // `open`, `deferred_calls`, `owner` and `instance` outlive the session.
  Session(std::unique_ptr<Worker> worker, OpenRequests& open, DeferredCalls& deferred_calls,
          SessionOwner& owner, const InstanceContext& instance);
  ~Session();

  // Calls the model's initialize(), for at most `timeout` (0: without limit). [load and restart
  // threads]
  Status Initialize(std::chrono::milliseconds timeout);
  // Executes requests of `open` as one batch and answers those that end with it. [instance thread]
  void Execute(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout);
  // Executes awaited requests of `open` one after the other. The next commands are sent while the
  // worker executes, so that it need not be woken for each request. Returns how many requests are
  // done: all, or those up to the one during which the worker exited. [instance thread]
  size_t ExecuteSerially(std::span<const uint64_t> keys, std::chrono::milliseconds timeout);
  // True once an output was in GPU memory. The model may overwrite such memory after its answer, so
  // that only answers that are read at once may refer to it. Serial execution would have to copy
  // it. [instance thread]
  bool answers_on_gpu() const { return answers_on_gpu_; }
  // Posts memory for inputs that a frontend receives, if the worker's region has free space. [any
  // thread]
  PostedInputBuffers::Buffer PostInputBuffer(uint64_t size_bytes) {
    return worker_->posted_input_buffers().Post(worker_->to_worker(), size_bytes);
  }
  // Allocates the memory that PostInputBuffer lacked. If this fails, inputs are copied. [instance
  // thread]
  void GrowForMissedBuffers() { (void)worker_->to_worker().GrowForMissedAllocations(); }
  // Calls the model's is_ready(), if it has one. Concurrent callers share one query. [any thread]
  Status IsReady();
  void Stop(std::chrono::milliseconds timeout);
  // Kills the worker with the reason `why` and waits until it has exited. [instance thread]
  void Kill(const std::string& why) {
    worker_->Kill(why);
    (void)worker_->ExitError();
  }
  // True once the worker has exited. The owner was notified or is about to be. [any thread]
  bool has_exited() const { return worker_->has_exited(); }

  Status OnPosted(WorkerMessage kind, MarshalReader& message) override;
  bool ServeWaiting() override;
  void OnWorkerExit(const std::string& how) override;

 private:
  // Bytes of commands that have no answer yet.
  struct UnansweredBytes {
    uint64_t messages = 0;
    uint64_t tensors = 0;  // of tensors in shared memory

    UnansweredBytes& operator+=(const UnansweredBytes& other) {
      messages += other.messages;
      tensors += other.tensors;
      return *this;
    }
    UnansweredBytes& operator-=(const UnansweredBytes& other) {
      messages -= other.messages;
      tensors -= other.tensors;
      return *this;
    }
    bool IsBelowLimit() const;
  };

  // Encodes the requests that can be encoded. The others fail and are removed from `keys`.
  std::string WriteExecuteCommand(std::vector<uint64_t>& keys, std::vector<SharedBlock>& blocks);
  // Sends the command for one request while `num_unread` earlier answers are outstanding. On an
  // error nothing was sent.
  Result<UnansweredBytes> SendRequest(uint64_t key, size_t num_unread);
  // Appends the encoded request; appends nothing on an error.
  Status WriteRequest(uint64_t key, std::vector<SharedBlock>& blocks, MarshalWriter& writer);
  // Waits for the answer to a command and responds to its requests, also if the answer is an error.
  // Returns false if the worker sent no valid answer.
  bool ReceiveAnswer(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout);
  Status Finish(const std::vector<uint64_t>& keys, const std::string& answer);
  Status OnRespond(MarshalReader& message);
  Status OnReadiness(MarshalReader& message);
  // Ends all waits in IsReady with the status `why`.
  void EndReadinessQueries(const Status& why);

  const std::shared_ptr<Worker> worker_;
  OpenRequests& open_;
  SessionOwner& owner_;
  const InstanceContext& instance_;
  const bool is_decoupled_;
  bool has_readiness_check_ = false;
  bool answers_on_gpu_ = false;
  std::unique_ptr<HostCalls> calls_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable answered_;
  int64_t num_queries_ = 0, num_answered_ = 0;  // at most one query has no answer yet
  Status readiness_;                            // result of the last answered query
};

}  // namespace nereid::python
