// One instance: a worker that is kept running. When it dies its requests are answered with how it
// died, and another is started, at once at first, later and later when that dies too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "backends/python_like_scripted/model.h"
#include "backends/python_like_scripted/open_requests.h"
#include "backends/python_like_scripted/session.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class PythonInstance : public ModelInstance<PythonModel>, public SessionOwner {
 public:
  ~PythonInstance() override {
    EndRestarts();
    session_.reset();  // whose worker's end is told to what follows it
  }

  Status Initialize() override;
  Status Execute(Batch& batch) override;
  // As NEREID_ModelInstanceMostInTurn and NEREID_ModelInstanceExecuteInTurn. [instance's thread]
  uint32_t MostInTurn() const;
  void ExecuteInTurn(std::span<TRITONBACKEND_Request*> requests);
  // As NEREID_ModelInstanceOfferInput. [any thread]
  Offers::Offer OfferInput(uint64_t size_bytes);
  Status Ready() override;
  void Finalize() override;

  void OnSessionDeath(const std::string& how) override;

 private:
  enum class State { kRunning, kStarting, kWaiting, kStopped };

  Result<std::shared_ptr<Session>> StartSession();
  // Waits while one is being started, or will be; UNAVAILABLE says why there is none.
  Result<std::shared_ptr<Session>> CurrentSession();
  // Makes a started session the current one, unless it died since. Needs the lock.
  Status TakeOver(std::shared_ptr<Session>& session);
  void RestartAll();  // the restart thread
  // Tries until there is a session, or none is wanted any more.
  void Restart();
  void EndRestarts();
  void ExecuteInTurn(std::span<const uint64_t> keys);
  // After an exchange that ended in the middle: the worker's answers would be taken for others'.
  void GiveUp(Session& session, std::span<const uint64_t> keys, const Status& why);
  void NoteTime(std::chrono::steady_clock::time_point start, size_t num_executions);

  OpenRequests open_;
  bool is_quick_ = false;        // the last executions were [instance's thread]
  bool answers_on_gpu_ = false;  // as Session's [instance's thread]
  std::mutex mutex_;             // guards what follows
  std::condition_variable changed_;
  State state_ = State::kStopped;
  std::shared_ptr<Session> session_;
  std::string last_death_;
  bool died_early_ = false;     // the session that is being started, before it was taken over
  bool wants_restart_ = false;  // what the dead one left open is answered
  std::chrono::steady_clock::time_point started_{};
  int num_quick_deaths_ = 0;  // in a row
  bool is_ending_ = false;
  // There from the start: when a worker has died there may be no thread to be had.
  std::thread restart_;
};

}  // namespace nereid::scripted
