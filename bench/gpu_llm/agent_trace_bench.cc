// What the tiers of the prefix cache bring to agents on a GPU: the trace of
// bench/llm_core/agent_trace.h with the shape of an 8B model in bf16, random weights and eight
// times as many tokens. With a KV cache for all conversations, with one for a third of them, and
// with that one and host memory or a file behind it. Says whether the answers are those of the
// first run: they are with --invariant, since the blocks that come back have the bytes that left.
// Prints CSV.
//
//   gpu_agent_trace_bench [--invariant] [--file CHECKPOINT]
// --file: also with a file, in the folder of temporary files; it is bound to this checkpoint.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "bench/gpu_llm/load_model.h"
#include "bench/gpu_llm/model_shapes.h"
#include "bench/llm_core/agent_trace.h"

namespace nereid::bench {
namespace {

struct Settings {
  bool is_batch_invariant = false;
  std::optional<llm::Checkpoint> checkpoint;
};

AgentTraceTotals RunOnGpu(const Settings& settings, const AgentTraceShape& shape,
                          int64_t cache_tokens, const llm::KvTierOptions& tiers) {
  gpu::GpuExecutorOptions options;
  options.max_num_sequences = 4 * shape.num_at_once;  // limits the KV cache, too
  options.max_cache_tokens = cache_tokens;
  options.is_batch_invariant = settings.is_batch_invariant;
  options.dummy = gpu::DummyWeights{};
  options.tiers = tiers;
  if (settings.checkpoint) options.checkpoint = &*settings.checkpoint;
  return RunAgentTrace(shape, LoadModel(Shape("8b"), options, {}).executor);
}

void Run(const Settings& settings) {
  AgentTraceShape shape;
  shape.num_system_tokens *= 8;
  shape.num_turn_tokens *= 8;
  shape.num_output_tokens = 16;
  shape.vocab_size = 128256;
  constexpr int64_t kEnough = 160000;
  (void)RunOnGpu(settings, shape, kEnough, {});  // chooses algorithms
  const AgentTraceTotals all = RunOnGpu(settings, shape, kEnough, {});
  PrintAgentTraceHeader();
  const auto print = [&](const char* name, int64_t cache_tokens, const AgentTraceTotals& totals) {
    if (!PrintAgentTrace(name, cache_tokens, shape, totals, all))
      std::printf("# %s: the answers differ\n", name);
  };
  print("all conversations", kEnough, all);
  const int64_t third = all.num_needed(shape) / 3;
  print("a third", third, RunOnGpu(settings, shape, third, {}));
  llm::KvTierOptions host;
  host.host_bytes = int64_t{12} << 30;
  print("a third and host memory", third, RunOnGpu(settings, shape, third, host));
  if (!settings.checkpoint) return;
  llm::KvTierOptions file;
  file.file_path = (std::filesystem::temp_directory_path() / "agent_trace_blocks").string();
  file.file_bytes = int64_t{16} << 30;
  file.log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  std::filesystem::remove(file.file_path);
  print("a third and a file", third, RunOnGpu(settings, shape, third, file));
  std::filesystem::remove(file.file_path);
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--invariant") == 0) settings.is_batch_invariant = true;
    if (std::strcmp(argv[i], "--file") == 0 && i + 1 < argc)
      settings.checkpoint = *nereid::llm::Checkpoint::Open(argv[++i]);
  }
  nereid::bench::Run(settings);
}
