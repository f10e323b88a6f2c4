#include "backends/python_like_scripted/instance.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/thread.h"
#include "nereid/error.h"

namespace nereid::python {
namespace {

// A worker that exits after a longer time is restarted without a delay.
constexpr std::chrono::seconds kStableLifetime{10};
// If executions are short, waking the worker for each takes a large part of the time. If they are
// long it does not matter, and requests should wait in the scheduler, where they can be cancelled.
constexpr std::chrono::milliseconds kShortExecution{1};
constexpr uint32_t kMaxSerialRequests = 16;
constexpr std::chrono::milliseconds kFirstDelay{100};
constexpr std::chrono::milliseconds kMaxDelay{10'000};

// No delay before the first restart; then the delay doubles.
std::chrono::milliseconds DelayAfter(int num_early_exits) {
  if (num_early_exits <= 1) return std::chrono::milliseconds(0);
  const int doublings = std::min(num_early_exits - 2, 10);
  return std::min(kFirstDelay * (1 << doublings), kMaxDelay);
}

}  // namespace

Status PythonInstance::Initialize() {
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, StartSession());
  try {
    restart_ = StartThread([this] { RunRestarts(); });
  } catch (const std::system_error& error) {
    return UnavailableError("no thread could be started for the Python worker: ", error.what());
  }
  std::lock_guard lock(mutex_);
  return InstallSession(session);
}

Status PythonInstance::InstallSession(std::shared_ptr<Session>& session) {
  if (exited_early_) return WorkerExitError(name(), last_exit_);
  session_ = std::move(session);
  started_ = std::chrono::steady_clock::now();
  state_ = State::kRunning;
  changed_.notify_all();
  return {};
}

Result<std::shared_ptr<Session>> PythonInstance::StartSession() {
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, model().NewWorker());
  auto session = std::make_shared<Session>(std::move(worker), open_, model().deferred_calls(),
                                           *this, context());
  NEREID_RETURN_IF_ERROR(session->Initialize(model().settings().load_timeout));
  return session;
}

Result<std::shared_ptr<Session>> PythonInstance::CurrentSession() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return state_ != State::kStarting && (state_ != State::kRunning || !session_->has_exited());
  });
  if (state_ == State::kRunning) return session_;
  return RequestExitError(name(), StrCat(last_exit_, "; it will be started again"));
}

Status PythonInstance::Execute(Batch& batch) {
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session, CurrentSession());
  std::vector<uint64_t> keys;
  for (Request& request : batch.Take()) keys.push_back(open_.Add(std::move(request)));
  const auto start = std::chrono::steady_clock::now();
  const Status done = CatchAll("execute", [&]() -> Status {
    session->Execute(keys, model().settings().execute_timeout);
    return {};
  });
  if (!done.ok()) AbandonSession(*session, keys, done);
  answers_on_gpu_ |= session->answers_on_gpu();
  RecordDuration(start, 1);
  session->GrowForMissedBuffers();
  return {};
}

void PythonInstance::AbandonSession(Session& session, std::span<const uint64_t> keys,
                                    const Status& why) {
  session.Kill(why.message());
  for (const uint64_t key : keys) open_.Fail(key, why);
}

// Unread answers use memory, too. If the region has a size limit, each request may need all of it.
uint32_t PythonInstance::MaxSerialRequests() const {
  const bool has_room = model().settings().region_max_bytes == 0;
  return is_short_ && has_room && !answers_on_gpu_ ? kMaxSerialRequests : 1;
}

void PythonInstance::RecordDuration(std::chrono::steady_clock::time_point start,
                                    size_t num_executions) {
  is_short_ = std::chrono::steady_clock::now() - start <= kShortExecution * num_executions;
}

void PythonInstance::ExecuteSerially(std::span<TRITONBACKEND_Request*> requests) {
  std::vector<uint64_t> keys;
  size_t num_taken = 0;
  const Status taken = CatchAll("execute", [&]() -> Status {
    keys.reserve(requests.size());
    for (TRITONBACKEND_Request*& request : requests) {
      Batch alone(std::span(&request, 1), context());
      ++num_taken;
      keys.push_back(open_.Add(std::move(alone.Take().front()), /*is_awaited=*/true));
    }
    return {};
  });
  const Status done = CatchAll("execute", [&]() -> Status {
    ExecuteSerially(std::span<const uint64_t>(keys));
    return {};
  });
  if (!done.ok()) {
    for (const uint64_t key : keys) open_.Fail(key, done);
  }
  if (taken.ok()) return;
  Batch rest(requests.subspan(num_taken), context());
  rest.Complete(taken);
}

