#include "host/cli/served_model.h"

#include <algorithm>
#include <filesystem>

#include "host/cli/hub_download.h"
#include "repo_templates/tool/new_repository.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDemo[] = "demo";

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

DownloadEvents ShowOn(ProgressBar& progress) {
  DownloadEvents events;
  events.on_bytes = [&](const std::string& file, uint64_t done, uint64_t total) {
    progress.Update(file, done, total);
  };
  events.on_note = [&](const std::string& note) { progress.Note(note); };
  return events;
}

Result<std::string> FindHubCheckpoint(const HubId& id, ProgressBar& progress) {
  const Result<std::string> cached = HubCache::FromEnvironment().FindSnapshot(id);
  if (cached.ok() && repo::InspectCheckpoint(*cached).ok()) return *cached;
  return PullCheckpoint(id, progress);
}

// The last part of a folder's path or of a hub id.
std::string NameOf(const std::string& checkpoint, const std::string& folder) {
  if (checkpoint == kDemo) return kDemo;
  if (!IsFolder(checkpoint)) {
    if (const Result<HubId> id = ParseHubId(checkpoint); id.ok()) return id->model;
  }
  std::error_code ignored;
  return fs::canonical(folder, ignored).filename().string();
}

// The adapter's folder, absolute. The engine checks what is in it.
Result<std::string> FindAdapter(const std::string& name, const std::string& folder,
                                const std::string& model) {
  const repo::LlmModelNames steps = repo::NamesOfLlmModels(model);
  for (const std::string& taken :
       {steps.ensemble, steps.preprocessing, steps.engine, steps.postprocessing}) {
    if (name == taken) {
      return AlreadyExistsError("--lora: '", name, "' is also the name of a model");
    }
  }
  std::error_code error;
  const std::string path = fs::canonical(folder, error).string();
  if (error || !IsFolder(path)) return NotFoundError("--lora: '", folder, "': no such folder");
  if (path.find(',') == std::string::npos) return path;
  return InvalidArgError("--lora: '", path, "': expected a path without a comma");
}

Result<ServedModel> FindModel(const ServeOptions& options, size_t index,
                              const std::string& install_root, ProgressBar& progress) {
  const std::string& checkpoint = options.checkpoints[index];
  NEREID_ASSIGN_OR_RETURN(const std::string folder,
                          FindCheckpoint(checkpoint, install_root, progress));
  ServedModel model;
  model.name = options.names.empty() ? NameOf(checkpoint, folder) : options.names[index];
  Status valid = repo::CheckModelName(model.name);
  if (!valid.ok()) return std::move(valid).WithContext("--name");
  NEREID_ASSIGN_OR_RETURN(model.checkpoint, repo::InspectCheckpoint(folder));
  for (const auto& [adapter, path] : options.adapters) {
    NEREID_ASSIGN_OR_RETURN(std::string found, FindAdapter(adapter, path, model.name));
    model.adapters.emplace_back(adapter, std::move(found));
  }
  model.has_chat_template = model.checkpoint.has_chat_template || !options.chat_template.empty();
  return model;
}

// Models of several checkpoints must not have the same name, nor that of another one's step.
Status CheckNames(const std::vector<ServedModel>& models) {
  for (const ServedModel& a : models) {
    for (const ServedModel& b : models) {
      if (&a == &b) continue;
      const repo::LlmModelNames steps = repo::NamesOfLlmModels(b.name);
      for (const std::string& name :
           {steps.ensemble, steps.preprocessing, steps.engine, steps.postprocessing}) {
        if (a.name != name) continue;
        return AlreadyExistsError("two models would have the name '", name, "': '",
                                  a.checkpoint.directory, "' and '", b.checkpoint.directory,
                                  "'; give each checkpoint a --name");
      }
    }
  }
  return Status::Ok();
}

// The number of models that may be loaded at the same time.
size_t MaxLoadedTogether(const ServeOptions& options, const std::vector<ServedModel>& models) {
  if (options.memory_budget == 0) return models.size();
  std::vector<uint64_t> sizes;
  for (const ServedModel& model : models) sizes.push_back(model.checkpoint.weight_bytes);
  std::sort(sizes.begin(), sizes.end());
  uint64_t num_bytes = 0;
  size_t num_models = 0;
  while (num_models < sizes.size() && (num_bytes += sizes[num_models]) <= options.memory_budget) {
    ++num_models;
  }
  return num_models;
}

}  // namespace

Result<std::string> PullCheckpoint(const HubId& id, ProgressBar& progress) {
  const HubCache cache = HubCache::FromEnvironment();
  NEREID_ASSIGN_OR_RETURN(const HubConnection hub, HubConnection::FromEnvironment());
  if (!hub.is_offline) {
    progress.Note(StrCat("downloading ", id.repository(), " (", id.revision, ") from ",
                         hub.endpoint, " to ", cache.root()));
  }
  Result<std::string> folder = DownloadSnapshot(id, cache, hub, ShowOn(progress));
  progress.Finish();
  return folder;
}

