// Loads models of benchmarks on one GPU or several. Errors end the program. [main thread]
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"

namespace nereid::bench {

// bench/gpu_llm/run_cases.py looks for lines that begin with "error".
inline void CheckOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  std::exit(1);
}

template <typename T>
T Checked(Result<T> result) {
  CheckOk(result.status());
  return std::move(*result);
}

// The executor of a model, and that of its first GPU.
struct LoadedModel {
  std::unique_ptr<llm::Executor> executor;
  gpu::GpuExecutor* first = nullptr;
};

// Loads a model with made-up weights on the devices. If there is one device, options.device names
// it.
inline LoadedModel LoadModel(const llm::DecoderSpec& spec, const gpu::GpuExecutorOptions& options,
                             std::span<const int32_t> devices) {
  llm::DecoderModel model;
  model.spec = spec;
  LoadedModel loaded;
  if (devices.size() > 1) {
    auto executor = Checked(gpu::ShardedExecutor::Create(model, options, devices));
    loaded.first = &executor->rank(0);
    loaded.executor = std::move(executor);
  } else {
    auto executor = Checked(gpu::GpuExecutor::Create(std::move(model), options));
    loaded.first = executor.get();
    loaded.executor = std::move(executor);
  }
  return loaded;
}

}  // namespace nereid::bench
