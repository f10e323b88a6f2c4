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
// --config: a folder with a config.json, whose decoder is measured instead of --shape; those of
// bench/gpu_llm/shapes, for example. --output: tokens that each sequence of --batches decodes;
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
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/model/architecture.h"
#include "bench/gpu_llm/link_rate.h"
#include "bench/gpu_llm/made_up_adapters.h"
#include "bench/gpu_llm/step_trace.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

llm::DecoderSpec Llama(int32_t hidden, int32_t layers, int32_t heads, int32_t kv_heads,
                       int32_t inner, int32_t vocab) {
  llm::DecoderSpec spec;
  spec.architecture = "llama";
  spec.vocab_size = vocab;
  spec.hidden_size = hidden;
  spec.intermediate_size = inner;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = hidden / heads;
  spec.max_positions = 16384;
  spec.norm.epsilon = 1e-5f;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  llm::RopeSpec rope;
  rope.dim = spec.head_dim;
  for (int32_t i = 0; i < rope.dim / 2; ++i)
    rope.inv_freq.push_back(
        std::pow(500000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rope.dim)));
  spec.ropes = {rope};
  spec.layers.resize(layers);
  return spec;
}

// Mixture of experts in every layer.
llm::DecoderSpec WithExperts(llm::DecoderSpec spec, int32_t count, int32_t a_token, int32_t inner) {
  spec.moe.num_experts = count;
  spec.moe.experts_per_token = a_token;
  spec.moe.intermediate_size = inner;
  for (llm::LayerSpec& layer : spec.layers) layer.is_moe = true;
  return spec;
}

llm::DecoderSpec Shape(const std::string& name) {
  if (name == "mixtral-8x7b") return WithExperts(Llama(4096, 32, 32, 8, 14336, 32000), 8, 2, 14336);
  if (name == "qwen3-30b-a3b") {
    llm::DecoderSpec spec = Llama(2048, 48, 16, 4, 6144, 151936);
    spec.num_heads = 32;
    spec.qk_norm = true;
    return WithExperts(std::move(spec), 128, 8, 768);
  }
  if (name == "phi-3-mini") return Llama(3072, 32, 32, 32, 8192, 32064);
  if (name == "starcoder2-15b" || name == "starcoder2-3b") {
    llm::DecoderSpec spec = name == "starcoder2-3b" ? Llama(3072, 30, 24, 2, 12288, 49152)
                                                    : Llama(6144, 40, 48, 4, 24576, 49152);
    spec.norm.kind = llm::NormKind::kLayer;
    spec.norm.has_bias = true;
    spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
    spec.mlp = llm::MlpKind::kPlain;
    spec.activation = llm::Activation::kGeluTanh;
    for (llm::LayerSpec& layer : spec.layers) layer.sliding_window = 4096;
    return spec;
  }
  if (name == "1b") return Llama(2048, 16, 32, 8, 8192, 128256);
  if (name == "70b") return Llama(8192, 80, 64, 8, 28672, 128256);
  if (name == "34b") return Llama(8192, 48, 64, 8, 22016, 32000);
  if (name == "tiny") return Llama(512, 4, 8, 2, 1024, 4096);
  return Llama(4096, 32, 32, 8, 14336, 128256);
}

// Arrival time of each token of a request.
struct Trace {
  Clock::time_point sent;
  std::vector<Clock::time_point> tokens;
};

class TraceSink : public llm::OutputSink {
 public:
  TraceSink(Trace& trace, std::promise<void> done) : trace_(trace), done_(std::move(done)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    for (size_t i = output.first_new; i < output.ids.size(); ++i)
      trace_.tokens.push_back(Clock::now());
    if (output.finish != llm::FinishReason::kNone) done_.set_value();
  }
  void OnError(const Status& status) override {
    std::printf("error: %s\n", status.message().c_str());
    std::exit(1);
  }

 private:
  Trace& trace_;
  std::promise<void> done_;
};

template <typename T>
T Checked(Result<T> result) {
  if (!result.ok()) {
    std::printf("error: %s\n", result.status().message().c_str());
    std::exit(1);
  }
  return std::move(*result);
}

// Until the algorithms of a size are chosen and its steps are recorded.
constexpr int kWarmUps = 6, kWarmUpTokens = 48;

struct Work {
  int32_t num_prompt, num_output;
  double at = 0.0;  // seconds, in rising order
};

double Percentile(const std::vector<double>& sorted, size_t percent) {
  return sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)];
}

