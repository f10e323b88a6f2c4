// What an instance has with one worker, from its start to its death: the requests that it runs, the
// calls that it makes of the host and of other models.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/python_like_scripted/errands.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class HostCalls;

class SessionOwner {
 public:
  // [the worker's thread]
  virtual void OnSessionDeath(const std::string& how) = 0;

 protected:
  ~SessionOwner() = default;
};

class Session : public WorkerListener {
 public:
  // `open`, `errands`, `owner` and `instance` outlive it.
  Session(std::unique_ptr<Worker> worker, OpenRequests& open, Errands& errands, SessionOwner& owner,
          const InstanceContext& instance);
  ~Session();

  // Lets the model initialize itself within the time (0: without limit). [load and restart threads]
  Status Initialize(std::chrono::milliseconds timeout);
  // Runs requests that are in `open`, and answers those that end with it. [instance's thread]
  void Execute(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout);
  // Runs awaited requests of `open` one after the other, each by itself. The worker has
  // the next questions in hand while it works, so that it need not be woken for each. Returns how
  // many of them are over: all, or those up to the one in which the worker died. [instance's
  // thread]
  size_t ExecuteInTurn(std::span<const uint64_t> keys, std::chrono::milliseconds timeout);
  // Some output lay on a GPU. There a model may write to what it answered with, so that only
  // answers that are read at once may name it; in turn it would be copied. [instance's thread]
  bool answers_on_gpu() const { return answers_on_gpu_; }
  // Memory for inputs that somebody receives, where the worker's has room. [any thread]
  Offers::Offer OfferInput(uint64_t size_bytes) {
    return worker_->offers().Make(worker_->to_worker(), size_bytes);
  }
  // So that there is room for what could not be offered; without it inputs are copied. [instance's
  // thread]
  void MakeRoomForOffers() { (void)worker_->to_worker().GrowAsMissed(); }
  // Asks the model, when it has an opinion; who asks while it is asked hears the same. [any thread]
  Status IsReady();
  void Stop(std::chrono::milliseconds timeout);
  // Ends the worker because of `why`, and returns when it has ended. [instance's thread]
  void Kill(const std::string& why) {
    worker_->Kill(why);
    (void)worker_->DeadError();
  }
  // The owner has heard of it, or is about to. [any thread]
  bool is_dead() const { return worker_->is_dead(); }

  Status OnPosted(WorkerMessage kind, MarshalReader& message) override;
  void OnDeath(const std::string& how) override;

 private:
  // Of questions that are not answered.
  struct Bytes {
    uint64_t messages = 0;
    uint64_t tensors = 0;  // in shared memory

    Bytes& operator+=(const Bytes& other) {
      messages += other.messages;
      tensors += other.tensors;
      return *this;
    }
    Bytes& operator-=(const Bytes& other) {
      messages -= other.messages;
      tensors -= other.tensors;
      return *this;
    }
    bool MayBeMore() const;
  };

  // Writes what can be written; the others are failed and leave `keys`.
  std::string WriteQuestion(std::vector<uint64_t>& keys, std::vector<Block>& blocks);
  // Asks about one request while `num_unread` answers are awaited. On error nothing was asked.
  Result<Bytes> AskAbout(uint64_t key, size_t num_unread);
  // Appends the request, or nothing.
  Status WriteRequest(uint64_t key, std::vector<Block>& blocks, MarshalWriter& writer);
  Status WriteRequest(Request& request, uint64_t key, std::vector<Block>& blocks,
                      MarshalWriter& writer);
  // Waits for the answer about requests and answers them, with an error too. False: none came.
  bool TakeAnswer(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout);
  Status Finish(const std::vector<uint64_t>& keys, const std::string& answer);
  Status OnRespond(MarshalReader& message);
  Status OnReadiness(MarshalReader& message);
  // Nobody answers any more whether the model is ready.
  void EndQueries(const Status& why);

  const std::shared_ptr<Worker> worker_;
  OpenRequests& open_;
  SessionOwner& owner_;
  const InstanceContext& instance_;
  const bool is_decoupled_;
  bool asks_model_ready_ = false;
  bool answers_on_gpu_ = false;
  std::unique_ptr<HostCalls> calls_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable answered_;
  int64_t num_queries_ = 0, num_answered_ = 0;  // one waits for its answer at most
  Status readiness_;                            // the last answer
};

}  // namespace nereid::scripted
