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

#include "base/spin_wait.h"
#include "base/thread.h"
#include "nereid/error.h"
#include "nereid/log.h"

namespace nereid::python {
namespace {

// Longer lines of output are split.
constexpr size_t kMaxLineBytes = 8192;

bool IsReadable(const pollfd& polled) {
  return (polled.revents & (POLLIN | POLLHUP)) != 0;
}

// A call of another model wakes several threads one after the other. Equal to _SPIN_FACTOR in
// spin_reader.py.
constexpr int kSpinFactor = 4;

// While senders wait for room, their room is polled with this period.
constexpr int kRoomPollMs = 2;

// Spins for a short time, then sleeps in poll() for at most `timeout_ms` (-1: without a limit).
// False if a signal interrupted poll().
template <size_t kCount>
bool SpinThenPoll(SpinWait& spin, pollfd (&polled)[kCount], int timeout_ms) {
  if (spin.ShouldSpin() && spin.SpinUntil([&] { return poll(polled, kCount, 0) != 0; }))
    return true;
  int count = -1;
  spin.Sleep([&] { count = poll(polled, kCount, timeout_ms); });
  return count >= 0;
}

}  // namespace

std::string WorkerExitText(std::string_view instance, std::string_view how) {
  return StrCat("Stub process '", instance, "' is not healthy. The Python worker ", how);
}

Status WorkerExitError(std::string_view instance, std::string_view how) {
  return UnavailableError(WorkerExitText(instance, how));
}

Status RequestExitError(std::string_view instance, std::string_view how) {
  return UnavailableError("Failed to process the request(s) for model instance '", instance,
                          "', message: ", WorkerExitText(instance, how));
}

Result<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options) {
  std::unique_ptr<Worker> worker(new Worker(options));
  Status status = worker->Open();
  if (status.ok()) status = worker->AwaitStart();
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
  UniqueFd command_end, posted_end;
  NEREID_ASSIGN_OR_RETURN(command_channel_,
                          Channel::Create(&command_end, to_worker_.get(), from_worker_.get()));
  NEREID_ASSIGN_OR_RETURN(posted_channel_,
                          Channel::Create(&posted_end, to_worker_.get(), from_worker_.get()));
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return UnavailableError("pipe: ", std::strerror(errno));
  output_.Reset(output[0]);
  const UniqueFd output_end(output[1]);
  fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) return UnavailableError("eventfd: ", std::strerror(errno));

  ProcessCommand command = options_.command;
  const std::vector<int> fds = {command_end.get(), posted_end.get(), to_worker_->fd(),
                                from_worker_->fd()};
  command.arguments.push_back(options_.name);
  for (const int fd : fds) command.arguments.push_back(std::to_string(fd));
  command.arguments.push_back(std::to_string(options_.region_growth_bytes));
  command.arguments.push_back(std::to_string(options_.region_max_bytes));
  NEREID_ASSIGN_OR_RETURN(process_, ChildProcess::Start(std::move(command), fds, output_end.get()));
  return {};
}

// Waits for the worker's first message, which says that the interpreter has imported its libraries.
// Starts the thread that serves the worker.
Status Worker::AwaitStart() {
  try {
    thread_ = StartThread([this] { Serve(); });
  } catch (const std::system_error& error) {
    return UnavailableError("no thread could be started for the Python worker: ", error.what());
  }
  const auto start =
      CheckAnswer(command_channel_->Receive(static_cast<int>(options_.start_timeout.count())),
                  options_.start_timeout, "start");
  return start.status();
}

Worker::~Worker() {
  if (process_ != nullptr) End();
}

Status Worker::ExitError() {
  if (!has_exited_ && command_channel_->is_closed())
    Kill("");  // it closed its socket but has not exited
  if (is_serving_) return RequestExitError(name_, exit_text_.get());
  return UnavailableError(options_.label, ": ", WorkerExitText(name_, exit_text_.get()));
}

Result<std::string> Worker::RunCommand(std::string command, std::chrono::milliseconds timeout,
                                       const char* task) {
  NEREID_RETURN_IF_ERROR(Send(std::move(command)));
  return AwaitAnswer(timeout, task);
}

Status Worker::Send(std::string command) {
  Status sent = command_channel_->Send(std::move(command));
  return !sent.ok() && command_channel_->is_closed() ? ExitError() : sent;
}

Result<std::string> Worker::AwaitAnswer(std::chrono::milliseconds timeout, const char* task) {
  if (timeout.count() != 0) {
    return CheckAnswer(command_channel_->Receive(static_cast<int>(timeout.count())), timeout, task);
  }
  return CheckAnswer(ReceiveUnlessStopped(), options_.stop_timeout,
                     "go on after a signal had stopped it");
}

// Waits for an answer without a time limit while the process runs, and for stop_timeout while it is
// stopped.
Result<std::optional<std::string>> Worker::ReceiveUnlessStopped() {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> since;  // when the process was first seen stopped
  for (;;) {
    auto answer = command_channel_->Receive(/*timeout_ms=*/-1);
    if (!answer.ok() || answer->has_value() || command_channel_->is_closed()) return answer;
    if (!process_->IsStopped()) {
      since.reset();
    } else if (!since.has_value()) {
      since = Clock::now();
    } else if (Clock::now() - *since >= options_.stop_timeout) {
      return answer;
    }
  }
}