Result<std::string> FindCheckpoint(const std::string& checkpoint, const std::string& install_root,
                                   ProgressBar& progress) {
  if (checkpoint == kDemo) {
    std::string folder = install_root + "/share/demo_model";
    if (IsFolder(folder)) return folder;
    return NotFoundError("'", folder, "': the demo model is not installed");
  }
  std::error_code ignored;
  if (IsFolder(checkpoint)) return checkpoint;
  if (fs::exists(checkpoint, ignored)) {
    const bool is_gguf = fs::path(checkpoint).extension() == ".gguf";
    return InvalidArgError("'", checkpoint, "': expected the checkpoint's folder, got a file",
                           is_gguf ? " of GGUF; a checkpoint has config.json, safetensors and a "
                                     "tokenizer"
                                   : "");
  }
  const Result<HubId> id = ParseHubId(checkpoint);
  if (id.ok()) return FindHubCheckpoint(*id, progress);
  return NotFoundError("'", checkpoint, "': no such folder, and no organization/model of a hub");
}

Result<std::vector<ServedModel>> FindModels(const ServeOptions& options,
                                            const std::string& install_root,
                                            ProgressBar& progress) {
  std::error_code ignored;
  if (!options.chat_template.empty() && !fs::is_regular_file(options.chat_template, ignored)) {
    return NotFoundError("--chat-template: '", options.chat_template, "': no such file");
  }
  std::vector<ServedModel> models;
  for (size_t i = 0; i < options.checkpoints.size(); ++i) {
    NEREID_ASSIGN_OR_RETURN(ServedModel model, FindModel(options, i, install_root, progress));
    models.push_back(std::move(model));
  }
  NEREID_RETURN_IF_ERROR(CheckNames(models));
  return models;
}

Status PlanMemory(const ServeOptions& options, std::vector<ServedModel>& models) {
  if (options.memory_budget == 0) return Status::Ok();
  uint64_t num_bytes = 0;
  for (ServedModel& model : models) {
    const uint64_t needed = model.checkpoint.weight_bytes;
    if (needed > options.memory_budget) {
      return InvalidArgError("--memory-budget: model '", model.name, "' has weights of ",
                             ShowBytes(needed), ", got ", ShowBytes(options.memory_budget));
    }
    model.is_loaded_at_start = num_bytes + needed <= options.memory_budget;
    if (model.is_loaded_at_start) num_bytes += needed;
  }
  return Status::Ok();
}

Result<std::vector<std::string>> WriteRepositories(const ServeOptions& options,
                                                   const std::vector<ServedModel>& models,
                                                   const std::string& install_root,
                                                   const std::string& folder) {
  std::vector<std::string> repositories;
  for (const ServedModel& model : models) {
    repo::NewLlmOptions llm;
    llm.model_name = model.name;
    llm.checkpoint = model.checkpoint.directory;
    llm.out = StrCat(folder, "/", model.name);
    llm.backend = options.engine;
    llm.decoupled = true;
    llm.templates = install_root + "/share/repo_templates/llm";
    llm.chat_template = options.chat_template;
    llm.chat_parser = options.chat_parser;
    if (!llm.chat_template.empty()) llm.files = repo::NewLlmOptions::Files::kLink;
    // Conversations share their beginnings. A request without max_tokens may use the whole context,
    // so reserving all that a request may need would leave room for few of them.
    llm.engine_parameters = {{"enable_kv_cache_reuse", "true"},
                             {"batch_scheduler_policy", "max_utilization"}};
    std::string& adapters = llm.engine_parameters["lora_adapters"];
    for (const auto& [name, adapter] : model.adapters) {
      adapters += StrCat(adapters.empty() ? "" : ",", name, "=", adapter);
    }
    if (adapters.empty()) llm.engine_parameters.erase("lora_adapters");
    if (options.speculation != "off") {
      llm.engine_parameters["speculative_decoding"] = options.speculation;
    }
    if (options.json_whitespace >= 0) {
      llm.engine_parameters["json_whitespace"] = std::to_string(options.json_whitespace);
    }
    if (options.max_model_len > 0) {
      llm.engine_parameters["max_seq_len"] = std::to_string(options.max_model_len);
    }
    // Several models share the memory that the weights leave on a GPU. Each takes its part of what
    // is free when it is loaded.
    if (const size_t num_together = MaxLoadedTogether(options, models); num_together > 1) {
      constexpr double kShared = 0.9;
      llm.engine_parameters["kv_cache_free_gpu_mem_fraction"] =
          StrCat(kShared / static_cast<double>(num_together));
    }
    NEREID_RETURN_IF_ERROR(repo::NewLlm(llm));
    repositories.push_back(llm.out);
  }
  return repositories;
}

}  // namespace nereid::cli
