// One loaded version of a Python model: its file, its interpreter, and the worker that completed
// its configuration, which the first instance reuses.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "backends/python_like_scripted/deferred_calls.h"
#include "backends/python_like_scripted/execution_env.h"
#include "backends/python_like_scripted/settings.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/backend.h"

namespace nereid::python {

class PythonModel : public Model {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    return attributes.SetParallelInstanceLoading(true);
  }

  Status AutoComplete(ConfigDraft& draft) override;
  Status Initialize() override;

  // Returns a worker that has imported the model's file: the one that completed the configuration,
  // or a new one. [load and restart threads]
  Result<std::unique_ptr<Worker>> NewWorker();

  const Settings& settings() const { return settings_; }
  DeferredCalls& deferred_calls() { return deferred_calls_; }

 private:
  Status Prepare();
  Result<ProcessCommand> InterpreterCommand() const;
  Result<std::unique_ptr<Worker>> StartWorker() const;

  bool is_prepared_ = false;
  Settings settings_;
  bool is_backend_file_ = false;             // <backend-dir>/<name>/model.py, not the model's own
  std::filesystem::path file_;               // model.py
  bool keeps_gpu_inputs_ = false;            // FORCE_CPU_ONLY_INPUT_TENSORS
  std::shared_ptr<const ExecutionEnv> env_;  // null: interpreter_ is used
  std::string interpreter_;
  std::mutex mutex_;  // guards spare_
  std::unique_ptr<Worker> spare_;
  DeferredCalls deferred_calls_;
};

}  // namespace nereid::python
