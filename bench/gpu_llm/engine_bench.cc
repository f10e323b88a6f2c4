// Measures the engine on the GPU in process, with a Llama shape and random weights: decode rates at
// fixed batch sizes, time to first token, prefill, and many concurrent requests.
//
//   gpu_engine_bench [--gpus 0,1] [--cache-fraction 0.9]
//                    [--shape 8b|70b|34b|1b|mixtral-8x7b|qwen3-30b-a3b|
//                     phi-3-mini|starcoder2-3b|starcoder2-15b|tiny]
//                    [--config FOLDER] [--weights bf16|int4|fp8|fp8-weights]
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

std::vector<int32_t> Numbers(const std::string& text) {
  std::vector<int32_t> numbers;
  for (size_t at = 0; at < text.size();
       at = std::min(text.size(), text.find_first_of(",x", at)) + 1) {
    numbers.push_back(std::atoi(text.c_str() + at));
  }
  return numbers;
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

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--gpus", "0"},
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
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!given.contains(argv[i])) {
      std::printf("unknown option %s\n", argv[i]);
      return 1;
    }
    given[argv[i]] = argv[i + 1];
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  gpu::GpuExecutorOptions options;
  const std::string weights = given["--weights"];
  options.dummy = gpu::DummyWeights{1, weights == "int4"            ? gpu::WeightFormat::kInt4
                                       : weights.starts_with("fp8") ? gpu::WeightFormat::kFp8
                                                                    : gpu::WeightFormat::kBf16};
  options.dummy->quantizes_input = weights != "fp8-weights";
  options.max_num_sequences = std::atoi(given["--max-sequences"].c_str());
  options.max_num_tokens = std::atoi(given["--max-tokens-a-step"].c_str());
  options.uses_graphs = given["--graphs"] == "1";
  options.most_warm_up_time = std::chrono::seconds(std::atoi(given["--warm-up"].c_str()));
  options.fuses_decode = given["--fused"] == "1";
  options.is_batch_invariant = given["--invariant"] == "1";
  options.resident_weights_fraction = std::strtod(given["--resident"].c_str(), nullptr);
  options.cache_format = given["--kv"] == "fp8"    ? gpu::CacheFormat::kFp8
                         : given["--kv"] == "int8" ? gpu::CacheFormat::kInt8
                                                   : gpu::CacheFormat::kBf16;
  const std::vector<int32_t> adapters = Numbers(given["--adapters"]);
  const int32_t adapter_rank = std::atoi(given["--adapter-rank"].c_str());
  if (!adapters.empty()) {
    options.adapter_memory_bytes =
        static_cast<int64_t>(1e9 * std::strtod(given["--adapter-gb"].c_str(), nullptr));
    options.max_adapter_rank = adapter_rank;
  }
  llm::SamplingParams sampling;
  sampling.top_p = std::strtof(given["--top-p"].c_str(), nullptr);
  options.cache_memory_fraction = std::strtod(given["--cache-fraction"].c_str(), nullptr);
  const std::vector<int32_t> devices = Checked(gpu::ParseDeviceIds(given["--gpus"]));
  options.device = devices[0];
  options.profile_steps = std::atoi(given["--profile"].c_str());
  options.on_profile = [](const std::string& table) { std::printf("%s", table.c_str()); };
  llm::EngineOptions engine;
  engine.overlaps_steps = given["--overlap"] == "1";
  engine.scheduler.mixed_step_tokens = std::atoi(given["--mixed"].c_str());
  const std::string config = given["--config"];
  llm::DecoderSpec shape =
      config.empty()
          ? Shape(given["--shape"])
          : Checked(llm::ReadDecoderSpec(Checked(llm::Checkpoint::OpenConfig(config)))).spec;
  if (const int layers = std::atoi(given["--layers"].c_str()); layers > 0)
    shape.layers.resize(layers);
  if (const int positions = std::atoi(given["--positions"].c_str()); positions > 0)
    shape.max_positions = positions;
  const llm::DecoderSpec spec = shape;
  Bench bench(std::move(shape), options, devices, std::move(engine), sampling, given["--steps"],
              std::atoi(given["--output"].c_str()), std::atoi(given["--context"].c_str()));
  if (!adapters.empty()) {
    MeasureAdapters(bench, spec, adapter_rank, Numbers(given["--batches"]), adapters,
                    given["--modules"], std::atoi(given["--traffic"].c_str()));
    return 0;
  }
  for (const int32_t batch : Numbers(given["--batches"])) {
    bench.Send(std::vector<Work>(batch, {16, kWarmUpTokens}));
    const double rate = bench.Decode(batch);
    if (bench.streamed_bytes() == 0) continue;
    std::printf("weights from host memory: %.2f GB a step, %.2f GB/s; the link alone %.2f GB/s\n",
                1e-9 * static_cast<double>(bench.streamed_bytes()),
                1e-9 * static_cast<double>(bench.streamed_bytes()) * rate / batch,
                HostToDeviceGigabytes());
  }
  for (const int32_t length : Numbers(given["--ttft"])) bench.FirstToken(length);
  if (const auto sizes = Numbers(given["--prefill"]); sizes.size() == 2)
    bench.Prefill(sizes[0], sizes[1]);
  for (const int32_t count : Numbers(given["--burst"])) bench.Burst(count);
  for (const int32_t rate : Numbers(given["--rate"]))
    bench.Rate(rate, std::atoi(given["--count"].c_str()));
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
