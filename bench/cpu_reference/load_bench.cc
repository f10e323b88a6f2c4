// The cost of loading a checkpoint on the CPU, and of the first step after it, which touches every
// weight: time, memory, bytes read from disk. Prints one line of JSON for loads.py.
//
//   load_bench DIRECTORY [THREADS]
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "backends/cpu_reference/cpu_executor.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The first number after `key` in a file of /proc/self.
int64_t Counter(const char* file, const std::string& key) {
  std::ifstream in(std::string("/proc/self/") + file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::atoll(line.c_str() + key.size());
  }
  return 0;
}

// Prints the changes since `start` as members whose names begin with `stage`.
void Report(const char* stage, Clock::time_point start) {
  timespec processor = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &processor);
  const double wall_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  std::printf(
      "\"%s\": {\"wall_ms\": %.1f, \"processor_ms\": %.1f, \"own_kb\": %ld, \"mapped_kb\": %ld, "
      "\"peak_kb\": %ld, \"disk_bytes\": %ld, \"read_bytes\": %ld}",
      stage, wall_ms,
      static_cast<double>(processor.tv_sec) * 1e3 + static_cast<double>(processor.tv_nsec) * 1e-6,
      Counter("status", "RssAnon:"), Counter("status", "RssFile:"), Counter("status", "VmHWM:"),
      Counter("io", "read_bytes:"), Counter("io", "rchar:"));
}

Result<std::unique_ptr<cpu::CpuExecutor>> Load(const std::string& directory, int num_threads) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::Checkpoint::Open(directory));
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel model, llm::ReadDecoder(*checkpoint, true));
  cpu::CpuExecutorOptions options;
  options.num_threads = num_threads;
  options.max_cache_tokens = 64;
  return cpu::CpuExecutor::Create(std::move(checkpoint), std::move(model), options);
}

int Run(const std::string& directory, int num_threads) {
  const Clock::time_point start = Clock::now();
  const Result<std::unique_ptr<cpu::CpuExecutor>> loaded = Load(directory, num_threads);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().message().c_str());
    return 1;
  }
  std::printf("{");
  Report("load", start);
  const std::vector<int32_t> table = {0};
  llm::StepBatch batch;
  batch.token_ids = {1};
  llm::BatchEntry& sequence = batch.entries.emplace_back();
  sequence.num_tokens = 1;
  sequence.block_table = table;
  sequence.num_logits = 1;
  if (!(*loaded)->Submit(batch).ok() || !(*loaded)->Collect().ok()) return 1;
  std::printf(", ");
  Report("first_step", start);
  std::printf("}\n");
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  return nereid::bench::Run(argv[1], argc > 2 ? std::atoi(argv[2]) : 2);
}