class Bench {
 public:
  Bench(const llm::DecoderSpec& spec, const gpu::GpuExecutorOptions& options,
        const std::vector<int32_t>& devices, llm::EngineOptions engine,
        const llm::SamplingParams& sampling, const std::string& steps, int32_t num_output)
      : sampling_(sampling), num_output_(num_output), steps_(steps) {
    engine.on_step_end = [this](const llm::EngineStats& stats) { steps_.Note(stats); };
    llm::DecoderModel model;
    model.spec = spec;
    const auto start = Clock::now();
    std::unique_ptr<llm::Executor> executor;
    if (devices.size() > 1) {
      auto made = Checked(gpu::ShardedExecutor::Create(model, options, devices));
      executor_ = &made->rank(0);
      executor = std::move(made);
    } else {
      auto made = Checked(gpu::GpuExecutor::Create(std::move(model), options));
      executor_ = made.get();
      executor = std::move(made);
    }
    std::printf("load %.2f s, KV cache %d blocks\n", Seconds(Clock::now() - start),
                executor->limits().num_blocks);
    vocab_size_ = spec.vocab_size;
    engine_.emplace(std::move(engine), std::move(executor));
  }

  std::vector<Trace> Send(const std::vector<Work>& work) {
    std::vector<Trace> traces(work.size());
    std::vector<std::future<void>> done;
    std::vector<std::unique_ptr<llm::GenerationRequest>> requests;
    for (size_t i = 0; i < work.size(); ++i) {
      auto request = std::make_unique<llm::GenerationRequest>();
      for (int32_t t = 0; t < work[i].num_prompt; ++t)
        request->prompt.push_back(static_cast<int32_t>(random_() % vocab_size_));
      request->stop.max_tokens = work[i].num_output;
      request->sampling = sampling_;
      if (!adapters_.empty()) request->adapter = adapters_[next_adapter_++ % adapters_.size()];
      std::promise<void> promise;
      done.push_back(promise.get_future());
      traces[i].tokens.reserve(work[i].num_output);
      request->sink = std::make_unique<TraceSink>(traces[i], std::move(promise));
      requests.push_back(std::move(request));
    }
    const auto start = Clock::now();
    for (size_t i = 0; i < work.size(); ++i) {
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(work[i].at)));
      traces[i].sent = Clock::now();
      if (const Status status = engine_->Enqueue(requests[i]); !status.ok()) {
        std::printf("error: %s\n", status.message().c_str());
        std::exit(1);
      }
    }
    for (auto& future : done) future.wait();
    return traces;
  }

  // Later requests use these adapters in turn.
  void SetAdapters(std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters) {
    adapters_ = std::move(adapters);
    next_adapter_ = 0;
  }
  int64_t num_copied_adapters() const { return executor_->num_copied_adapters(); }
  int64_t streamed_bytes() const { return executor_->streamed_bytes(); }

  // Returns tokens a second in the steady state.
  double Decode(int32_t batch) {
    const Work one = {batch == 1 ? 128 : 512, num_output_};
    const double idle = executor_->idle_seconds();
    const int64_t steps = executor_->num_steps();
    std::vector<Trace> traces = Send(std::vector<Work>(batch, one));
    // Steady state: from the last request's first token until the first request ends.
    Clock::time_point from = traces[0].tokens.front(), to = traces[0].tokens.back();
    for (const Trace& trace : traces) {
      from = std::max(from, trace.tokens.front());
      to = std::min(to, trace.tokens.back());
    }
    int64_t tokens = 0;
    Clock::time_point first = traces[0].sent, last = to;
    for (const Trace& trace : traces) {
      tokens += std::count_if(trace.tokens.begin(), trace.tokens.end(),
                              [&](auto at) { return at > from && at <= to; });
      last = std::max(last, trace.tokens.back());
    }
    std::printf(
        "decode batch %4d: %9.1f tok/s steady (step %.3f ms), whole run %9.1f tok/s, host %.0f us "
        "a step\n",
        batch, static_cast<double>(tokens) / Seconds(to - from),
        1e3 * Seconds(to - from) / (static_cast<double>(tokens) / batch),
        static_cast<double>(batch) * one.num_output / Seconds(last - first),
        1e6 * (executor_->idle_seconds() - idle) /
            static_cast<double>(executor_->num_steps() - steps));
    return static_cast<double>(tokens) / Seconds(to - from);
  }

  // Milliseconds, the median of several requests in turn.
  double MedianFirstToken(int32_t num_prompt, int count) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) {
      const Trace trace = Send({{num_prompt, 1}})[0];
      times.push_back(1e3 * Seconds(trace.tokens[0] - trace.sent));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Output tokens a second of many requests, from the first one sent to the last token.
  double Traffic(int32_t count) {
    std::vector<Work> work;
    int64_t tokens = 0;
    for (int32_t i = 0; i < count; ++i) {
      work.push_back({512, static_cast<int32_t>(64 + random_() % 129)});
      tokens += work.back().num_output;
    }
    const std::vector<Trace> traces = Send(work);
    Clock::time_point last = traces[0].sent;
    for (const Trace& trace : traces) last = std::max(last, trace.tokens.back());
    return static_cast<double>(tokens) / Seconds(last - traces[0].sent);
  }

  void FirstToken(int32_t num_prompt) {
    std::vector<double> times;
    for (int i = 0; i < kWarmUps + 5; ++i) {
      const Trace trace = Send({{num_prompt, 1}})[0];
      if (i >= kWarmUps) times.push_back(1e3 * Seconds(trace.tokens[0] - trace.sent));
    }
    std::sort(times.begin(), times.end());
    std::printf("first token of %5d: %.2f ms (least %.2f)\n", num_prompt, times[times.size() / 2],
                times[0]);
  }

  void Prefill(int32_t count, int32_t num_prompt) {
    Send(std::vector<Work>(2 * count, {num_prompt, 1}));
    std::vector<Trace> traces = Send(std::vector<Work>(count, {num_prompt, 1}));
    Clock::time_point last = traces[0].tokens[0];
    for (const Trace& trace : traces) last = std::max(last, trace.tokens[0]);
    std::printf("prefill %d x %d: %.0f tok/s\n", count, num_prompt,
                static_cast<double>(count) * num_prompt / Seconds(last - traces[0].sent));
  }

  void Rate(double rate, int32_t count) {
    std::exponential_distribution<double> gap(rate);
    std::vector<Work> work;
    for (double at = 0.0; static_cast<int32_t>(work.size()) < count; at += gap(random_))
      work.push_back({503, 256, at});
    const double idle = executor_->idle_seconds();
    const int64_t steps = executor_->num_steps();
    const std::vector<Trace> traces = Send(work);
    std::vector<double> first, between;
    int32_t num_good = 0;
    for (const Trace& trace : traces) {
      first.push_back(1e3 * Seconds(trace.tokens[0] - trace.sent));
      for (size_t i = 1; i < trace.tokens.size(); ++i)
        between.push_back(1e3 * Seconds(trace.tokens[i] - trace.tokens[i - 1]));
      num_good +=
          first.back() <= 60.0 && Seconds(trace.tokens.back() - trace.tokens[0]) <= 10e-3 * 255;
    }
    std::sort(first.begin(), first.end());
    std::sort(between.begin(), between.end());
    std::printf(
        "%.0f requests a second, %d: first token p50 %.1f p90 %.1f p99 %.1f ms; between tokens "
        "p50 %.2f p90 %.2f p99 %.2f ms; %.1f %% within 60 and 10 ms; host %.0f us a step\n",
        rate, count, Percentile(first, 50), Percentile(first, 90), Percentile(first, 99),
        Percentile(between, 50), Percentile(between, 90), Percentile(between, 99),
        100.0 * num_good / count,
        1e6 * (executor_->idle_seconds() - idle) /
            static_cast<double>(executor_->num_steps() - steps));
  }

  void Burst(int32_t count) {
    std::vector<Work> work;
    int64_t in = 0;
    for (int32_t i = 0; i < count; ++i) {
      work.push_back({static_cast<int32_t>(random_() % 994 + 7), 256});
      in += work.back().num_prompt;
    }
    steps_.Take();
    const std::vector<Trace> traces = Send(work);
    std::vector<double> first, between;
    Clock::time_point last = traces[0].sent;
    for (const Trace& trace : traces) {
      first.push_back(Seconds(trace.tokens[0] - trace.sent));
      last = std::max(last, trace.tokens.back());
      for (size_t i = 1; i < trace.tokens.size(); ++i)
        between.push_back(1e3 * Seconds(trace.tokens[i] - trace.tokens[i - 1]));
    }
    std::sort(first.begin(), first.end());
    std::sort(between.begin(), between.end());
    std::printf(
        "burst of %d (%lld in, %d out): %.2f s; first token p50 %.2f s; between tokens p50 %.2f "
        "p99 %.2f ms\n",
        count, static_cast<long long>(in), count * 256, Seconds(last - traces[0].sent),
        first[first.size() / 2], between[between.size() / 2], between[between.size() * 99 / 100]);
    PrintKinds(steps_.Take());
  }

 private:
  const llm::SamplingParams sampling_;
  const int32_t num_output_;  // of a sequence of Decode()
  int32_t vocab_size_ = 0;
  const gpu::GpuExecutor* executor_ = nullptr;  // owned by the engine; read while it is idle
  std::mt19937 random_{11};
  std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters_;
  size_t next_adapter_ = 0;
  StepTrace steps_;
  std::optional<llm::Engine> engine_;
};

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
  const llm::DecoderSpec spec = shape;
  Bench bench(std::move(shape), options, devices, std::move(engine), sampling, given["--steps"],
              std::atoi(given["--output"].c_str()));
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
