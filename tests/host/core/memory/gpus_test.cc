#include "host/core/memory/gpus.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/cuda/fake_gpus.h"

namespace nereid::core {
namespace {

TEST(GpuMonitorTest, ShowsEachGpuInTheMetrics) {
  ASSERT_TRUE(kHasFakeGpus);
  Metrics metrics({});
  metrics.set_readers({[] {
                         return MachineReaders::Pool{4096, 256};
                       },
                       [] { return GpuMonitor::Get().Read(); }});
  (void)metrics.Page();
  const std::string page = metrics.Page();
  const auto has = [&](const std::string& line) { return page.find(line + "\n") != page.npos; };
  const std::string first = R"({gpu_uuid="GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0"})";
  const std::string second = R"({gpu_uuid="GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1"})";
  EXPECT_TRUE(has("# TYPE nv_gpu_utilization gauge")) << page;
  EXPECT_TRUE(has("nv_gpu_utilization" + first + " 0.25"));
  EXPECT_TRUE(has("nv_gpu_utilization" + second + " 0.25"));
  EXPECT_TRUE(has("nv_gpu_memory_total_bytes" + first + " 1000000"));
  EXPECT_TRUE(has("nv_gpu_memory_used_bytes" + second + " 250000"));
  EXPECT_TRUE(has("nv_gpu_power_usage" + first + " 123.5"));
  EXPECT_TRUE(has("nv_gpu_power_limit" + first + " 700"));
  EXPECT_FALSE(has("nv_gpu_power_limit" + second + " 700")) << "NVML does not return it";
  EXPECT_TRUE(has("# TYPE nv_energy_consumption counter"));
  EXPECT_TRUE(has("nv_energy_consumption" + first + " 2")) << "since the first page: " << page;
  EXPECT_TRUE(has("nv_pinned_memory_pool_total_bytes 4096"));
  EXPECT_TRUE(has("nv_pinned_memory_pool_used_bytes 256"));
}

TEST(GpuMonitorTest, ShowsNoGpuIfGpuMetricsAreDisabled) {
  MetricsOptions options;
  options.gpu = false;
  Metrics metrics(options);
  metrics.set_readers({nullptr, [] { return std::vector<GpuReading>(1); }});
  EXPECT_EQ(metrics.Page().find("nv_gpu"), std::string::npos);
}

TEST(GpuMonitorTest, ShowsNoGpuIfTheEnvironmentDisablesGpus) {
  ASSERT_EQ(setenv("TRITON_SERVER_CPU_ONLY", "1", 1), 0);
  Metrics metrics({});
  unsetenv("TRITON_SERVER_CPU_ONLY");
  metrics.set_readers({nullptr, [] { return std::vector<GpuReading>(1); }});
  EXPECT_EQ(metrics.Page().find("nv_gpu"), std::string::npos);
}

TEST(GpuMonitorTest, ReturnsTheMemoryUtilizationOfAGpu) {
  const auto share = GpuMonitor::Get().MemoryUtilization(1);
  ASSERT_TRUE(share.ok()) << share.status().message();
  EXPECT_DOUBLE_EQ(*share, 0.25);
  EXPECT_EQ(GpuMonitor::Get().MemoryUtilization(2).status().message(),
            "GPU 2: this machine has 2 GPUs");
}

}  // namespace
}  // namespace nereid::core
