// One worker: a Python process, what it shares with the host, and the thread that serves it. Two
// sockets: on the first the host asks and the worker answers, one question at a time (load,
// initialize, execute); on the second both post what has no order with that (responses of streams,
// calls of other models, log lines). The thread hears the second, what the process prints, and the
// process's end.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "backends/python_like_scripted/channel.h"
#include "backends/python_like_scripted/child_process.h"
#include "backends/python_like_scripted/gpu_region.h"
#include "backends/python_like_scripted/loans.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/offers.h"
#include "backends/python_like_scripted/protocol.h"
#include "backends/python_like_scripted/shared_region.h"
#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::scripted {

struct WorkerOptions {
  std::string label;  // names it in the log and in errors: "model 'm'"
  std::string name;   // of the model
  Command command;    // the interpreter and its arguments, up to the descriptors
  uint64_t region_bytes = 1 << 20;
  uint64_t region_growth_bytes = 1 << 20;
  uint64_t region_max_bytes = 0;  // 0: without limit
  std::string region_prefix = "nereid";
  bool leaves_gpu_inputs = false;  // FORCE_CPU_ONLY_INPUT_TENSORS=no
  std::chrono::milliseconds start_timeout{30000};
  // For how long one that is asked something may stand still because of a signal (SIGSTOP).
  std::chrono::milliseconds stop_timeout{30000};
};

// Hears of a worker. [the worker's thread]
class WorkerListener {
 public:
  // `message` is behind its kind. An error ends the worker.
  virtual Status OnPosted(WorkerMessage kind, MarshalReader& message) = 0;
  // Once, at the end; nothing comes after it.
  virtual void OnDeath(const std::string& how) = 0;

 protected:
  ~WorkerListener() = default;
};

class Worker {
 public:
  // Returns when the interpreter runs and has its libraries.
  static Result<std::unique_ptr<Worker>> Start(const WorkerOptions& options);
  // Kills it if it still lives.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Asks and waits for the answer, whose body is returned behind "OK"; what the worker calls an
  // error is INTERNAL with its text. A worker that dies meanwhile, or does not do in time
  // (0: whenever, unless it is stopped) what `task` calls it, is UNAVAILABLE and dead. [one thread
  // at a time]
  Result<std::string> Ask(std::string question, std::chrono::milliseconds timeout,
                          const char* task = "answer");
  // The two halves of that. Several questions may be asked before the first answer is awaited;
  // answers come in the order of the questions. A question too long for its socket that finds no
  // room in shared memory was not asked.
  Status Send(std::string question);
  Result<std::string> Await(std::chrono::milliseconds timeout, const char* task = "answer");
  // [any thread]
  Status Post(std::string message);
  // Until `count` posted messages were handled, or the worker is dead. [not the worker's thread]
  void WaitForPosted(uint64_t count);

  GpuRegion& gpu() { return *gpu_; }
  // Where inputs that lie on a GPU stay on one; null when the model takes them in host memory.
  GpuRegion* input_gpu() { return options_.leaves_gpu_inputs ? gpu_.get() : nullptr; }
  SharedRegion& to_worker() { return *to_worker_; }
  SharedRegion& from_worker() { return *from_worker_; }
  Loans& loans() { return *loans_; }
  Offers& offers() { return *offers_; }
  pid_t pid() const { return process_->pid(); }
  bool is_dead() const { return is_dead_; }

  // Which instance it belongs to, and whether it runs requests, as errors say. [before Execute]
  void SetInstance(const std::string& name) { name_ = name; }
  void SetServing() { is_serving_ = true; }
  // Who hears of it; it is set once, before the worker has anything to say.
  void SetListener(WorkerListener* listener) { listener_ = listener; }
  // Ends the worker because of `why`. [any thread]
  void Kill(const std::string& why);
  // UNAVAILABLE with how it ended, after waiting for that. [not the worker's thread]
  Status DeadError();
  // Ends it as it is, and its thread; the listener hears nothing more after this. [not the worker's
  // thread]
  void End();
  // Lets it finalize, then ends it; the listener hears nothing more after this. [not the worker's
  // thread]
  void Stop(std::chrono::milliseconds timeout);

 private:
  explicit Worker(const WorkerOptions& options)
      : options_(options),
        name_(options.name),
        loans_(std::make_shared<Loans>(options.region_max_bytes)),
        offers_(std::make_shared<Offers>(options.region_max_bytes)) {}
  Status Open();
  Status AwaitHello();
  Result<std::optional<std::string>> ReceiveUnlessStopped();
  Result<std::string> Checked(Result<std::optional<std::string>> answer,
                              std::chrono::milliseconds timeout, const char* task);
  void NoteLine(std::string_view line);

  void Serve();  // the thread
  bool ServePosted();
  void ServeOutput(bool is_last);
  Status Handle(const std::string& message);
  Status HandleLog(MarshalReader& message);
  void RefuseCall(int64_t call);
  void LogOutput(std::string_view line);

  const WorkerOptions options_;
  std::string name_;  // of the instance; of the model until there is one
  bool is_serving_ = false;
  const std::shared_ptr<Loans> loans_;
  const std::shared_ptr<Offers> offers_;
  std::unique_ptr<SharedRegion> to_worker_, from_worker_;
  std::unique_ptr<GpuRegion> gpu_;
  std::unique_ptr<Channel> asked_, posted_;
  UniqueFd output_;  // what it prints
  UniqueFd wake_;    // an eventfd: something waits to be sent
  std::unique_ptr<ChildProcess> process_;
  std::atomic<WorkerListener*> listener_{nullptr};
  std::atomic<uint64_t> num_posted_{0};
  std::atomic<bool> is_dead_{false}, is_stopping_{false};
  std::atomic<bool> is_late_{false};  // it was ended because it took too long
  std::string output_rest_;           // the beginning of a line [worker's thread]
  std::mutex mutex_;                  // guards what follows
  std::string kill_reason_;
  std::string last_line_;  // of its log or its output
  std::promise<std::string> end_;
  std::shared_future<std::string> ended_{end_.get_future()};
  std::thread thread_;
};

}  // namespace nereid::scripted
