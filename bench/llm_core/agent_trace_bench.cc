// What the tiers of the prefix cache bring to agents: 20 conversations of 8 turns each, whose tools
// run between the turns while others have theirs. The same trace with a KV cache for all
// conversations, with one for a third of them, and with that one and host memory or a file behind
// it. Checks that the answers are the same. Prints CSV.
//
//   agent_trace_bench [CHECKPOINT]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "backends/cpu_reference/cpu_executor.h"
#include "bench/llm_core/agent_trace.h"

namespace nereid::bench {
namespace {

AgentTraceTotals RunOnCpu(const std::string& directory, int64_t cache_tokens,
                          const llm::KvTierOptions& tiers) {
  auto checkpoint =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
  auto model = llm::ReadDecoder(*checkpoint, true);
  cpu::CpuExecutorOptions options;
  options.num_threads = 1;
  options.max_num_sequences = AgentTraceShape().num_at_once;
  options.max_cache_tokens = cache_tokens;
  options.tiers = tiers;
  auto executor = cpu::CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  if (!executor.ok()) {
    std::fprintf(stderr, "%s\n", executor.status().message().c_str());
    std::exit(1);
  }
  return RunAgentTrace({}, std::move(*executor));
}

void Run(const std::string& directory) {
  const AgentTraceTotals all = RunOnCpu(directory, 40000, {});
  PrintAgentTraceHeader();
  const auto print = [&](const char* name, int64_t cache_tokens, const AgentTraceTotals& totals) {
    if (PrintAgentTrace(name, cache_tokens, {}, totals, all)) return;
    std::fprintf(stderr, "%s: the answers differ\n", name);
    std::exit(1);
  };
  print("all conversations", 40000, all);
  const int64_t third = all.num_needed({}) / 3;
  print("a third", third, RunOnCpu(directory, third, {}));
  llm::KvTierOptions host;
  host.host_bytes = int64_t{1} << 30;
  print("a third and host memory", third, RunOnCpu(directory, third, host));
  llm::KvTierOptions file;
  file.file_path = (std::filesystem::temp_directory_path() / "agent_trace_blocks").string();
  file.file_bytes = int64_t{1} << 30;
  file.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  std::filesystem::remove(file.file_path);
  print("a third and a file", third, RunOnCpu(directory, third, file));
  std::filesystem::remove(file.file_path);
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Run(argc > 1 ? argv[1] : "demo/model");
}
