// Measures the engine on the GPU in process, with a Llama shape and random weights: decode rates at
// fixed batch sizes, time to first token, prefill, and many concurrent requests.
//
//   gpu_engine_bench [--gpus 0,1] [--cache-fraction 0.9]
//                    [--shape 8b|70b|34b|1b|mixtral-8x7b|qwen3-30b-a3b|
//                     phi-3-mini|starcoder2-3b|starcoder2-15b|tiny]
//                    [--config FOLDER] [--weights bf16|int4|fp8|fp8-weights|fp8-blocks]
//                    [--kv bf16|fp8|int8] [--batches 1,8,32] [--ttft 512,2048]
//                    [--prefill 16x2048] [--burst 512]
//                    [--max-sequences 512] [--max-tokens-a-step 8192] [--graphs 1] [--overlap 1]
//                    [--top-p 0] [--rate 20] [--count 400] [--mixed 384] [--profile 0]
//                    [--fused 1] [--steps FILE] [--layers 0] [--invariant 0]
//                    [--adapters 1,64,1000] [--adapter-gb 8] [--adapter-rank 16]
//                    [--modules attention|all|both] [--traffic 0] [--resident 1] [--output 256]
//                    [--context 0] [--positions 0] [--warm-up 0]
// --config: a folder with a config.json, whose decoder is measured instead of --shape; those of
// bench/gpu_llm/shapes, for example. --output: tokens that each sequence of --batches decodes,
// behind a prompt of --context tokens, 0: 128 for one sequence, else 512;
// --positions: tokens of a sequence at most, 0: the shape's;
// --warm-up: seconds of steps before the first request at most;
// --rate: requests a second, Poisson, of 503 input and 256 output tokens, --count of them;
// --mixed: SchedulerOptions::mixed_step_tokens;
// --profile: steps between tables of operator times, 0: off;
// --layers: number of layers, 0: the shape's; --invariant 1: batch-invariant; --resident: the part
// of the layers whose weights stay on the GPU;
// --adapters: decode rates without LoRA adapters, with so many adapters of q, k, v and o, and of
// all linear modules of a layer (--modules: one kind alone), used in turn; --traffic: also the rate
// of so many requests of 512 prompt and 64 to 192 output tokens;
// --steps: writes a line for each step to the file: decoding sequences, prompt tokens, ms. The
// steps of a burst are also summed by their kind.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/llm_core/model/architecture.h"
#include "bench/gpu_llm/engine_traffic.h"
#include "bench/gpu_llm/made_up_adapters.h"
#include "bench/gpu_llm/model_shapes.h"
#include "bench/gpu_llm/number_list.h"

namespace nereid::bench {
namespace {

// GB/s of copies of 256 MiB, the best of five; 0 after an error.
double HostToDeviceGigabytes() {
  constexpr size_t kBytes = size_t{256} << 20;
  auto from = gpu::PinnedMemory::Allocate(kBytes);
  auto to = gpu::DeviceMemory::Allocate(kBytes, "a copy");
  auto stream = gpu::MakeStream();
  if (!from.ok() || !to.ok() || !stream.ok()) return 0.0;
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int copy = 0; copy < 4; ++copy)
      (void)cudaMemcpyAsync(to->data(), from->as<void>(), kBytes, cudaMemcpyHostToDevice,
                            stream->get());
    if (cudaStreamSynchronize(stream->get()) != cudaSuccess) return 0.0;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 4e-9 * static_cast<double>(kBytes) / seconds.count());
  }
  return best;
}

// Bytes that a decode step of the bench's sequences reads without adapters.
double StepBytes(const llm::DecoderSpec& spec, int32_t batch) {
  const double hidden = spec.hidden_size;
  const double layer = hidden * (2.0 * static_cast<double>(spec.q_size() + spec.kv_size()) +
                                 3.0 * spec.intermediate_size);
  const double cached = batch == 1 ? 128 + 128 : 512 + 128;  // on average
  return 2.0 * (spec.num_layers() * layer + hidden * spec.vocab_size) +
         4.0 * batch * cached * spec.num_layers() * static_cast<double>(spec.kv_size());
}

