// One worker: a Python process, the resources that it shares with the host, and the host thread
// that serves it. There are two sockets. On the command channel the host sends commands (load,
// initialize, execute) and the worker answers them in order. On the posted channel both sides post
// messages that need no order with the commands: responses of response senders, calls of other
// models, log lines. The thread reads the posted channel and the process's output, and waits for
// its end.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "backends/python_like_scripted/channel.h"
#include "backends/python_like_scripted/child_process.h"
#include "backends/python_like_scripted/gpu_region.h"
#include "backends/python_like_scripted/leased_outputs.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/posted_input_buffers.h"
#include "backends/python_like_scripted/protocol.h"
#include "backends/python_like_scripted/shared_region.h"
#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::python {

struct WorkerOptions {
  std::string label;       // names the worker in the log and in errors: "model 'm'"
  std::string name;        // the model's; ps shows it as the process's first argument
  ProcessCommand command;  // the interpreter and its file, without the arguments of the latter
  uint64_t region_bytes = 1 << 20;
  uint64_t region_growth_bytes = 1 << 20;
  uint64_t region_max_bytes = 0;  // 0: without limit
  std::string region_prefix = "nereid";
  bool keeps_gpu_inputs = false;  // FORCE_CPU_ONLY_INPUT_TENSORS=no
  std::chrono::milliseconds start_timeout{30000};
  // For how long a worker that executes a command may be stopped by a signal (SIGSTOP).
  std::chrono::milliseconds stop_timeout{30000};
};

// Receives a worker's messages. [worker thread]
class WorkerListener {
 public:
  // `message` is positioned after the kind. An error kills the worker.
  virtual Status OnPosted(WorkerMessage kind, MarshalReader& message) = 0;
  // Lets senders go on that wait for the reader of their responses. Called after messages were
  // handled and, while it returns true, every few milliseconds.
  virtual bool ServeWaiting() { return false; }
  // Called once, after all messages. `how` says how the worker ended.
  virtual void OnWorkerExit(const std::string& how) = 0;

 protected:
  ~WorkerListener() = default;
};

// Describe a worker process that has ended, in the words of Triton's "Stub process ... is not
// healthy", which scripts look for. `how` says how the process ended: "exited with code 3".
std::string WorkerExitText(std::string_view instance, std::string_view how);
Status WorkerExitError(std::string_view instance, std::string_view how);
// The error of a request that the worker did not answer.
Status RequestExitError(std::string_view instance, std::string_view how);

class Worker {
 public:
  // Returns when the interpreter runs and has imported its libraries.
  static Result<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  // Kills the process if it still runs.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Sends a command and returns the body of the answer after "OK". If the worker answers with an
  // error, returns INTERNAL with its text. If the worker exits, or does not finish `task` within
  // `timeout` (0: no limit unless it is stopped), it is killed and the result is UNAVAILABLE. [one
  // thread at a time]
  Result<std::string> RunCommand(std::string command, std::chrono::milliseconds timeout,
                                 const char* task = "answer");
  // The two halves of RunCommand. Several commands may be sent before the first answer is awaited;
  // answers come in the order of the commands. If there is no shared memory for a command that is
  // too long for the socket, it was not sent.
  Status Send(std::string command);
  Result<std::string> AwaitAnswer(std::chrono::milliseconds timeout, const char* task = "answer");
  // [any thread]
  Status Post(std::string message);
  // Makes the worker thread call ServeWaiting. [any thread]
  void Wake();
  // Waits until `count` posted messages were handled or the worker has exited. [not the worker
  // thread]
  void WaitForPosted(uint64_t count);

  GpuRegion& gpu() { return *gpu_; }
  // GPU memory for inputs on a GPU; null if the model takes them in host memory.
  GpuRegion* input_gpu() { return options_.keeps_gpu_inputs ? gpu_.get() : nullptr; }
  SharedRegion& to_worker() { return *to_worker_; }
  SharedRegion& from_worker() { return *from_worker_; }
  LeasedOutputs& leased_outputs() { return *leased_outputs_; }
  PostedInputBuffers& posted_input_buffers() { return *posted_input_buffers_; }
  const std::string& label() const { return options_.label; }
  pid_t pid() const { return process_->pid(); }
  bool has_exited() const { return has_exited_; }

  // The instance, and whether it executes requests, for error texts. [before the first execution]
  void SetInstance(const std::string& name) { name_ = name; }
  void SetServing() { is_serving_ = true; }
  // Set once, before the worker posts any message.
  void SetListener(WorkerListener* listener) { listener_ = listener; }
  // Kills the worker with the reason `why`. [any thread]
  void Kill(const std::string& why);
  // Waits until the worker has exited and returns UNAVAILABLE with how it ended. [not the worker
  // thread]
  Status ExitError();
  // Kills the worker and joins its thread; the listener is not called after this. [not the worker
  // thread]
  void End();
  // Lets the model finalize, then does the same as End. [not the worker thread]
  void Stop(std::chrono::milliseconds timeout);

 private:
  explicit Worker(const WorkerOptions& options)
      : options_(options),
        name_(options.name),
        leased_outputs_(std::make_shared<LeasedOutputs>(options.region_max_bytes)),
        posted_input_buffers_(std::make_shared<PostedInputBuffers>(options.region_max_bytes)) {}
  Status Open();
  Status AwaitStart();
  Result<std::optional<std::string>> ReceiveUnlessStopped();
  Result<std::string> CheckAnswer(Result<std::optional<std::string>> answer,
                                  std::chrono::milliseconds timeout, const char* task);
  void RememberLastLine(std::string_view line);

  void Serve();  // the main function of thread_
  bool ServePosted();
  void ServeOutput(bool is_last);
  Status Handle(const std::string& message);
  Status HandleLog(MarshalReader& message);
  void RejectCall(int64_t call);
  void LogOutput(std::string_view line);

  const WorkerOptions options_;
  std::string name_;  // the instance's; the model's until there is an instance
  bool is_serving_ = false;
  const std::shared_ptr<LeasedOutputs> leased_outputs_;
  const std::shared_ptr<PostedInputBuffers> posted_input_buffers_;
  std::unique_ptr<SharedRegion> to_worker_, from_worker_;
  std::unique_ptr<GpuRegion> gpu_;
  std::unique_ptr<Channel> command_channel_, posted_channel_;
  UniqueFd output_;  // the process's stdout and stderr
  UniqueFd wake_;    // an eventfd: posted messages wait to be sent
  std::unique_ptr<ChildProcess> process_;
  std::atomic<WorkerListener*> listener_{nullptr};
  std::atomic<uint64_t> num_posted_{0};
  std::atomic<bool> has_exited_{false}, is_stopping_{false};
  std::atomic<bool> has_timed_out_{false};  // killed because of a timeout
  std::string partial_line_;                // the start of an incomplete line [worker thread]
  std::mutex mutex_;                        // guards the members below
  std::string kill_reason_;
  std::string last_line_;  // the last line of its log or its output
  std::promise<std::string> exit_promise_;
  std::shared_future<std::string> exit_text_{exit_promise_.get_future()};
  std::thread thread_;
};

}  // namespace nereid::python
