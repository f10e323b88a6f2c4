#include "repo_templates/tool/new_repository.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_content.h"
#include "base/json_reader.h"
#include "host/cli/hub_cache.h"
#include "host/cli/hub_id.h"
#include "repo_templates/tool/checkpoint.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

// The fields of compile_config.json that have an effect.
struct CompileConfig {
  std::optional<int64_t> prefill_seq_len, ctx_len, batch_size, full_batch_size;
  bool has_int8_cache = false;
};

// The models of the SDK's samples. Their script knows from --model_name what to download.
struct Sample {
  std::string_view model_name;
  const char* hub_id;
};
constexpr Sample kSamples[] = {{"starcoder_15b", "bigcode/starcoder"},
                               {"starcoder_decoupled", "bigcode/starcoder"},
                               {"mistral_7b", "mistralai/Mistral-7B-v0.1"},
                               {"mistral_decoupled", "mistralai/Mistral-7B-v0.1"}};

// The folder of the checkpoint that --hf_model_name or the model's name names.
Result<std::string> FindCheckpoint(const NewQaicOptions& options) {
  std::string name = options.checkpoint;
  if (name.empty()) {
    const auto* const sample =
        std::find_if(std::begin(kSamples), std::end(kSamples),
                     [&](const Sample& one) { return one.model_name == options.model_name; });
    if (sample == std::end(kSamples)) {
      std::string known;
      for (const Sample& one : kSamples) known += StrCat(known.empty() ? "" : ", ", one.model_name);
      return InvalidArgError("new qaic-style: --hf_model_name is missing: only the samples ", known,
                             " have a checkpoint of their own, got '", options.model_name, "'");
    }
    name = sample->hub_id;
  }
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return name;
  const Result<cli::HubId> id = cli::ParseHubId(name);
  if (!id.ok()) return name;  // the error about the checkpoint names the folder
  Result<std::string> snapshot = cli::HubCache::FromEnvironment().FindSnapshot(*id);
  if (snapshot.ok()) return snapshot;
  return NotFoundError("--hf_model_name: there is no folder '", name,
                       "', and it is not in the cache: ", snapshot.status().message(),
                       "; 'nereid pull ", name, "' downloads it");
}

Result<int64_t> Count(const std::string& key, const nlohmann::json& value) {
  if (value.is_number_integer() && value.get<int64_t>() >= 1) return value.get<int64_t>();
  return InvalidArgError("compile_config: '", key, "': expected a number of 1 or more, got ",
                         ShowJson(value));
}

Result<bool> Flag(const std::string& key, const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  return InvalidArgError("compile_config: '", key, "': expected true or false, got ",
                         ShowJson(value));
}

// The checkpoint determines the format of the weights.
Status ApplyWeightFormat(bool is_requested, const NewQaicOptions& options,
                         std::vector<std::string>& notes) {
  if (!is_requested) return {};
  if (!options.uses_checkpoint_precision) {
    return UnsupportedError(
        "compile_config: 'mxfp6_matmul': there are no 6-bit weights; with --checkpoint_precision "
        "the model runs with the weights as the checkpoint has them");
  }
  notes.push_back(
      "compile_config: 'mxfp6_matmul' has no effect: the model runs at the checkpoint's precision");
  return {};
}

Status Apply(const NewQaicOptions& options, const std::string& key, const nlohmann::json& value,
             CompileConfig& config, std::vector<std::string>& notes) {
  std::optional<int64_t>* count = key == "prefill_seq_len"   ? &config.prefill_seq_len
                                  : key == "ctx_len"         ? &config.ctx_len
                                  : key == "batch_size"      ? &config.batch_size
                                  : key == "full_batch_size" ? &config.full_batch_size
                                                             : nullptr;
  if (count != nullptr) {
    if (value.is_null()) return {};
    NEREID_ASSIGN_OR_RETURN(*count, Count(key, value));
    return {};
  }
  if (key == "mxfp6_matmul") {
    NEREID_ASSIGN_OR_RETURN(const bool is_requested, Flag(key, value));
    return ApplyWeightFormat(is_requested, options, notes);
  }
  if (key == "mxint8_kv_cache") {
    NEREID_ASSIGN_OR_RETURN(config.has_int8_cache, Flag(key, value));
    if (config.has_int8_cache) {
      notes.push_back("compile_config: 'mxint8_kv_cache' is kv_cache_dtype int8 of the engine");
    }
    return {};
  }
  for (const char* known : {"onnx_path", "num_cores", "aic_enable_depth_first", "mos"}) {
    if (key != known) continue;
    notes.push_back(StrCat("compile_config: '", key, "' has no effect: nothing is compiled"));
    return {};
  }
  return InvalidArgError("compile_config: unknown key '", key, "'");
}

