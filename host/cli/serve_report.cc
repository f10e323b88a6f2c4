#include "host/cli/serve_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "base/file_content.h"
#include "host/cli/metrics_text.h"
#include "repo_templates/tool/new_repository.h"

namespace nereid::cli {
namespace {

std::string MetricsText(const Server& server) {
  const Result<MetricsPage> page = server.Metrics();
  if (!page.ok()) return "";
  const Result<std::string_view> text = page->PrometheusText();
  return text.ok() ? std::string(*text) : "";
}

// The engine publishes its cache on its own thread, right after the load.
std::vector<uint64_t> WaitForCacheTokens(const std::vector<ServedModel>& models,
                                         const Server& server) {
  std::vector<uint64_t> tokens(models.size(), 0);
  for (int attempt = 0; attempt < 50; ++attempt) {
    const std::string metrics = MetricsText(server);
    bool has_all = true;
    for (size_t i = 0; i < models.size(); ++i) {
      if (!models[i].is_loaded_at_start) continue;
      tokens[i] = CacheTokens(metrics, repo::NamesOfLlmModels(models[i].name).engine);
      has_all = has_all && tokens[i] > 0;
    }
    if (has_all || metrics.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return tokens;
}

// Tells which engine the core has chosen by the library that it has opened.
std::string EngineText() {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  const Result<std::string> maps = ReadFileBeginning("/proc/self/maps", kMaxBytes);
  const bool has_gpu = maps.ok() && maps->find("/libtriton_gpu_llm.so") != std::string::npos;
  const bool has_cpu = maps.ok() && maps->find("/libtriton_cpu_reference.so") != std::string::npos;
  if (has_gpu && has_cpu) return "GPU and CPU";
  if (has_gpu) return "GPU (gpu_llm)";
  return has_cpu ? "CPU (cpu_reference)" : "unknown";
}

// The address under which this machine reaches the port.
std::string LocalAddress(const std::string& address) {
  if (address == "0.0.0.0" || address == "::") return "127.0.0.1";
  if (address.starts_with("unix:")) return address;
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

}  // namespace

std::string DescribeModel(const ServedModel& model) {
  const repo::CheckpointSummary& checkpoint = model.checkpoint;
  std::string text = StrCat(model.name, ": ", checkpoint.architecture);
  if (checkpoint.num_parameters > 0) {
    text += StrCat(", ", ShowCount(checkpoint.num_parameters), " parameters");
  }
  text += StrCat(", ", checkpoint.data_type, ", ", ShowBytes(checkpoint.weight_bytes));
  if (checkpoint.context_length > 0) {
    text += StrCat(", context of ", ShowGrouped(static_cast<uint64_t>(checkpoint.context_length)),
                   " tokens");
  }
  return text;
}

uint64_t CacheTokens(std::string_view metrics, const std::string& engine_model) {
  double num_blocks = 0, block_size = 0;
  for (const MetricSample& sample : ParseMetrics(metrics)) {
    if (sample.name != "nv_trt_llm_kv_cache_block_metrics") continue;
    if (sample.Label("model") != engine_model) continue;
    if (sample.Label("kv_cache_block_type") == "max") num_blocks = sample.value;
    if (sample.Label("kv_cache_block_type") == "tokens_per") block_size = sample.value;
  }
  const double tokens = num_blocks * block_size;
  return tokens >= 1 && tokens < 1e18 ? static_cast<uint64_t>(std::llround(tokens)) : 0;
}

std::string LoadFailure(const std::string& message) {
  constexpr std::string_view kBefore = "UNAVAILABLE state: ";
  std::vector<std::string> causes;
  for (size_t at = message.find(kBefore); at != std::string::npos; at = message.find(kBefore, at)) {
    at += kBefore.size();
    std::string cause = message.substr(at, message.find(';', at) - at);
    if (std::find(causes.begin(), causes.end(), cause) == causes.end()) {
      causes.push_back(std::move(cause));
    }
  }
  if (causes.empty()) return message;
  std::string text;
  for (const std::string& cause : causes) text += StrCat(text.empty() ? "" : "; ", cause);
  return text;
}

std::string CurlLine(const ServedModel& model, const std::string& base, bool needs_key) {
  // The name of a model has no character that JSON or a shell would need to escape.
  const std::string ask =
      model.has_chat_template
          ? R"("messages": [{"role": "user", "content": "Why is the sky blue?"}])"
          : R"("prompt": "Once upon a time", "max_tokens": 60)";
  return StrCat("curl ", base, model.has_chat_template ? "/v1/chat/completions" : "/v1/completions",
                " -H 'Content-Type: application/json'",
                needs_key ? " -H \"Authorization: Bearer $NEREID_API_KEY\"" : "",
                " -d '{\"model\": \"", model.name, "\", ", ask, "}'");
}

std::string DescribeServer(const std::vector<ServedModel>& models, const Options& options,
                           const Server& server, const Frontends& frontends) {
  std::string text = StrCat("engine    ", EngineText(), "\n");
  const std::vector<uint64_t> cache_tokens = WaitForCacheTokens(models, server);
  for (size_t i = 0; i < models.size(); ++i) {
    text += StrCat("memory    ", models.size() > 1 ? models[i].name + ": " : "", "weights ",
                   ShowBytes(models[i].checkpoint.weight_bytes));
    if (!models[i].is_loaded_at_start) text += ", loaded on demand";
    if (cache_tokens[i] > 0)
      text += StrCat(", KV cache of ", ShowGrouped(cache_tokens[i]), " tokens");
    text += "\n";
  }
  const bool is_unix = options.http.address.starts_with("unix:");
  const std::string scheme = options.http.tls ? "https://" : "http://";
  const std::string url =
      is_unix ? scheme + "localhost"
              : StrCat(scheme, LocalAddress(options.http.address), ":", frontends.http_port());
  text += StrCat("ready     ", !options.allow_http ? "" : is_unix ? options.http.address : url);
  if (options.allow_grpc) {
    text += StrCat(options.allow_http ? ", " : "", "gRPC ", LocalAddress(options.grpc.address));
    if (frontends.grpc_port() != 0) text += StrCat(":", frontends.grpc_port());
  }
  if (options.allow_metrics && frontends.metrics_port() != 0) {
    text += StrCat(", metrics http://", LocalAddress(options.metrics.address), ":",
                   frontends.metrics_port(), "/metrics");
  }
  text += "\n";
  if (!options.allow_http) return text;
  if (options.openai.console.value_or(false) && !is_unix) {
    text += StrCat("console   ", url, "/console\n");
  }
  const std::string socket =
      is_unix ? StrCat("--unix-socket ", options.http.address.substr(5), " ") : "";
  return StrCat(text, "\n", CurlLine(models[0], socket + url, !options.api_key_file.empty()), "\n");
}

}  // namespace nereid::cli