void MeasureAdapters(Bench& bench, const llm::DecoderSpec& spec, int32_t rank,
                     const std::vector<int32_t>& batches, const std::vector<int32_t>& counts,
                     const std::string& modules_given, int32_t num_traffic) {
  MadeUpAdapters made_up(spec, rank, (num_traffic > 0 ? size_t{8} : size_t{1}) << 30);
  const auto decode = [&](int32_t batch) {
    for (int i = 0; i < 2; ++i) bench.Send(std::vector<Work>(batch, {16, kWarmUpTokens}));
    return bench.Decode(batch);
  };
  std::map<int32_t, double> base;
  for (const int32_t batch : batches) base[batch] = decode(batch);
  const double base_traffic = num_traffic > 0 ? bench.Traffic(num_traffic) : 0.0;
  for (const bool has_mlp : {false, true}) {
    if (modules_given == (has_mlp ? "attention" : "all")) continue;
    const char* const modules = has_mlp ? "all linear" : "q k v o";
    const double hidden = spec.hidden_size, q = static_cast<double>(spec.q_size());
    double sizes = 2 * (hidden + q) + 2 * (hidden + static_cast<double>(spec.kv_size()));
    if (has_mlp) sizes += 3 * (hidden + spec.intermediate_size);
    const double adapter_bytes = 2.0 * rank * spec.num_layers() * sizes;
    for (const int32_t count : counts) {
      std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters;
      for (int32_t i = 0; i < count; ++i) adapters.push_back(made_up.Make(has_mlp));
      bench.SetAdapters(std::move(adapters));
      for (const int32_t batch : batches) {
        const int64_t copied = bench.num_copied_adapters();
        const double rate = decode(batch), bytes = StepBytes(spec, batch);
        std::printf("adapters,%s,%d,%.1f,%d,%.1f,%.1f,%.3f,%.3f,%lld\n", modules, count,
                    1e-6 * adapter_bytes, batch, base[batch], rate, rate / base[batch],
                    bytes / (bytes + std::min(count, batch) * adapter_bytes),
                    static_cast<long long>(bench.num_copied_adapters() - copied));
      }
      if (num_traffic == 0) continue;
      const int64_t copied = bench.num_copied_adapters();
      const double rate = bench.Traffic(num_traffic);
      std::printf("traffic,%s,%d,%d,%.1f,%.1f,%.3f,%lld\n", modules, count, num_traffic,
                  base_traffic, rate, rate / base_traffic,
                  static_cast<long long>(bench.num_copied_adapters() - copied));
    }
    bench.SetAdapters({made_up.Make(has_mlp)});
    bench.MedianFirstToken(512, kWarmUps);
    const double warm = bench.MedianFirstToken(512, 9);
    std::vector<std::shared_ptr<const llm::LoraAdapter>> cold;
    for (int i = 0; i < 9; ++i) cold.push_back(made_up.Make(has_mlp));
    bench.SetAdapters(std::move(cold));
    std::printf("first token of 512,%s,warm %.2f ms,cold %.2f ms\n", modules, warm,
                bench.MedianFirstToken(512, 9));
  }
}

// The options of the command line, by name.
class Flags {
 public:
  // Returns false, and prints why, if an option is unknown.
  bool Read(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      if (!given_.contains(argv[i])) {
        std::printf("unknown option %s\n", argv[i]);
        return false;
      }
      given_[argv[i]] = argv[i + 1];
    }
    return true;
  }
  const std::string& Text(const char* name) const { return given_.at(name); }
  int Number(const char* name) const { return std::atoi(Text(name).c_str()); }
  double Fraction(const char* name) const { return std::strtod(Text(name).c_str(), nullptr); }
  bool IsOn(const char* name) const { return Text(name) == "1"; }
  std::vector<int32_t> List(const char* name) const { return NumbersOf<int32_t>(Text(name), ",x"); }

 private:
  std::map<std::string, std::string> given_ = {{"--gpus", "0"},
                                               {"--cache-fraction", "0.9"},
                                               {"--shape", "8b"},
                                               {"--config", ""},
                                               {"--output", "256"},
                                               {"--context", "0"},
                                               {"--positions", "0"},
                                               {"--weights", "bf16"},
                                               {"--batches", ""},
                                               {"--ttft", ""},
                                               {"--prefill", ""},
                                               {"--burst", ""},
                                               {"--max-sequences", "512"},
                                               {"--max-tokens-a-step", "8192"},
                                               {"--graphs", "1"},
                                               {"--overlap", "1"},
                                               {"--fused", "1"},
                                               {"--top-p", "0"},
                                               {"--rate", ""},
                                               {"--count", "400"},
                                               {"--mixed", "384"},
                                               {"--profile", "0"},
                                               {"--warm-up", "0"},
                                               {"--steps", ""},
                                               {"--layers", "0"},
                                               {"--invariant", "0"},
                                               {"--adapters", ""},
                                               {"--adapter-gb", "8"},
                                               {"--adapter-rank", "16"},
                                               {"--modules", "both"},
                                               {"--traffic", "0"},
                                               {"--resident", "1"},
                                               {"--kv", "bf16"}};
};

