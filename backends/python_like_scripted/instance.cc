#include "backends/python_like_scripted/instance.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "backends/python_like_scripted/death.h"
#include "nereid/error.h"

namespace nereid::scripted {
namespace {

// A worker that lives longer than this was no failure of its start.
constexpr std::chrono::seconds kLongLife{10};
// Where executions are short, waking the worker for each is a good part of them. Where they are
// long it is not, and requests had better wait where they can be cancelled.
constexpr std::chrono::milliseconds kQuick{1};
constexpr uint32_t kMostInTurn = 16;
constexpr std::chrono::milliseconds kFirstDelay{100};
constexpr std::chrono::milliseconds kLongestDelay{10'000};

// None before the first restart, then doubling.
std::chrono::milliseconds DelayAfter(int num_quick_deaths) {
  if (num_quick_deaths <= 1) return std::chrono::milliseconds(0);
  const int doublings = std::min(num_quick_deaths - 2, 10);
  return std::min(kFirstDelay * (1 << doublings), kLongestDelay);
}

}  // namespace

Status PythonInstance::Initialize() {
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, StartSession());
  try {
    restart_ = std::thread([this] { RestartAll(); });
  } catch (const std::system_error& error) {
    return UnavailableError("no thread could be started for the Python worker: ", error.what());
  }
  std::lock_guard lock(mutex_);
  return TakeOver(session);
}

Status PythonInstance::TakeOver(std::shared_ptr<Session>& session) {
  if (died_early_) return WorkerLost(name(), last_death_);
  session_ = std::move(session);
  started_ = std::chrono::steady_clock::now();
  state_ = State::kRunning;
  changed_.notify_all();
  return {};
}

Result<std::shared_ptr<Session>> PythonInstance::StartSession() {
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, model().NewWorker());
  auto session =
      std::make_shared<Session>(std::move(worker), open_, model().errands(), *this, context());
  NEREID_RETURN_IF_ERROR(session->Initialize(model().settings().load_timeout));
  return session;
}

Result<std::shared_ptr<Session>> PythonInstance::CurrentSession() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return state_ != State::kStarting && (state_ != State::kRunning || !session_->is_dead());
  });
  if (state_ == State::kRunning) return session_;
  return RequestLost(name(), StrCat(last_death_, "; it will be started again"));
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
  if (!done.ok()) GiveUp(*session, keys, done);
  answers_on_gpu_ |= session->answers_on_gpu();
  NoteTime(start, 1);
  session->MakeRoomForOffers();
  return {};
}

void PythonInstance::GiveUp(Session& session, std::span<const uint64_t> keys, const Status& why) {
  session.Kill(why.message());
  for (const uint64_t key : keys) open_.Fail(key, why);
}

// Answers that are not read yet take room, too: where there is a limit each request has all of it.
uint32_t PythonInstance::MostInTurn() const {
  const bool has_room = model().settings().region_max_bytes == 0;
  return is_quick_ && has_room && !answers_on_gpu_ ? kMostInTurn : 1;
}

void PythonInstance::NoteTime(std::chrono::steady_clock::time_point start, size_t num_executions) {
  is_quick_ = std::chrono::steady_clock::now() - start <= kQuick * num_executions;
}

void PythonInstance::ExecuteInTurn(std::span<TRITONBACKEND_Request*> requests) {
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
    ExecuteInTurn(std::span<const uint64_t>(keys));
    return {};
  });
  if (!done.ok()) {
    for (const uint64_t key : keys) open_.Fail(key, done);
  }
  if (taken.ok()) return;
  Batch rest(requests.subspan(num_taken), context());
  rest.Complete(taken);
}

// What a worker that died had not begun goes to the next one.
void PythonInstance::ExecuteInTurn(std::span<const uint64_t> keys) {
  while (!keys.empty()) {
    const Result<std::shared_ptr<Session>> session = CurrentSession();
    if (!session.ok()) {
      for (const uint64_t key : keys) open_.Fail(key, session.status());
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    size_t num_over = keys.size();
    const Status done = CatchAll("execute", [&]() -> Status {
      num_over = (*session)->ExecuteInTurn(keys, model().settings().execute_timeout);
      return {};
    });
    if (!done.ok()) GiveUp(**session, keys, done);
    NoteTime(start, num_over);
    (*session)->MakeRoomForOffers();
    keys = keys.subspan(num_over);
  }
}

// With the lock, so that the session does not end on a thread that may not wait.
Offers::Offer PythonInstance::OfferInput(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  if (state_ != State::kRunning || session_->is_dead()) return {};
  return session_->OfferInput(size_bytes);
}

Status PythonInstance::Ready() {
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kRunning) session = session_;
  }
  if (session == nullptr) return WorkerLost(name(), "is not running");
  return session->IsReady();
}

void PythonInstance::OnSessionDeath(const std::string& how) {
  LogError(StrCat("model '", model().name(), "': ", DeathText(name(), how)));
  {
    std::lock_guard lock(mutex_);
    last_death_ = how;
    died_early_ = true;
    if (state_ != State::kRunning) return;  // whoever starts or stops it sees to it
    state_ = State::kStarting;
    const auto life = std::chrono::steady_clock::now() - started_;
    num_quick_deaths_ = life > kLongLife ? 1 : num_quick_deaths_ + 1;
  }
  open_.FailAll(RequestLost(name(), how));
  {
    std::lock_guard lock(mutex_);
    wants_restart_ = true;
  }
  changed_.notify_all();
}

void PythonInstance::RestartAll() {
  for (;;) {
    std::shared_ptr<Session> dead;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return wants_restart_ || is_ending_; });
      if (is_ending_) return;
      wants_restart_ = false;
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
      std::lock_guard lock(mutex_);  // memory ran out: one more failure
      ++num_quick_deaths_;
      last_death_ = "memory ran out";  // short enough to take none
    }
  }
}

void PythonInstance::Restart() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const std::chrono::milliseconds delay = DelayAfter(num_quick_deaths_);
      if (delay.count() > 0 && state_ != State::kStopped) {
        state_ = State::kWaiting;
        changed_.notify_all();
        changed_.wait_for(lock, delay, [this] { return state_ == State::kStopped; });
      }
      if (state_ == State::kStopped) return;
      state_ = State::kStarting;
      died_early_ = false;
    }
    std::shared_ptr<Session> session;
    Status status = CatchAll("start", [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(session, StartSession());
      return {};
    });
    std::lock_guard lock(mutex_);
    if (state_ == State::kStopped) return;
    if (status.ok()) status = TakeOver(session);
    if (status.ok()) return;
    ++num_quick_deaths_;
    LogError(StrCat("model '", model().name(), "': instance '", name(),
                    "' could not be started again: ", status.message()));
    last_death_ = StrCat("could not be started again: ", status.message());
  }
}

void PythonInstance::EndRestarts() {
  {
    std::lock_guard lock(mutex_);
    state_ = State::kStopped;
    is_ending_ = true;
  }
  changed_.notify_all();
  if (restart_.joinable()) restart_.join();
}

void PythonInstance::Finalize() {
  EndRestarts();
  std::shared_ptr<Session> session;
  {
    std::lock_guard lock(mutex_);
    session = std::move(session_);
  }
  if (session != nullptr) session->Stop(model().settings().start_timeout);
}

}  // namespace nereid::scripted
