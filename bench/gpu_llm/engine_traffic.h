// Sends traffic to an engine on the GPU in process, and prints what it measures.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/engine.h"
#include "bench/gpu_llm/load_model.h"
#include "bench/gpu_llm/step_trace.h"

namespace nereid::bench {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
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
  void OnError(const Status& status) override { CheckOk(status); }

 private:
  Trace& trace_;
  std::promise<void> done_;
};

// Until the algorithms of a size are chosen and its steps are recorded.
inline constexpr int kWarmUps = 6, kWarmUpTokens = 48;
inline constexpr int32_t kLongPrompt = 32768;

struct Work {
  int32_t num_prompt, num_output;
  double at = 0.0;  // seconds, in rising order
};

inline double Percentile(const std::vector<double>& sorted, size_t percent) {
  return sorted[std::min(sorted.size() - 1, sorted.size() * percent / 100)];
}

// The latencies of some requests in ms, in rising order: from sending a request to its first token,
// and from each token to the next one.
struct Latencies {
  explicit Latencies(const std::vector<Trace>& traces) {
    for (const Trace& trace : traces) {
      first.push_back(1e3 * Seconds(trace.tokens[0] - trace.sent));
      for (size_t i = 1; i < trace.tokens.size(); ++i)
        between.push_back(1e3 * Seconds(trace.tokens[i] - trace.tokens[i - 1]));
    }
    std::sort(first.begin(), first.end());
    std::sort(between.begin(), between.end());
  }
  std::vector<double> first, between;
};

// When the last token of some requests came.
inline Clock::time_point LastToken(const std::vector<Trace>& traces) {
  Clock::time_point last = traces[0].sent;
  for (const Trace& trace : traces) last = std::max(last, trace.tokens.back());
  return last;
}

// The time in which the device waits for the host, since this was made.
class HostTime {
 public:
  explicit HostTime(const gpu::GpuExecutor& executor)
      : executor_(executor), idle_(executor.idle_seconds()), num_steps_(executor.num_steps()) {}
  double UsAStep() const {
    return 1e6 * (executor_.idle_seconds() - idle_) /
           static_cast<double>(executor_.num_steps() - num_steps_);
  }

 private:
  const gpu::GpuExecutor& executor_;
  const double idle_;
  const int64_t num_steps_;
};

// An engine on the GPU, and requests of random tokens with greedy or drawn answers. [main thread]
class Bench {
 public:
  Bench(const llm::DecoderSpec& spec, const gpu::GpuExecutorOptions& options,
        const std::vector<int32_t>& devices, llm::EngineOptions engine,
        const llm::SamplingParams& sampling, const std::string& steps, int32_t num_output,
        int32_t num_context)
      : sampling_(sampling), num_output_(num_output), num_context_(num_context), steps_(steps) {
    engine.on_step_end = [this](const llm::EngineStats& stats) { steps_.Note(stats); };
    const auto start = Clock::now();
    LoadedModel loaded = LoadModel(spec, options, devices);
    executor_ = loaded.first;
    std::printf("load %.2f s, KV cache %d blocks\n", Seconds(Clock::now() - start),
                executor_->limits().num_blocks);
    vocab_size_ = spec.vocab_size;
    const auto loaded_at = Clock::now();
    CheckOk(loaded.executor->PrepareSteps());
    if (options.most_warm_up_time > Clock::duration::zero())
      std::printf("warm-up %.2f s\n", Seconds(Clock::now() - loaded_at));
    engine_.emplace(std::move(engine), std::move(loaded.executor));
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
      CheckOk(engine_->Enqueue(requests[i]));
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
    const Work one = {num_context_ > 0 ? num_context_ : batch == 1 ? 128 : 512, num_output_};
    const HostTime host(*executor_);
    const std::vector<Trace> traces = Send(std::vector<Work>(batch, one));
    // Steady state: from the last request's first token until the first request ends.
    Clock::time_point from = traces[0].tokens.front(), to = traces[0].tokens.back();
    for (const Trace& trace : traces) {
      from = std::max(from, trace.tokens.front());
      to = std::min(to, trace.tokens.back());
    }
    int64_t tokens = 0;
    for (const Trace& trace : traces) {
      tokens += std::count_if(trace.tokens.begin(), trace.tokens.end(),
                              [&](auto at) { return at > from && at <= to; });
    }
    std::printf(
        "decode batch %4d: %9.1f tok/s steady (step %.3f ms), whole run %9.1f tok/s, host %.0f us "
        "a step\n",
        batch, static_cast<double>(tokens) / Seconds(to - from),
        1e3 * Seconds(to - from) / (static_cast<double>(tokens) / batch),
        static_cast<double>(batch) * one.num_output / Seconds(LastToken(traces) - traces[0].sent),
        host.UsAStep());
    return static_cast<double>(tokens) / Seconds(to - from);
  }

