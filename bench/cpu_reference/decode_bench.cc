// Decode and prefill of a checkpoint on the CPU, compared with the limits of the machine: bytes of
// weights per step against the measured read bandwidth for the same footprint, multiply-adds
// against the measured peak. Without --checkpoint, uses a synthetic Llama of the given shape.
//
//   decode_bench [--checkpoint DIR] [--threads N] [--hidden 384 --layers 8 --heads 6 --kv-heads 6
//                 --inner 1024 --vocab 4096 --weights bf16|int4] [--context 128] [--seconds 1]
//                 [--batches 1,2,4,8,16,32,64] [--prompts 32,128,512,1024]
//                 [--adapters 0,1,64 --rank 16 --adapter-batch 64]
#include <immintrin.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/lora/lora_adapter.h"
#include "bench/cpu_reference/synthetic_checkpoint.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Time of a call, measured over about `seconds`. On a busy machine, `processor`, the sum over all
// threads, is more meaningful than wall time.
struct Timing {
  double least, median, processor;
};
Timing Measure(double seconds, const std::function<void()>& body) {
  body();
  std::vector<double> times, processor;
  for (double sum = 0.0; sum < seconds || times.size() < 5; sum += times.back()) {
    const double start = Seconds(CLOCK_MONOTONIC);
    const double used = Seconds(CLOCK_PROCESS_CPUTIME_ID);
    body();
    times.push_back(Seconds(CLOCK_MONOTONIC) - start);
    processor.push_back(Seconds(CLOCK_PROCESS_CPUTIME_ID) - used);
  }
  std::sort(times.begin(), times.end());
  std::sort(processor.begin(), processor.end());
  return {times.front(), times[times.size() / 2], processor[processor.size() / 2]};
}

// Reads several streams in parallel, one cache line of each in turn. A single stream does not reach
// the full bandwidth for data much larger than the caches.
__attribute__((target("avx2"))) int64_t SumAvx2(const int64_t* data, size_t count) {
  constexpr size_t kStreams = 4;
  const size_t part = count / kStreams / 8 * 8;
  __m256i sums[2 * kStreams] = {};
  for (size_t i = 0; i < part; i += 8) {
    for (size_t j = 0; j < 2 * kStreams; ++j) {
      const int64_t* from = data + j / 2 * part + i + j % 2 * 4;
      sums[j] =
          _mm256_xor_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
  }
  int64_t sum = 0;
  for (const __m256i& four : sums) sum ^= four[0] ^ four[1] ^ four[2] ^ four[3];
  return sum;
}

// Time to read `bytes` repeatedly with all threads of a pool, as a decode step does.
Timing ReadTime(cpu::ThreadPool& pool, int64_t bytes, double seconds) {
  std::vector<int64_t> data(bytes / 8, 1);
  std::atomic<int64_t> sink{0};
  return Measure(seconds, [&] {
    pool.BeginStep();
    pool.ParallelRanges(static_cast<int64_t>(data.size()), 4096,
                        [&](int64_t first, int64_t last, int) {
                          sink ^= SumAvx2(data.data() + first, last - first);
                        });
    pool.EndStep();
  });
}

struct Options {
  std::string checkpoint;
  int threads = 0;
  int context = 128;
  double seconds = 1.0;
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64};
  std::vector<int> prompts = {32, 128, 512, 1024};
  std::vector<int> adapters;  // numbers of LoRA adapters in a step of adapter_batch sequences
  int rank = 16;
  int adapter_batch = 64;
  LlamaShape shape;
};

std::vector<int> Numbers(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, ',');) numbers.push_back(std::stoi(number));
  return numbers;
}

// Memory and file reads of a load. A mapped page counts once it has been touched.
std::string LoadCost() {
  std::string text = "after the load:";
  for (const auto& [file, keys] : std::map<std::string, std::vector<std::string>>{
           {"/proc/self/io", {"rchar:", "read_bytes:"}},
           {"/proc/self/status", {"RssAnon:", "RssFile:"}}}) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      for (const std::string& key : keys) {
        if (line.starts_with(key)) text += " " + key + " " + line.substr(key.size() + 1) + ";";
      }
    }
  }
  return text;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  const std::map<std::string, int64_t*> sizes = {
      {"--hidden", &options.shape.hidden}, {"--layers", &options.shape.layers},
      {"--heads", &options.shape.heads},   {"--kv-heads", &options.shape.kv_heads},
      {"--inner", &options.shape.inner},   {"--vocab", &options.shape.vocab}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--checkpoint")
      options.checkpoint = argv[i + 1];
    else if (name == "--threads")
      options.threads = std::atoi(argv[i + 1]);
    else if (name == "--context")
      options.context = std::atoi(argv[i + 1]);
    else if (name == "--weights")
      options.shape.is_int4 = std::string(argv[i + 1]) == "int4";
    else if (name == "--batches")
      options.batches = Numbers(argv[i + 1]);
    else if (name == "--prompts")
      options.prompts = Numbers(argv[i + 1]);
    else if (name == "--adapters")
      options.adapters = Numbers(argv[i + 1]);
    else if (name == "--rank")
      options.rank = std::atoi(argv[i + 1]);
    else if (name == "--adapter-batch")
      options.adapter_batch = std::atoi(argv[i + 1]);
    else if (name == "--seconds")
      options.seconds = std::atof(argv[i + 1]);
    else if (sizes.contains(name))
      *sizes.at(name) = std::atoll(argv[i + 1]);
    else
      std::printf("unknown option %s\n", argv[i]);
  }
  return options;
}

