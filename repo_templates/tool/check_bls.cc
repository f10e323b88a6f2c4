// Checks models of backend `bls`, the chain of tensorrt_llm_bls.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_tables/engine_parameters.h"
#include "base/closest_name.h"
#include "repo_templates/tool/check.h"

namespace nereid::repo {
namespace {

constexpr char kAccumulates[] = "accumulate_tokens";

// The parameters that name a model of the chain, and its name where they are unset. The draft model
// has none: without a name there are no drafts.
constexpr std::pair<const char*, const char*> kCalled[] = {
    {"preprocessing_model_name", "preprocessing"},
    {"tensorrt_llm_model_name", "tensorrt_llm"},
    {"postprocessing_model_name", "postprocessing"},
    {"tensorrt_llm_draft_model_name", ""},
};
// Parameters of the published templates that other models of the repository read.
constexpr const char* kOthers[] = {"multimodal_encoders_name", "tokenizer_dir"};

bool IsKnown(const std::string& key, std::vector<std::string>& names) {
  names = {kAccumulates, kOthers[0], kOthers[1]};
  for (const auto& [parameter, unset] : kCalled) names.emplace_back(parameter);
  return std::find(names.begin(), names.end(), key) != names.end();
}

}  // namespace

void CheckBlsModel(const RepositoryModel& model, const Repository& repository, Findings& findings) {
  if (model.config->backend != "bls") return;
  NameUnfilledParameters(model, findings);
  std::vector<std::string> known, models;
  for (const RepositoryModel& other : repository) models.push_back(other.folder.name);
  for (const auto& [key, value] : model.config->parameters) {
    if (IsKnown(key, known)) continue;
    findings.push_back(
        AsWarning(FindingAtMapEntry(model.folder, "parameters", key,
                                    StrCat("unknown to backend 'bls'", DidYouMean(key, known)))));
  }
  const std::string accumulates = ValueOf(model, kAccumulates);
  if (!accumulates.empty() && !llm::IsValueOf(llm::ParameterKind::kBool, "", accumulates)) {
    findings.push_back(
        FindingAtMapEntry(model.folder, "parameters", kAccumulates,
                          StrCat("expected true or false, got '", accumulates, "'")));
  }
  // The load does not need the other models, which may come and go: only requests do.
  for (const auto& [key, unset] : kCalled) {
    const std::string value = ValueOf(model, key);
    const std::string name = value.empty() ? unset : value;
    if (name.empty() || FindModel(repository, name) != nullptr) continue;
    findings.push_back(AsWarning(FindingAtMapEntry(
        model.folder, "parameters", key,
        StrCat("model '", name, "', which requests call, is not in the repository",
               DidYouMean(name, models)))));
  }
}

}  // namespace nereid::repo
