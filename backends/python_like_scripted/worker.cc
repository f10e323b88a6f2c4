#include "backends/python_like_scripted/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>

#include "backends/python_like_scripted/death.h"
#include "base/spin_wait.h"
#include "nereid/error.h"
#include "nereid/log.h"

namespace nereid::scripted {
namespace {

// A line that never ends is cut.
constexpr size_t kMaxLineBytes = 8192;

bool IsReadable(const pollfd& polled) {
  return (polled.revents & (POLLIN | POLLHUP)) != 0;
}

// A call of another model is several hand-overs. Equal to _TIMES in look.py.
constexpr int kLookTimes = 4;

// poll() without end, after a look that may spare the sleep.
template <size_t kCount>
bool LookAndSleep(SpinWait& spin, pollfd (&polled)[kCount]) {
  if (spin.MayPay() && spin.Until([&] { return poll(polled, kCount, 0) != 0; })) return true;
  int count = -1;
  spin.Rest([&] { count = poll(polled, kCount, -1); });
  return count >= 0;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  std::unique_ptr<Worker> worker(new Worker(options));
  Status status = worker->Open();
  if (status.ok()) status = worker->AwaitHello();
  if (!status.ok()) return status;
  return worker;
}

Status Worker::Open() {
  const std::string& prefix = options_.region_prefix;
  NEREID_ASSIGN_OR_RETURN(
      to_worker_, SharedRegion::Create(prefix + "_to_worker", options_.region_bytes,
                                       options_.region_growth_bytes, options_.region_max_bytes));
  NEREID_ASSIGN_OR_RETURN(
      from_worker_, SharedRegion::Create(prefix + "_from_worker", options_.region_bytes,
                                         options_.region_growth_bytes, options_.region_max_bytes));
  gpu_ = std::make_unique<GpuRegion>(*to_worker_);
  UniqueFd asked_end, posted_end;
  NEREID_ASSIGN_OR_RETURN(asked_,
                          Channel::Create(&asked_end, to_worker_.get(), from_worker_.get()));
  NEREID_ASSIGN_OR_RETURN(posted_,
                          Channel::Create(&posted_end, to_worker_.get(), from_worker_.get()));
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return UnavailableError("pipe: ", std::strerror(errno));
  output_.Reset(output[0]);
  const UniqueFd output_end(output[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) return UnavailableError("eventfd: ", std::strerror(errno));

  Command command = options_.command;
  const std::vector<int> fds = {asked_end.get(), posted_end.get(), to_worker_->fd(),
                                from_worker_->fd()};
  for (const int fd : fds) command.arguments.push_back(std::to_string(fd));
  command.arguments.push_back(std::to_string(options_.region_growth_bytes));
  command.arguments.push_back(std::to_string(options_.region_max_bytes));
  NEREID_ASSIGN_OR_RETURN(process_, ChildProcess::Start(std::move(command), fds, output_end.get()));
  return {};
}

// The first message says that the interpreter and its libraries are there; the thread that serves
// the worker starts with it.
Status Worker::AwaitHello() {
  try {
    thread_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& error) {
    return UnavailableError("no thread could be started for the Python worker: ", error.what());
  }
  const auto hello = Checked(asked_->Receive(static_cast<int>(options_.start_timeout.count())),
                             options_.start_timeout, "start");
  return hello.status();
}

Worker::~Worker() {
  if (process_ != nullptr) End();
}

Status Worker::DeadError() {
  if (!is_dead_ && asked_->is_closed()) Kill("");  // closed its socket and lives on
  if (is_serving_) return RequestLost(name_, ended_.get());
  return UnavailableError(options_.label, ": ", DeathText(name_, ended_.get()));
}

Result<std::string> Worker::Ask(std::string question, std::chrono::milliseconds timeout,
                                const char* task) {
  NEREID_RETURN_IF_ERROR(Send(std::move(question)));
  return Await(timeout, task);
}

Status Worker::Send(std::string question) {
  Status sent = asked_->Send(std::move(question));
  return !sent.ok() && asked_->is_closed() ? DeadError() : sent;
}

Result<std::string> Worker::Await(std::chrono::milliseconds timeout, const char* task) {
  if (timeout.count() != 0) {
    return Checked(asked_->Receive(static_cast<int>(timeout.count())), timeout, task);
  }
  return Checked(ReceiveUnlessStopped(), options_.stop_timeout,
                 "go on after a signal had stopped it");
}

// Waits without end for one that works, however long it takes, and not for one that stands still.
Result<std::optional<std::string>> Worker::ReceiveUnlessStopped() {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> since;  // when it was first seen to be stopped
  for (;;) {
    auto answer = asked_->Receive(/*timeout_ms=*/-1);
    if (!answer.ok() || answer->has_value() || asked_->is_closed()) return answer;
    if (!process_->IsStopped()) {
      since.reset();
    } else if (!since.has_value()) {
      since = Clock::now();
    } else if (Clock::now() - *since >= options_.stop_timeout) {
      return answer;
    }
  }
}

Result<std::string> Worker::Checked(Result<std::optional<std::string>> answer,
                                    std::chrono::milliseconds timeout, const char* task) {
  if (answer.ok() && !answer->has_value()) {
    if (!asked_->is_closed()) {
      is_late_ = true;
      Kill(StrCat("it did not ", task, " within ", timeout.count(), " ms"));
    }
    return DeadError();
  }
  if (!answer.ok()) {
    Kill(StrCat("it sent garbage: ", answer.status().message()));
    return DeadError();
  }
  MarshalReader reader(**answer);
  if (reader.Tuple() < 2) reader.Fail("an answer is not (is_error, value)");
  const bool is_error = reader.Int() != 0;
  const std::string text(is_error ? reader.Text() : "");
  if (!reader.status().ok()) {
    Kill(StrCat("it sent garbage: ", reader.status().message()));
    return DeadError();
  }
  if (is_error) return InternalError(text);
  return std::move(**answer);
}

Status Worker::Post(std::string message) {
  NEREID_RETURN_IF_ERROR(posted_->Post(std::move(message)));
  if (posted_->Flush()) return {};
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  return {};
}

void Worker::WaitForPosted(uint64_t count) {
  uint64_t seen = num_posted_.load(std::memory_order_acquire);
  while (seen < count) {
    num_posted_.wait(seen, std::memory_order_acquire);
    seen = num_posted_.load(std::memory_order_acquire);
  }
}

void Worker::Kill(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (kill_reason_.empty()) kill_reason_ = why;
  }
  process_->Kill();
}

void Worker::NoteLine(std::string_view line) {
  std::lock_guard lock(mutex_);
  last_line_ = line;
}

void Worker::Stop(std::chrono::milliseconds timeout) {
  is_stopping_ = true;
  if (process_->IsStopped()) {
    LogError(StrCat(options_.label, ": finalize is not called: the Python worker is stopped"));
  } else if (!is_dead_) {
    MarshalWriter writer;
    writer.Tuple(1);
    writer.Int(static_cast<int64_t>(Question::kFinalize));
    if (auto done = Ask(writer.Take(), timeout); !done.ok()) {
      LogError(StrCat(options_.label, ": finalize: ", done.status().message()));
    }
  }
  End();
}

void Worker::End() {
  is_stopping_ = true;
  if (!is_dead_) Kill("it was stopped");
  if (thread_.joinable()) thread_.join();
}

void Worker::Serve() {
  SpinWait spin(kLookTimes);  // while one call of a model follows the other
  for (;;) {
    pollfd polled[] = {{posted_->fd(), POLLIN, 0},
                       {output_.get(), POLLIN, 0},
                       {process_->pidfd(), POLLIN, 0},
                       {wake_.get(), POLLIN, 0}};
    uint64_t ignored = 0;
    (void)!read(wake_.get(), &ignored, sizeof ignored);
    if (!posted_->Flush()) polled[0].events |= POLLOUT;
    if (posted_->is_closed()) polled[0].fd = -1;
    if (!LookAndSleep(spin, polled)) continue;  // EINTR
    if (IsReadable(polled[0]) && !ServePosted()) process_->Kill();
    if (posted_->is_closed()) process_->Kill();
    if (IsReadable(polled[1])) ServeOutput(/*is_last=*/false);
    if (IsReadable(polled[2])) break;
  }
  std::string how = process_->Wait();
  if (!posted_->is_closed()) (void)ServePosted();
  ServeOutput(/*is_last=*/true);
  {
    std::lock_guard lock(mutex_);
    if (!kill_reason_.empty()) how = StrCat("was ended: ", kill_reason_);
    if (is_late_ && !last_line_.empty()) how += StrCat("; its last line: '", last_line_, "'");
  }
  is_dead_ = true;
  asked_->Shutdown();
  num_posted_.store(std::numeric_limits<uint64_t>::max(), std::memory_order_release);
  num_posted_.notify_all();
  end_.set_value(how);
  if (!is_stopping_) {
    if (WorkerListener* listener = listener_) listener->OnDeath(how);
  }
}

// Everything that is there; false when the worker is to be ended.
bool Worker::ServePosted() {
  for (;;) {
    auto message = posted_->Receive(/*timeout_ms=*/0);
    if (message.ok() && !message->has_value()) return true;
    Status status = message.ok() ? CatchAll("message", [&] { return Handle(**message); })
                                 : std::move(message).status();
    if (!status.ok()) {
      std::lock_guard lock(mutex_);
      if (kill_reason_.empty()) kill_reason_ = StrCat("it sent garbage: ", status.message());
      posted_->Shutdown();
      return false;
    }
    num_posted_.fetch_add(1, std::memory_order_release);
    num_posted_.notify_all();
  }
}

Status Worker::Handle(const std::string& message) {
  MarshalReader reader(message);
  if (reader.Tuple() == 0) reader.Fail("a message without a kind");
  const auto kind = static_cast<WorkerMessage>(reader.Int());
  NEREID_RETURN_IF_ERROR(reader.status());
  if (kind == WorkerMessage::kLog) return HandleLog(reader);
  if (WorkerListener* listener = listener_) return listener->OnPosted(kind, reader);
  if (kind == WorkerMessage::kCall) RefuseCall(reader.Int());
  return reader.status();
}

// While the model's file is read and its configuration completed there is no instance yet.
void Worker::RefuseCall(int64_t call) {
  MarshalWriter reply;
  reply.Tuple(4);
  reply.Int(static_cast<int64_t>(HostMessage::kReply));
  reply.Int(call);
  reply.Bool(false);
  reply.Tuple(2);
  reply.Int(TRITONSERVER_ERROR_UNAVAILABLE);
  reply.Text("the host can be called from initialize on, not before");
  (void)Post(reply.Take());
}

Status Worker::HandleLog(MarshalReader& message) {
  const int64_t level = message.Int();
  const std::string_view text = message.Text();
  const std::string file(message.Text());
  const int64_t line = message.Int();
  NEREID_RETURN_IF_ERROR(message.Finish());
  if (level < TRITONSERVER_LOG_INFO || level > TRITONSERVER_LOG_VERBOSE) {
    return InvalidArgError("log level ", level);
  }
  NoteLine(text);
  Log(static_cast<TRITONSERVER_LogLevel>(level), StrCat(options_.label, ": ", text), file.c_str(),
      static_cast<int>(line));
  return {};
}

void Worker::ServeOutput(bool is_last) {
  char buffer[4096];
  ssize_t size = -1;
  while (output_.is_open() && (size = read(output_.get(), buffer, sizeof buffer)) > 0) {
    output_rest_.append(buffer, static_cast<size_t>(size));
    size_t end = 0;
    while ((end = output_rest_.find('\n')) != std::string::npos) {
      LogOutput(std::string_view(output_rest_).substr(0, end));
      output_rest_.erase(0, end + 1);
    }
    if (output_rest_.size() > kMaxLineBytes) {
      LogOutput(output_rest_);
      output_rest_.clear();
    }
  }
  if (size == 0) output_.Reset();
  if ((is_last || size == 0) && !output_rest_.empty()) LogOutput(std::exchange(output_rest_, {}));
}

void Worker::LogOutput(std::string_view line) {
  NoteLine(line);
  LogInfo(StrCat(options_.label, ": ", line), "stdout", 0);
}

}  // namespace nereid::scripted
