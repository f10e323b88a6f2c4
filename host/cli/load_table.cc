#include "host/cli/load_table.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "nereid/status.h"
#include "repo_templates/tool/new_repository.h"

namespace nereid::cli {
namespace {

void AddSample(const MetricSample& sample, ModelLoad& load) {
  const std::pair<const char*, double ModelLoad::*> plain[] = {
      {"nv_inference_request_success", &ModelLoad::num_requests},
      {"nv_inference_request_failure", &ModelLoad::num_failures},
      {"nv_inference_pending_request_count", &ModelLoad::num_queued},
      {"nereid_llm_time_to_first_token_seconds_count", &ModelLoad::num_first_tokens},
      {"nereid_llm_time_to_first_token_seconds_sum", &ModelLoad::first_token_seconds}};
  for (const auto& [name, member] : plain) {
    if (sample.name == name) load.*member += sample.value;
  }
  if (sample.name == "nv_trt_llm_request_metrics") {
    load.is_engine = true;
    if (sample.Label("request_type") == "active") load.num_running += sample.value;
    if (sample.Label("request_type") == "waiting") load.num_waiting += sample.value;
  }
  if (sample.name == "nereid_llm_engine" && sample.Label("total") == "output_tokens") {
    load.num_tokens += sample.value;
  }
  if (sample.name == "nv_trt_llm_kv_cache_block_metrics" &&
      sample.Label("kv_cache_block_type") == "fraction") {
    load.cache_percent = 100 * sample.value;
  }
}

// Moves what the engine of a served model reports to the model itself, and removes its steps.
void JoinSteps(ServerLoad& server) {
  std::vector<std::string> names;
  for (const auto& [name, load] : server) names.push_back(name);
  for (const std::string& name : names) {
    const repo::LlmModelNames steps = repo::NamesOfLlmModels(name);
    const auto engine = server.find(steps.engine);
    if (engine == server.end() || !engine->second.is_engine) continue;
    ModelLoad joined = engine->second;
    joined.num_requests = server[name].num_requests;
    joined.num_failures = server[name].num_failures;
    joined.num_queued += server[name].num_queued;
    server[name] = joined;
    for (const std::string& step : {steps.preprocessing, steps.engine, steps.postprocessing}) {
      server.erase(step);
    }
  }
}

std::string Number(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

using Cells = std::vector<std::string>;

Cells CellsOf(const std::string& name, const ModelLoad& now, const ModelLoad* before,
              double seconds) {
  const auto rate = [&](double ModelLoad::*total) {
    return before == nullptr || seconds <= 0
               ? std::string("-")
               : Number(std::max(0.0, now.*total - before->*total) / seconds, "%.1f");
  };
  Cells cells = {name, rate(&ModelLoad::num_requests), rate(&ModelLoad::num_failures),
                 Number(now.num_queued, "%.0f")};
  if (!now.is_engine) {
    cells.resize(9, "-");
    return cells;
  }
  const double num_first = before == nullptr ? 0 : now.num_first_tokens - before->num_first_tokens;
  const double first_seconds =
      before == nullptr ? 0 : now.first_token_seconds - before->first_token_seconds;
  cells.insert(cells.end(),
               {Number(now.num_running, "%.0f"), Number(now.num_waiting, "%.0f"),
                rate(&ModelLoad::num_tokens),
                num_first > 0 ? Number(1000 * first_seconds / num_first, "%.0f ms") : "-",
                Number(now.cache_percent, "%.0f %%")});
  return cells;
}

}  // namespace

ServerLoad ReadServerLoad(const std::vector<MetricSample>& samples) {
  ServerLoad server;
  for (const MetricSample& sample : samples) {
    const std::string model = sample.Label("model");
    if (!model.empty()) AddSample(sample, server[model]);
  }
  JoinSteps(server);
  return server;
}

std::string ShowServerLoad(const ServerLoad& before, const ServerLoad& now, double seconds) {
  std::vector<Cells> lines = {{"MODEL", "REQUESTS/S", "FAILED/S", "QUEUED", "RUNNING", "WAITING",
                               "TOKENS/S", "TTFT", "CACHE"}};
  for (const auto& [name, load] : now) {
    const auto found = before.find(name);
    lines.push_back(CellsOf(name, load, found == before.end() ? nullptr : &found->second, seconds));
  }
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const Cells& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      text += i == 0 ? line[i] + padding : StrCat("  ", padding, line[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace nereid::cli
