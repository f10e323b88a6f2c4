// One model instance: keeps a worker running. If the worker exits, its requests fail with the
// reason and another worker is started: at once the first time, after growing delays if that one
// exits early too.
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

namespace nereid::python {

class PythonInstance : public ModelInstance<PythonModel>, public SessionOwner {
 public:
  ~PythonInstance() override {
    StopRestarts();
    session_.reset();  // its worker notifies members declared below
  }

  Status Initialize() override;
  Status Execute(Batch& batch) override;
  // Implement NEREID_ModelInstanceMostInTurn and NEREID_ModelInstanceExecuteInTurn. [instance
  // thread]
  uint32_t MaxSerialRequests() const;
  void ExecuteSerially(std::span<TRITONBACKEND_Request*> requests);
  // Implements NEREID_ModelInstanceOfferInput. [any thread]
  PostedInputBuffers::Buffer PostInputBuffer(uint64_t size_bytes);
  Status Ready() override;
  void Finalize() override;

  void OnSessionEnd(const std::string& how) override;

 private:
  enum class State { kRunning, kStarting, kWaiting, kStopped };

  Result<std::shared_ptr<Session>> StartSession();
  // Returns the current session; waits while one is being started. UNAVAILABLE says why there is
  // none.
  Result<std::shared_ptr<Session>> CurrentSession();
  // Makes a started session the current one, unless its worker has exited since. The caller holds
  // mutex_.
  Status InstallSession(std::shared_ptr<Session>& session);
  void RunRestarts();  // the main function of restart_
  // Tries to start a session until that succeeds or the instance is stopped.
  void Restart();
  void StopRestarts();
  void ExecuteSerially(std::span<const uint64_t> keys);
  // After an exchange with the worker was cut off: kills the worker, because its next answers would
  // be matched with the wrong requests, and fails the requests.
  void AbandonSession(Session& session, std::span<const uint64_t> keys, const Status& why);
  void RecordDuration(std::chrono::steady_clock::time_point start, size_t num_executions);

  OpenRequests open_;
  bool is_short_ = false;        // the last executions were short [instance thread]
  bool answers_on_gpu_ = false;  // as in Session [instance thread]
  std::mutex mutex_;             // guards the members below
  std::condition_variable changed_;
  State state_ = State::kStopped;
  std::shared_ptr<Session> session_;
  std::string last_exit_;
  bool exited_early_ = false;    // the worker of a session exited before InstallSession
  bool is_restart_due_ = false;  // the open requests of the exited worker were answered
  std::chrono::steady_clock::time_point started_{};
  int num_early_exits_ = 0;  // in a row; an exit is early within kStableLifetime
  bool is_ending_ = false;
  // Started by Initialize, because it may be impossible to start a thread when a worker has exited.
  std::thread restart_;
};

}  // namespace nereid::python