// Requests that an exited worker had not started go to the next worker.
void PythonInstance::ExecuteSerially(std::span<const uint64_t> keys) {
  while (!keys.empty()) {
    const Result<std::shared_ptr<Session>> session = CurrentSession();
    if (!session.ok()) {
      for (const uint64_t key : keys) open_.Fail(key, session.status());
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    size_t num_done = keys.size();
    const Status done = CatchAll("execute", [&]() -> Status {
      num_done = (*session)->ExecuteSerially(keys, model().settings().execute_timeout);
      return {};
    });
    if (!done.ok()) AbandonSession(**session, keys, done);
    RecordDuration(start, num_done);
    (*session)->GrowForMissedBuffers();
    keys = keys.subspan(num_done);
  }
}

// Holds the lock, so that this thread, which must not wait, does not drop the last reference to the
// session.
PostedInputBuffers::Buffer PythonInstance::PostInputBuffer(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kRunning || session_->has_exited()) return {};
  return session_->PostInputBuffer(size_bytes);
}

Status PythonInstance::Ready() {
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kRunning) session = session_;
  }
  if (session == nullptr) return WorkerExitError(name(), "is not running");
  return session->IsReady();
}

void PythonInstance::OnSessionEnd(const std::string& how) {
  LogError(StrCat("model '", model().name(), "': ", WorkerExitText(name(), how)));
  {
    std::lock_guard lock(mutex_);
    last_exit_ = how;
    exited_early_ = true;
    if (state_ != State::kRunning) return;  // the thread that starts or stops it handles this
    state_ = State::kStarting;
    const auto life = std::chrono::steady_clock::now() - started_;
    num_early_exits_ = life > kStableLifetime ? 1 : num_early_exits_ + 1;
  }
  open_.FailAll(RequestExitError(name(), how));
  {
    std::lock_guard lock(mutex_);
    is_restart_due_ = true;
  }
  changed_.notify_all();
}

void PythonInstance::RunRestarts() {
  for (;;) {
    std::shared_ptr<Session> dead;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_restart_due_ || is_ending_; });
      if (is_ending_) return;
      is_restart_due_ = false;
      dead = std::move(session_);
    }
    dead.reset();
    const auto restart = [this]() -> Status {
      Restart();
      return {};
    };
    for (;;) {
      const Status status = CatchAll("restart", restart);
      if (status.ok()) break;
      std::lock_guard lock(mutex_);  // counts as one more early exit
      ++num_early_exits_;
      last_exit_ = "memory ran out";  // short enough to need no allocation
    }
  }
}

void PythonInstance::Restart() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const std::chrono::milliseconds delay = DelayAfter(num_early_exits_);
      if (delay.count() > 0 && state_ != State::kStopped) {
        state_ = State::kWaiting;
        changed_.notify_all();
        changed_.wait_for(lock, delay, [this] { return state_ == State::kStopped; });
      }
      if (state_ == State::kStopped) return;
      state_ = State::kStarting;
      exited_early_ = false;
    }
    std::shared_ptr<Session> session;
    Status status = CatchAll("start", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(session, StartSession());
      return {};
    });
    std::lock_guard lock(mutex_);
    if (state_ == State::kStopped) return;
    if (status.ok()) status = InstallSession(session);
    if (status.ok()) return;
    ++num_early_exits_;
    LogError(StrCat("model '", model().name(), "': instance '", name(),
                    "' could not be started again: ", status.message()));
    last_exit_ = StrCat("could not be started again: ", status.message());
  }
}

void PythonInstance::StopRestarts() {
  {
    std::lock_guard lock(mutex_);
    state_ = State::kStopped;
    is_ending_ = true;
  }
  changed_.notify_all();
  if (restart_.joinable()) restart_.join();
}

void PythonInstance::Finalize() {
  StopRestarts();
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mutex_);
    session = std::move(session_);
  }
  if (session != nullptr) session->Stop(model().settings().start_timeout);
}

}  // namespace nereid::python
