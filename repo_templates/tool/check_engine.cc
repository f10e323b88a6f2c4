#include "repo_templates/tool/check_engine.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/lora/adapter_list.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "backends/llm_core/speculation/medusa_heads.h"
#include "backends/llm_core/speculation/medusa_weights.h"
#include "backends/llm_core/speculation/method.h"
#include "backends/llm_core/speculation/ranked_tree.h"
#include "backends/llm_tables/engine_parameters.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const RepositoryModel& model, const std::string& path) {
  return (fs::path(model.folder.path) / path).lexically_normal().string();
}

Status CheckMedusaHeads(const RepositoryModel& model, const std::string& folder,
                        const llm::DecoderModel* target) {
  NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint, llm::OpenMedusaCheckpoint(folder));
  if (target == nullptr) return {};
  NEREID_ASSIGN_OR_RETURN(const llm::MedusaWeights heads,
                          llm::ReadMedusaWeights(checkpoint, target->spec));
  const std::string choices = ValueOf(model, "medusa_choices");
  if (choices.empty()) return {};
  const Status status =
      llm::ParseTreeChoices(choices, heads.num_heads, llm::kMaxMedusaTokens).status();
  return status.ok() ? Status() : Status(status).WithContext("parameter 'medusa_choices'");
}

Status CheckDrafter(const RepositoryModel& model, const llm::DecoderModel* target) {
  const auto value_of = [&model](std::string_view key) { return ValueOf(model, key); };
  NEREID_ASSIGN_OR_RETURN(const llm::SpeculationMethod method,
                          llm::FindSpeculationMethod(value_of));
  if (!method.has_weights()) return {};
  if (method.kind == llm::DrafterKind::kMedusa) {
    return CheckMedusaHeads(model, FolderOf(model, method.folder), target);
  }
  NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint,
                          llm::Checkpoint::Open(FolderOf(model, method.folder)));
  if (target == nullptr) return {};
  if (method.kind == llm::DrafterKind::kEagle3) {
    return llm::ReadEagle3Head(checkpoint, target->spec).status();
  }
  NEREID_ASSIGN_OR_RETURN(const llm::DecoderModel draft,
                          llm::ReadDecoder(checkpoint, /*supports_quantized=*/true));
  if (draft.spec.vocab_size == target->spec.vocab_size) return {};
  return InvalidArgError("the draft model has a vocabulary of ", draft.spec.vocab_size,
                         " tokens, and the model one of ", target->spec.vocab_size,
                         ": expected the same vocabulary");
}

Status CheckAdapters(const RepositoryModel& model, const std::string& text,
                     const llm::DecoderModel* target) {
  NEREID_ASSIGN_OR_RETURN(const auto adapters, llm::ParseAdapterList(text));
  if (target == nullptr) return {};
  const llm::LoraTargets targets = llm::LoraTargets::Of(target->map, target->spec.num_layers());
  const int rank = std::atoi(ValueOf(model, "lora_cache_max_adapter_size").c_str());
  for (const auto& [name, folder] : adapters) {
    NEREID_RETURN_IF_ERROR(llm::ReadPeftAdapter(name, FolderOf(model, folder), targets,
                                                rank > 0 ? rank : llm::kDefaultAdapterRank)
                               .status());
  }
  return {};
}

// The limits that the load sets in a model's layers.
Status CheckAttention(const RepositoryModel& model, llm::DecoderSpec spec) {
  std::string windows = ValueOf(model, "max_attention_window_size");
  if (windows.empty()) windows = ValueOf(model, "max_kv_cache_length");
  const std::string sinks = ValueOf(model, "sink_token_length");
  return llm::LimitAttention(windows, std::atoi(sinks.c_str()), spec);
}

}  // namespace

void CheckEngineSettings(const RepositoryModel& model,
                         const std::optional<llm::DecoderModel>& decoder, Findings& findings) {
  const auto add = [&](const std::string& key, const Status& status) {
    if (status.ok()) return;
    findings.push_back(FindingAtMapEntry(model.folder, "parameters", key, status.message()));
  };
  const auto value_of = [&model](std::string_view key) { return ValueOf(model, key); };
  if (const auto conflict = llm::FindParameterConflict(value_of)) {
    add(conflict->key, conflict->status);
  }
  const llm::DecoderModel* const target = decoder.has_value() ? &*decoder : nullptr;
  for (const char* key : {"speculative_decoding", "decoding_mode", "lookahead_window_size",
                          "lookahead_ngram_size", "lookahead_verification_set_size"}) {
    if (value_of(key).empty()) continue;
    add(key, CheckDrafter(model, target));
    break;
  }
  if (const std::string text = value_of("lora_adapters"); !text.empty()) {
    add("lora_adapters", CheckAdapters(model, text, target));
  }
  std::error_code ignored;
  if (const std::string text = value_of("lora_dir");
      !text.empty() && !fs::is_directory(FolderOf(model, text), ignored)) {
    add("lora_dir",
        NotFoundError("'", FolderOf(model, text), "': no such folder of LoRA adapters"));
  }
  if (target != nullptr) add("sink_token_length", CheckAttention(model, target->spec));
}

}  // namespace nereid::repo
