// Fixture of a tiny checkpoint on the GPU and on the CPU, for tests that compare the executors.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu::testing {

// The parameter names the checkpoint. Skipped without a GPU, and where the test data is absent.
class TinyModelTest : public GpuTest<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    GpuTest<::testing::TestWithParam<const char*>>::SetUp();
    if (IsSkipped()) return;
    directory_ = cpu::testing::FindTiny(GetParam());
    if (directory_.empty()) GTEST_SKIP() << "no test data for " << GetParam();
    checkpoint_ =
        std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  }

  static GpuExecutorOptions SmallOptions() {
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 256;
    return options;
  }
  llm::DecoderModel Model() const { return std::move(*llm::ReadDecoder(*checkpoint_, true)); }
  // Null and a failure if it can not be made.
  static std::unique_ptr<GpuExecutor> LoadGpu(llm::DecoderModel model,
                                              const GpuExecutorOptions& options) {
    auto executor = GpuExecutor::Create(std::move(model), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }
  std::unique_ptr<cpu::CpuExecutor> LoadCpu(llm::DecoderModel model,
                                            cpu::CpuExecutorOptions options = {}) const {
    options.num_threads = 2;
    auto executor = cpu::CpuExecutor::Create(checkpoint_, std::move(model), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }

  std::string directory_;
  std::shared_ptr<const llm::Checkpoint> checkpoint_;
};

}  // namespace nereid::gpu::testing
