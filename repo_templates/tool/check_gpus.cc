#include <algorithm>
#include <charconv>

#include "repo_templates/tool/check.h"

namespace nereid::repo {
namespace {

bool Contains(const std::vector<int32_t>& gpus, int32_t gpu) {
  return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
}

std::string OfThisMachine(const std::vector<int32_t>& gpus) {
  std::string text;
  for (const int32_t gpu : gpus) text += StrCat(text.empty() ? "" : ", ", gpu);
  return gpus.empty() ? "this machine has none" : StrCat("this machine has ", text);
}

// The numbers in a list like "0, 1"; the check of the parameter's form reports anything else.
std::vector<int32_t> Numbers(const std::string& text) {
  std::vector<int32_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int32_t number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = std::find(after, end, ',');
    while (at != end && (*at == ',' || *at == ' ')) ++at;
  }
  return numbers;
}

void CheckInstanceGroups(const RepositoryModel& model, const std::vector<int32_t>& gpus,
                         Findings& findings) {
  for (size_t i = 0; i < model.config->instance_groups.size(); ++i) {
    const core::InstanceGroup& group = model.config->instance_groups[i];
    const std::string key = StrCat("instance_group[", i, "]");
    using Kind = core::InstanceGroup::Kind;
    if (group.kind != Kind::kGpu && (group.kind != Kind::kAuto || group.gpus.empty())) continue;
    if (group.gpus.empty() && gpus.empty()) {
      findings.push_back(FindingAt(model.folder, key + ".kind",
                                   "KIND_GPU needs a GPU, but this machine has none; KIND_CPU runs "
                                   "without one"));
    }
    for (const int32_t gpu : group.gpus) {
      if (Contains(gpus, gpu)) continue;
      findings.push_back(FindingAt(model.folder, key + ".gpus",
                                   StrCat("GPU ", gpu, " is not there: ", OfThisMachine(gpus))));
    }
  }
}

// Without a GPU, the host runs backend `tensorrtllm` on the CPU.
void CheckEngine(const RepositoryModel& model, const std::vector<int32_t>& gpus,
                 Findings& findings) {
  const bool needs_gpu = model.config->backend == "gpu_llm";
  if (needs_gpu && gpus.empty()) {
    findings.push_back(FindingAt(model.folder, "backend",
                                 "backend 'gpu_llm' needs a GPU, but this machine has none; "
                                 "'tensorrtllm' or 'cpu_reference' runs on the CPU"));
    return;
  }
  const auto ids = model.config->parameters.find("gpu_device_ids");
  if (ids == model.config->parameters.end() || model.config->backend == "cpu_reference") return;
  for (const int32_t gpu : Numbers(ids->second)) {
    if (Contains(gpus, gpu)) continue;
    Finding finding =
        FindingAtMapEntry(model.folder, "parameters", "gpu_device_ids",
                          StrCat("GPU ", gpu, " is not there: ", OfThisMachine(gpus),
                                 gpus.empty() ? ", so the model runs on the CPU" : ""));
    finding.is_warning = gpus.empty();
    findings.push_back(std::move(finding));
  }
}

}  // namespace

void CheckGpus(const RepositoryModel& model, const std::vector<int32_t>& gpus, Findings& findings) {
  CheckInstanceGroups(model, gpus, findings);
  if (IsLlmEngine(*model.config)) CheckEngine(model, gpus, findings);
}

}  // namespace nereid::repo