// `num_sequences` runs of `num_tokens` tokens that follow `num_cached` tokens; greedy.
class Batches {
 public:
  Batches(const llm::ExecutorLimits& limits, int num_sequences, int num_tokens, int num_cached) {
    const int blocks = (num_cached + num_tokens + limits.block_size - 1) / limits.block_size;
    tables_.resize(num_sequences);
    history_.assign(num_cached + num_tokens, 1);
    int next = 0;
    for (int s = 0; s < num_sequences; ++s) {
      for (int b = 0; b < blocks; ++b) tables_[s].push_back(next++ % limits.num_blocks);
      llm::BatchEntry& sequence = batch_.entries.emplace_back();
      sequence.slot = s;
      sequence.first_token = s * num_tokens;
      sequence.num_tokens = num_tokens;
      sequence.num_cached = num_cached;
      sequence.block_table = tables_[s];
      sequence.num_logits = 1;
      sequence.samples = true;
      sequence.sampling = {&params_, history_, 0, {}};
      for (int t = 0; t < num_tokens; ++t) {
        batch_.token_ids.push_back((s * 31 + t * 7) % limits.vocab_size);
      }
    }
  }
  const llm::StepBatch& batch() const { return batch_; }
  // Entry i uses adapter i modulo their number; none without adapters.
  void UseAdapters(std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters) {
    if (adapters.empty()) return;
    batch_.adapters.assign(adapters.begin(), adapters.end());
    for (size_t i = 0; i < batch_.entries.size(); ++i) {
      batch_.entries[i].adapter = static_cast<int32_t>(i % adapters.size());
    }
  }

 private:
  llm::SamplingParams params_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> history_;
  llm::StepBatch batch_;
};

Timing MeasureStep(cpu::CpuExecutor& executor, int num_sequences, int num_tokens, int num_cached,
                   double seconds) {
  const Batches batches(executor.limits(), num_sequences, num_tokens, num_cached);
  return Measure(seconds, [&] {
    if (!executor.Submit(batches.batch()).ok() || !executor.Collect().ok()) std::abort();
  });
}

// Adapters of all linear modules but the head, in bf16.
std::vector<std::shared_ptr<const llm::LoraAdapter>> MakeAdapters(const llm::DecoderSpec& spec,
                                                                  int64_t rank, int count) {
  using enum llm::WeightKind;
  struct Size {
    llm::WeightKind kind;
    int64_t rows, columns;
  };
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size;
  const Size sizes[] = {{kQ, spec.q_size(), hidden},  {kK, spec.kv_size(), hidden},
                        {kV, spec.kv_size(), hidden}, {kAttentionOut, hidden, spec.q_size()},
                        {kGate, inner, hidden},       {kUp, inner, hidden},
                        {kDown, hidden, inner}};
  const std::vector<uint16_t> values(rank * std::max({hidden, inner, spec.q_size()}), 0x3c00);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return llm::LoraMatrix{llm::CheckpointDataType::kBF16, rows, columns,
                           reinterpret_cast<const uint8_t*>(values.data())};
  };
  std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters;
  for (int i = 0; i < count; ++i) {
    llm::LoraBuilder builder("a" + std::to_string(i), spec.num_layers());
    for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
      for (const Size& size : sizes) {
        const llm::LoraDelta delta = {builder.Copy(matrix(rank, size.columns)),
                                      builder.Copy(matrix(size.rows, rank)), 1e-6f};
        if (!builder.Add({layer, size.kind, llm::kNoExpert}, "", delta).ok()) std::abort();
      }
    }
    adapters.push_back(builder.Finish());
  }
  return adapters;
}

