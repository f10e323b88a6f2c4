// One loaded version of a Python model: which file it is, which interpreter runs it, and the worker
// that completed its configuration, which the first instance goes on with.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "backends/python_like_scripted/errands.h"
#include "backends/python_like_scripted/execution_env.h"
#include "backends/python_like_scripted/settings.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::scripted {

class PythonModel : public Model {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    return attributes.SetParallelInstanceLoading(true);
  }

  Status AutoComplete(ConfigDraft& draft) override;
  Status Initialize() override;

  // A worker that has read the model's file: the one that completed the configuration, or a new
  // one. [load and restart threads]
  Result<std::unique_ptr<Worker>> NewWorker();

  const Settings& settings() const { return settings_; }
  Errands& errands() { return errands_; }

 private:
  Status Prepare();
  Result<Command> WorkerCommand() const;
  Result<std::unique_ptr<Worker>> StartWorker() const;

  bool is_prepared_ = false;
  Settings settings_;
  bool is_backends_file_ = false;            // <backend-dir>/<name>/model.py, not the model's own
  std::filesystem::path file_;               // model.py
  bool leaves_gpu_inputs_ = false;           // FORCE_CPU_ONLY_INPUT_TENSORS
  std::shared_ptr<const ExecutionEnv> env_;  // null: interpreter_
  std::string interpreter_;
  std::mutex mutex_;  // guards spare_
  std::unique_ptr<Worker> spare_;
  Errands errands_;
};

}  // namespace nereid::scripted