Result<std::string> Worker::CheckAnswer(Result<std::optional<std::string>> answer,
                                        std::chrono::milliseconds timeout, const char* task) {
  if (answer.ok() && !answer->has_value()) {
    if (!command_channel_->is_closed()) {
      has_timed_out_ = true;
      Kill(StrCat("it did not ", task, " within ", timeout.count(), " ms"));
    }
    return ExitError();
  }
  if (!answer.ok()) {
    Kill(StrCat("it sent an invalid message: ", answer.status().message()));
    return ExitError();
  }
  MarshalReader reader(**answer);
  if (reader.Tuple() < 2) reader.Fail("an answer is not (is_error, value)");
  const bool is_error = reader.Int() != 0;
  const std::string text(is_error ? reader.Text() : "");
  if (!reader.status().ok()) {
    Kill(StrCat("it sent an invalid message: ", reader.status().message()));
    return ExitError();
  }
  if (is_error) return InternalError(text);
  return std::move(**answer);
}

Status Worker::Post(std::string message) {
  NEREID_RETURN_IF_ERROR(posted_channel_->Post(std::move(message)));
  if (!posted_channel_->Flush()) Wake();
  return {};
}

void Worker::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
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

void Worker::RememberLastLine(std::string_view line) {
  std::lock_guard lock(mutex_);
  last_line_ = line;
}

void Worker::Stop(std::chrono::milliseconds timeout) {
  is_stopping_ = true;
  if (process_->IsStopped()) {
    LogError(StrCat(options_.label, ": finalize is not called: the Python worker is stopped"));
  } else if (!has_exited_) {
    MarshalWriter writer;
    writer.Tuple(1);
    writer.Int(static_cast<int64_t>(WorkerCommand::kFinalize));
    if (auto done = RunCommand(writer.Take(), timeout); !done.ok()) {
      LogError(StrCat(options_.label, ": finalize: ", done.status().message()));
    }
  }
  End();
}

void Worker::End() {
  is_stopping_ = true;
  if (!has_exited_) Kill("it was stopped");
  if (thread_.joinable()) thread_.join();
}

void Worker::Serve() {
  SpinWait spin(kSpinFactor);  // for calls of models that follow each other closely
  for (;;) {
    pollfd polled[] = {{posted_channel_->fd(), POLLIN, 0},
                       {output_.get(), POLLIN, 0},
                       {process_->pidfd(), POLLIN, 0},
                       {wake_.get(), POLLIN, 0}};
    uint64_t ignored = 0;
    (void)!read(wake_.get(), &ignored, sizeof ignored);
    if (!posted_channel_->Flush()) polled[0].events |= POLLOUT;
    if (posted_channel_->is_closed()) polled[0].fd = -1;
    WorkerListener* const listener = listener_;
    const bool has_waiting = listener != nullptr && listener->ServeWaiting();
    if (!SpinThenPoll(spin, polled, has_waiting ? kRoomPollMs : -1)) continue;  // EINTR
    if (IsReadable(polled[0]) && !ServePosted()) process_->Kill();
    if (posted_channel_->is_closed()) process_->Kill();
    if (IsReadable(polled[1])) ServeOutput(/*is_last=*/false);
    if (IsReadable(polled[2])) break;
  }
  std::string how = process_->Wait();
  if (!posted_channel_->is_closed()) (void)ServePosted();
  ServeOutput(/*is_last=*/true);
  {
    std::lock_guard lock(mutex_);
    if (!kill_reason_.empty()) how = StrCat("was ended: ", kill_reason_);
    if (has_timed_out_ && !last_line_.empty()) how += StrCat("; its last line: '", last_line_, "'");
  }
  has_exited_ = true;
  command_channel_->Shutdown();
  num_posted_.store(std::numeric_limits<uint64_t>::max(), std::memory_order_release);
  num_posted_.notify_all();
  exit_promise_.set_value(how);
  if (!is_stopping_) {
    if (WorkerListener* listener = listener_) listener->OnWorkerExit(how);
  }
}

// Handles all messages that have arrived. False if the worker is to be killed.
bool Worker::ServePosted() {
  for (;;) {
    auto message = posted_channel_->Receive(/*timeout_ms=*/0);
    if (message.ok() && !message->has_value()) return true;
    Status status = message.ok() ? CatchAll("message", [&] { return Handle(**message); })
                                 : std::move(message).status();
    if (!status.ok()) {
      std::lock_guard lock(mutex_);
      if (kill_reason_.empty())
        kill_reason_ = StrCat("it sent an invalid message: ", status.message());
      posted_channel_->Shutdown();
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
  if (kind == WorkerMessage::kCall) RejectCall(reader.Int());
  return reader.status();
}

// While the model's file is imported and its configuration completed, there is no instance and so
// no listener.
void Worker::RejectCall(int64_t call) {
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
  RememberLastLine(text);
  Log(static_cast<TRITONSERVER_LogLevel>(level), StrCat(options_.label, ": ", text), file.c_str(),
      static_cast<int>(line));
  return {};
}

void Worker::ServeOutput(bool is_last) {
  char buffer[4096];
  ssize_t size = -1;
  while (output_.is_open() && (size = read(output_.get(), buffer, sizeof buffer)) > 0) {
    partial_line_.append(buffer, static_cast<size_t>(size));
    size_t end = 0;
    while ((end = partial_line_.find('\n')) != std::string::npos) {
      LogOutput(std::string_view(partial_line_).substr(0, end));
      partial_line_.erase(0, end + 1);
    }
    if (partial_line_.size() > kMaxLineBytes) {
      LogOutput(partial_line_);
      partial_line_.clear();
    }
  }
  if (size == 0) output_.Reset();
  if ((is_last || size == 0) && !partial_line_.empty()) LogOutput(std::exchange(partial_line_, {}));
}

void Worker::LogOutput(std::string_view line) {
  RememberLastLine(line);
  LogInfo(StrCat(options_.label, ": ", line), "stdout", 0);
}

}  // namespace nereid::python