// Decode steps of the same sequences with each number of adapters, in turn, so that all see the
// same machine. Medians of processor time, on which other programs have less influence than on wall
// time.
void CompareAdapters(cpu::CpuExecutor& executor, const Options& options) {
  constexpr int kRounds = 5;
  const int largest = *std::max_element(options.adapters.begin(), options.adapters.end());
  const auto adapters = MakeAdapters(executor.spec(), options.rank, largest);
  std::map<int, std::vector<double>> times;
  for (int round = 0; round < kRounds; ++round) {
    for (const int count : options.adapters) {
      Batches batches(executor.limits(), options.adapter_batch, 1, options.context);
      batches.UseAdapters(std::span(adapters).first(count));
      const Timing step = Measure(options.seconds / kRounds, [&] {
        if (!executor.Submit(batches.batch()).ok() || !executor.Collect().ok()) std::abort();
      });
      times[count].push_back(step.processor);
    }
  }
  const auto median = [&](int count) {
    std::vector<double>& of_count = times[count];
    std::sort(of_count.begin(), of_count.end());
    return of_count[kRounds / 2];
  };
  const double base = median(options.adapters.front());
  for (const int count : options.adapters) {
    std::printf(
        "decode batch %d, %2d adapters of rank %d: processor %.2f ms, %.2f of the rate "
        "with %d\n",
        options.adapter_batch, count, options.rank, median(count) * 1e3, base / median(count),
        options.adapters.front());
  }
  if (adapters.empty()) return;
  std::printf("an adapter: %.1f MB\n", static_cast<double>(adapters[0]->size_bytes()) / 1e6);
}

Result<std::unique_ptr<cpu::CpuExecutor>> Load(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::Checkpoint::Open(options.checkpoint));
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel model, llm::ReadDecoder(*checkpoint, true));
  cpu::CpuExecutorOptions executor_options;
  executor_options.num_threads = options.threads;
  executor_options.max_num_tokens = 2048;
  return cpu::CpuExecutor::Create(std::move(checkpoint), std::move(model), executor_options);
}

int Run(Options options) {
  const bool is_synthetic = options.checkpoint.empty();
  if (is_synthetic) {
    options.checkpoint =
        (std::filesystem::temp_directory_path() / ("nereid-bench-" + std::to_string(::getpid())))
            .string();
    WriteLlama(options.shape, options.checkpoint);
  }
  const auto load_start = Clock::now();
  Result<std::unique_ptr<cpu::CpuExecutor>> loaded = Load(options);
  if (!loaded.ok()) {
    std::printf("%s\n", loaded.status().message().c_str());
    return 1;
  }
  cpu::CpuExecutor& executor = **loaded;
  const double load_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - load_start).count();
  std::printf("%s\n", LoadCost().c_str());
  const int64_t bytes = executor.weight_bytes_per_step();
  cpu::ThreadPool pool(executor.pool().num_threads());
  const Timing read = ReadTime(pool, bytes, options.seconds);
  const Timing far = ReadTime(pool, int64_t{1} << 30, options.seconds);
  std::printf("%s, %d threads, ops %s, load %.1f ms\n", options.checkpoint.c_str(),
              pool.num_threads(), std::string(cpu::BestOps().isa).c_str(), load_ms);
  std::printf("weights a step: %.1f MB; reading as much: %.1f GB/s (least %.1f); 1 GB: %.1f GB/s\n",
              bytes / 1e6, bytes / read.median / 1e9, bytes / read.least / 1e9,
              1.073741824 / far.median);
  for (const int batch : options.batches) {
    const Timing step = MeasureStep(executor, batch, 1, options.context, options.seconds);
    std::printf(
        "decode batch %2d: %.3f ms (least %.3f, processor %.3f), %.0f tokens/s, %.1f GB/s; "
        "of the read bandwidth: %.0f %% (least %.0f, processor %.0f)\n",
        batch, step.median * 1e3, step.least * 1e3, step.processor * 1e3, batch / step.median,
        bytes / step.median / 1e9, read.median / step.median * 100, read.least / step.least * 100,
        read.processor / step.processor * 100);
  }
  for (const int tokens : options.prompts) {
    if (tokens > executor.limits().max_positions) continue;
    const Timing step = MeasureStep(executor, 1, tokens, 0, options.seconds);
    std::printf("prefill %4d tokens: %.2f ms (least %.2f, processor %.2f), %.0f tokens/s", tokens,
                step.median * 1e3, step.least * 1e3, step.processor * 1e3, tokens / step.median);
    if (is_synthetic) {  // the head runs for the last token only
      const auto macs =
          static_cast<double>(tokens * options.shape.layer_macs() + options.shape.head_macs());
      std::printf(", %.0f GFLOP/s (a processor %.0f)", 2.0 * macs / step.median / 1e9,
                  2.0 * macs / step.processor / 1e9);
    }
    std::printf("\n");
  }
  if (!options.adapters.empty()) CompareAdapters(executor, options);
  if (is_synthetic) std::filesystem::remove_all(options.checkpoint);
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // shows results during a long run
  return nereid::bench::Run(nereid::bench::ParseOptions(argc, argv));
}