  // The latencies of several requests, one after the other.
  Latencies FirstTokens(int32_t num_prompt, int count) {
    std::vector<Trace> traces;
    for (int i = 0; i < count; ++i) traces.push_back(Send({{num_prompt, 1}})[0]);
    return Latencies(traces);
  }
  // The median time to the first token in ms.
  double MedianFirstToken(int32_t num_prompt, int count) {
    return Percentile(FirstTokens(num_prompt, count).first, 50);
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
    return static_cast<double>(tokens) / Seconds(LastToken(traces) - traces[0].sent);
  }

  void FirstToken(int32_t num_prompt) {
    // A long prompt is several steps, and takes seconds.
    const bool is_long = num_prompt >= kLongPrompt;
    (void)FirstTokens(num_prompt, is_long ? 2 : kWarmUps);
    const Latencies measured = FirstTokens(num_prompt, is_long ? 3 : 5);
    std::printf("first token of %5d: %.2f ms (least %.2f)\n", num_prompt,
                Percentile(measured.first, 50), measured.first[0]);
  }

  void Prefill(int32_t count, int32_t num_prompt) {
    Send(std::vector<Work>(2 * count, {num_prompt, 1}));
    const std::vector<Trace> traces = Send(std::vector<Work>(count, {num_prompt, 1}));
    std::printf(
        "prefill %d x %d: %.0f tok/s\n", count, num_prompt,
        static_cast<double>(count) * num_prompt / Seconds(LastToken(traces) - traces[0].sent));
  }

  void Rate(double rate, int32_t count) {
    std::exponential_distribution<double> gap(rate);
    std::vector<Work> work;
    for (double at = 0.0; static_cast<int32_t>(work.size()) < count; at += gap(random_))
      work.push_back({503, 256, at});
    const HostTime host(*executor_);
    const std::vector<Trace> traces = Send(work);
    const auto num_good = std::count_if(traces.begin(), traces.end(), [](const Trace& trace) {
      return Seconds(trace.tokens[0] - trace.sent) <= 60e-3 &&
             Seconds(trace.tokens.back() - trace.tokens[0]) <= 10e-3 * 255;
    });
    const auto [first, between] = Latencies(traces);
    std::printf(
        "%.0f requests a second, %d: first token p50 %.1f p90 %.1f p99 %.1f ms; between tokens "
        "p50 %.2f p90 %.2f p99 %.2f ms; %.1f %% within 60 and 10 ms; host %.0f us a step\n",
        rate, count, Percentile(first, 50), Percentile(first, 90), Percentile(first, 99),
        Percentile(between, 50), Percentile(between, 90), Percentile(between, 99),
        100.0 * static_cast<double>(num_good) / count, host.UsAStep());
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
    const auto [first, between] = Latencies(traces);
    std::printf(
        "burst of %d (%lld in, %d out): %.2f s; first token p50 %.2f s; between tokens p50 %.2f "
        "p99 %.2f ms\n",
        count, static_cast<long long>(in), count * 256, Seconds(LastToken(traces) - traces[0].sent),
        1e-3 * Percentile(first, 50), Percentile(between, 50), Percentile(between, 99));
    PrintKinds(steps_.Take());
  }

 private:
  const llm::SamplingParams sampling_;
  // The tokens of a sequence of Decode(): those of the output, and those of the prompt (0: a short
  // one).
  const int32_t num_output_, num_context_;
  int32_t vocab_size_ = 0;
  const gpu::GpuExecutor* executor_ = nullptr;  // owned by the engine; read while it is idle
  std::mt19937 random_{11};
  std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters_;
  size_t next_adapter_ = 0;
  StepTrace steps_;
  std::optional<llm::Engine> engine_;
};

}  // namespace nereid::bench