Result<CompileConfig> ReadCompileConfig(const NewQaicOptions& options,
                                        std::vector<std::string>& notes) {
  const std::string& path = options.compile_config;
  CompileConfig config;
  if (path.empty()) return config;
  constexpr const char* kOption = "--compile_config_path";
  Result<std::string> text = ReadFile(path, kMaxTextFileBytes);
  if (!text.ok()) return std::move(text).status().WithContext(kOption);
  NEREID_ASSIGN_OR_RETURN(const nlohmann::json json,
                          ReadJsonObject<nlohmann::json>(*text, StrCat(kOption, ": '", path, "'")));
  for (const auto& [key, value] : json.items()) {
    NEREID_RETURN_IF_ERROR(Apply(options, key, value, config, notes));
  }
  return config;
}

Status Check(const NewQaicOptions& options) {
  for (const char* reserved : {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}) {
    if (options.model_name == reserved) {
      return InvalidArgError("--model_name: '", reserved, "' is a model that it calls");
    }
  }
  if (options.model_name.empty() || options.model_name.front() == '.' ||
      options.model_name.find('/') != std::string::npos) {
    return InvalidArgError("--model_name: expected a name, got '", options.model_name, "'");
  }
  if (options.model_type != "causal" && options.model_type != "kv_cache") {
    return InvalidArgError("--model_type: expected causal or kv_cache, got '", options.model_type,
                           "'");
  }
  return {};
}

Status Write(const fs::path& target, const std::string& text, std::ios::openmode mode) {
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  std::ofstream file(target, std::ios::binary | mode);
  file << text;
  file.close();
  if (file) return {};
  return InternalError("'", target.string(), "': cannot be written");
}

Result<std::string> ReadTemplate(const fs::path& path) {
  Result<std::string> text = ReadFile(path.string(), kMaxTextFileBytes);
  if (!text.ok()) return std::move(text).status().WithContext("template");
  return text;
}

std::string TextOf(const std::optional<int64_t>& count) {
  return count.has_value() ? std::to_string(*count) : std::string();
}

std::string EngineParameters(const CompileConfig& config) {
  std::string text;
  const auto add = [&](const char* key, const auto& value) {
    text += StrCat("parameters { key: \"", key, "\" value { string_value: \"", value, "\" } }\n");
  };
  if (config.ctx_len) add("max_seq_len", *config.ctx_len);
  // One prefill chunk beside one token of every decoding sequence.
  if (config.prefill_seq_len) {
    add("max_num_tokens", *config.prefill_seq_len + config.full_batch_size.value_or(64));
  }
  if (config.has_int8_cache) add("kv_cache_dtype", "int8");
  return text;
}

Status WriteModel(const NewQaicOptions& options, const std::string& checkpoint_folder,
                  const CompileConfig& config) {
  NEREID_ASSIGN_OR_RETURN(const CheckpointSummary checkpoint, InspectCheckpoint(checkpoint_folder));
  const fs::path source = fs::path(options.templates) / "qaic" / "model";
  const fs::path target = fs::path(options.out) / options.model_name;
  const TemplateValues values = {
      {"checkpoint_summary", checkpoint.architecture + ", " + options.model_type},
      {"decoupled_mode", options.decoupled ? "true" : "false"},
      {"max_tokens", "128"},
      {"batch_size", TextOf(config.batch_size)},
      {"full_batch_size", TextOf(config.full_batch_size)}};
  NEREID_ASSIGN_OR_RETURN(const std::string text, ReadTemplate(source / "config.pbtxt"));
  NEREID_ASSIGN_OR_RETURN(const std::string filled,
                          FillTemplate(text, values, (source / "config.pbtxt").string()));
  NEREID_RETURN_IF_ERROR(Write(target / "config.pbtxt", filled, std::ios::trunc));
  NEREID_ASSIGN_OR_RETURN(const std::string code, ReadTemplate(source / "1" / "model.py"));
  NEREID_RETURN_IF_ERROR(Write(target / "1" / "model.py", code, std::ios::trunc));
  return Write(fs::path(options.out) / "tensorrt_llm" / "config.pbtxt", EngineParameters(config),
               std::ios::app);
}

}  // namespace

Status NewQaic(const NewQaicOptions& options, std::vector<std::string>& notes) {
  NEREID_RETURN_IF_ERROR(Check(options));
  NEREID_ASSIGN_OR_RETURN(const CompileConfig config, ReadCompileConfig(options, notes));
  NEREID_ASSIGN_OR_RETURN(const std::string checkpoint, FindCheckpoint(options));
  if (options.model_type == "causal") {
    notes.push_back("--model_type causal: the engine keeps a KV cache in any case");
  }
  if (options.has_backend_dir) {
    notes.push_back("--python_backend_dir has no effect: the backend `python` runs the model");
  }
  std::error_code ignored;
  const bool existed = fs::exists(options.out, ignored);
  NewLlmOptions llm;
  llm.checkpoint = checkpoint;
  llm.out = options.out;
  llm.backend = options.backend;
  llm.decoupled = true;
  llm.templates = (fs::path(options.templates) / "llm").string();
  NEREID_RETURN_IF_ERROR(NewLlm(llm));
  Status status = WriteModel(options, checkpoint, config);
  if (status.ok()) return status;
  for (const auto& entry : fs::directory_iterator(options.out, ignored)) {
    fs::remove_all(entry.path(), ignored);
  }
  if (!existed) fs::remove(options.out, ignored);
  return status;
}

}  // namespace nereid::repo