gpu::GpuExecutorOptions ExecutorOptionsOf(const Flags& flags) {
  gpu::GpuExecutorOptions options;
  const std::string& weights = flags.Text("--weights");
  options.dummy = gpu::DummyWeights{1, weights == "int4"            ? gpu::WeightFormat::kInt4
                                       : weights.starts_with("fp8") ? gpu::WeightFormat::kFp8
                                                                    : gpu::WeightFormat::kBf16};
  options.dummy->quantizes_input = weights != "fp8-weights";
  options.dummy->has_block_scales = weights == "fp8-blocks";
  options.max_num_sequences = flags.Number("--max-sequences");
  options.max_num_tokens = flags.Number("--max-tokens-a-step");
  options.uses_graphs = flags.IsOn("--graphs");
  options.most_warm_up_time = std::chrono::seconds(flags.Number("--warm-up"));
  options.fuses_decode = flags.IsOn("--fused");
  options.is_batch_invariant = flags.IsOn("--invariant");
  options.resident_weights_fraction = flags.Fraction("--resident");
  options.cache_format = flags.Text("--kv") == "fp8"    ? gpu::CacheFormat::kFp8
                         : flags.Text("--kv") == "int8" ? gpu::CacheFormat::kInt8
                                                        : gpu::CacheFormat::kBf16;
  if (!flags.List("--adapters").empty()) {
    options.adapter_memory_bytes = static_cast<int64_t>(1e9 * flags.Fraction("--adapter-gb"));
    options.max_adapter_rank = flags.Number("--adapter-rank");
  }
  options.cache_memory_fraction = flags.Fraction("--cache-fraction");
  options.profile_steps = flags.Number("--profile");
  options.on_profile = [](const std::string& table) { std::printf("%s", table.c_str()); };
  return options;
}

llm::DecoderSpec SpecOf(const Flags& flags) {
  const std::string& config = flags.Text("--config");
  llm::DecoderSpec spec =
      config.empty()
          ? Shape(flags.Text("--shape"))
          : Checked(llm::ReadDecoderSpec(Checked(llm::Checkpoint::OpenConfig(config)))).spec;
  if (const int layers = flags.Number("--layers"); layers > 0) spec.layers.resize(layers);
  if (const int positions = flags.Number("--positions"); positions > 0) {
    spec.max_positions = positions;
  }
  return spec;
}

void MeasureDecode(Bench& bench, int32_t batch) {
  bench.Send(std::vector<Work>(batch, {16, kWarmUpTokens}));
  const double rate = bench.Decode(batch);
  if (bench.streamed_bytes() == 0) return;
  std::printf("weights from host memory: %.2f GB a step, %.2f GB/s; the link alone %.2f GB/s\n",
              1e-9 * static_cast<double>(bench.streamed_bytes()),
              1e-9 * static_cast<double>(bench.streamed_bytes()) * rate / batch,
              HostToDeviceGigabytes());
}

int Main(int argc, char** argv) {
  Flags flags;
  if (!flags.Read(argc, argv)) return 1;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<int32_t> devices = Checked(gpu::ParseDeviceIds(flags.Text("--gpus")));
  gpu::GpuExecutorOptions options = ExecutorOptionsOf(flags);
  options.device = devices[0];
  llm::SamplingParams sampling;
  sampling.top_p = static_cast<float>(flags.Fraction("--top-p"));
  llm::EngineOptions engine;
  engine.overlaps_steps = flags.IsOn("--overlap");
  engine.scheduler.mixed_step_tokens = flags.Number("--mixed");
  const llm::DecoderSpec spec = SpecOf(flags);
  Bench bench(spec, options, devices, std::move(engine), sampling, flags.Text("--steps"),
              flags.Number("--output"), flags.Number("--context"));
  if (const std::vector<int32_t> adapters = flags.List("--adapters"); !adapters.empty()) {
    MeasureAdapters(bench, spec, flags.Number("--adapter-rank"), flags.List("--batches"), adapters,
                    flags.Text("--modules"), flags.Number("--traffic"));
    return 0;
  }
  for (const int32_t batch : flags.List("--batches")) MeasureDecode(bench, batch);
  for (const int32_t length : flags.List("--ttft")) bench.FirstToken(length);
  if (const auto sizes = flags.List("--prefill"); sizes.size() == 2)
    bench.Prefill(sizes[0], sizes[1]);
  for (const int32_t count : flags.List("--burst")) bench.Burst(count);
  for (const int32_t rate : flags.List("--rate")) bench.Rate(rate, flags.Number("--count"));
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
