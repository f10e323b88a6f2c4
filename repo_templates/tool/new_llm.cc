#include "repo_templates/tool/new_repository.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file_content.h"
#include "repo_templates/tool/checkpoint.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

std::string Escape(const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

constexpr const char* kVersion = "1";
constexpr const char* kChatTemplate = "chat_template.jinja";

// The names of the template folders, which are those of the models in a repository without a name.
constexpr const char* kTemplates[] = {"ensemble", "preprocessing", "tensorrt_llm",
                                      "postprocessing"};

// The models in the order of kTemplates.
std::vector<std::string> ModelNames(const NewLlmOptions& options) {
  const LlmModelNames names = NamesOfLlmModels(options.model_name);
  return {names.ensemble, names.preprocessing, names.engine, names.postprocessing};
}

std::string Summarize(const CheckpointSummary& checkpoint) {
  std::string text = checkpoint.architecture;
  if (checkpoint.context_length > 0) {
    text += StrCat(", context of ", checkpoint.context_length, " tokens");
  }
  if (checkpoint.vocabulary_size > 0) {
    text += StrCat(", vocabulary of ", checkpoint.vocabulary_size);
  }
  return text + ".";
}

TemplateValues ValuesFor(const NewLlmOptions& options, const CheckpointSummary& checkpoint) {
  const bool inside = options.files != NewLlmOptions::Files::kReference;
  const LlmModelNames names = NamesOfLlmModels(options.model_name);
  const std::string tokenizer =
      options.tokenizer.empty() ? "" : fs::absolute(options.tokenizer).lexically_normal().string();
  TemplateValues values = {
      {"preprocessing_model", names.preprocessing},
      {"engine_model", names.engine},
      {"postprocessing_model", names.postprocessing},
      {"triton_backend", options.backend == "auto" ? "tensorrtllm" : options.backend},
      {"triton_max_batch_size", StrCat(options.max_batch_size)},
      {"decoupled_mode", options.decoupled ? "true" : "false"},
      {"max_queue_delay_microseconds", "0"},
      {"max_queue_size", StrCat(options.max_queue_size)},
      {"checkpoint_summary", Summarize(checkpoint)},
      {"max_model_len", checkpoint.context_length > 0 ? StrCat(checkpoint.context_length) : ""},
      {"engine_dir", inside ? kVersion : checkpoint.directory},
      {"tokenizer_dir", !tokenizer.empty() ? tokenizer
                        : inside           ? StrCat("../", names.engine, "/", kVersion)
                                           : checkpoint.directory},
      {"engine_tokenizer_dir", !tokenizer.empty() ? tokenizer
                               : inside           ? kVersion
                                                  : checkpoint.directory},
      {"add_special_tokens", "true"},
      {"sampling_defaults", "generation_config"},
      {"skip_special_tokens", "true"},
      {"chat_parser", options.chat_parser},
      {"exclude_input_in_output", "true"},
      {"max_tokens_in_paged_kv_cache", ""},
      {"max_num_sequences", ""},
      {"batch_scheduler_policy", ""},
      {"preprocessing_instance_count", "1"},
      {"postprocessing_instance_count", "1"},
  };
  for (const char* key : SamplingDefaultKeys()) {
    const auto value = checkpoint.sampling_defaults.find(key);
    const bool has_value = value != checkpoint.sampling_defaults.end();
    values[StrCat("default_", key)] = has_value ? value->second : "";
  }
  return values;
}

std::string ParameterLines(const std::map<std::string, std::string>& parameters) {
  std::string text;
  for (const auto& [key, value] : parameters) {
    text += StrCat("parameters { key: \"", Escape(key), "\" value { string_value: \"",
                   Escape(value), "\" } }\n");
  }
  return text;
}

Status WriteModel(const NewLlmOptions& options, const std::string& name, const std::string& model,
                  const TemplateValues& values) {
  const fs::path source = fs::path(options.templates) / name / "config.pbtxt";
  Result<std::string> text = ReadFile(source.string(), kMaxTextFileBytes);
  if (!text.ok()) return std::move(text).status().WithContext("template");
  NEREID_ASSIGN_OR_RETURN(const std::string filled, FillTemplate(*text, values, source.string()));

  const fs::path target = fs::path(options.out) / model;
  std::error_code error;
  fs::create_directories(target / kVersion, error);
  if (error) return InternalError("'", target.string(), "': ", error.message());
  std::ofstream config(target / "config.pbtxt", std::ios::binary);
  config << filled;
  if (model == NamesOfLlmModels(options.model_name).engine) {
    config << ParameterLines(options.engine_parameters);
  }
  config.close();
  if (!config) {
    return InternalError("'", (target / "config.pbtxt").string(), "': cannot be written");
  }
  return {};
}

Status CopyOrLinkFiles(const NewLlmOptions& options, const CheckpointSummary& checkpoint) {
  const fs::path folder =
      fs::path(options.out) / NamesOfLlmModels(options.model_name).engine / kVersion;
  std::error_code error;
  if (!options.chat_template.empty()) {
    fs::copy_file(options.chat_template, folder / kChatTemplate, error);
    if (error) return InternalError("'", options.chat_template, "': ", error.message());
  }
  for (const std::string& name : checkpoint.files) {
    if (!options.chat_template.empty() && name == kChatTemplate) continue;
    const fs::path source = fs::path(checkpoint.directory) / name;
    if (options.files == NewLlmOptions::Files::kCopy) {
      fs::copy_file(source, folder / name, error);
    } else {
      fs::create_symlink(source, folder / name, error);
    }
    if (error) return InternalError("'", (folder / name).string(), "': ", error.message());
  }
  return {};
}

Status WriteRepository(const NewLlmOptions& options, const CheckpointSummary& checkpoint) {
  const TemplateValues values = ValuesFor(options, checkpoint);
  const std::vector<std::string> models = ModelNames(options);
  for (size_t i = 0; i < models.size(); ++i) {
    NEREID_RETURN_IF_ERROR(WriteModel(options, kTemplates[i], models[i], values));
  }
  if (options.files == NewLlmOptions::Files::kReference) return {};
  return CopyOrLinkFiles(options, checkpoint);
}

Status ValidateOptions(const NewLlmOptions& options) {
  if (options.backend != "auto" && options.backend != "gpu_llm" &&
      options.backend != "cpu_reference") {
    return InvalidArgError("--backend: expected auto, gpu_llm or cpu_reference, got '",
                           options.backend, "'");
  }
  if (options.max_batch_size < 1) {
    return InvalidArgError("--max-batch-size: expected 1 or more, got ", options.max_batch_size);
  }
  if (!options.model_name.empty()) NEREID_RETURN_IF_ERROR(CheckModelName(options.model_name));
  if (!options.chat_template.empty() && options.files == NewLlmOptions::Files::kReference) {
    return InvalidArgError("a chat template of its own needs a repository with copies or links");
  }
  std::error_code ignored;
  if (fs::exists(options.out, ignored) &&
      !(fs::is_directory(options.out, ignored) && fs::is_empty(options.out, ignored))) {
    return AlreadyExistsError("'", options.out, "': exists already and is not an empty folder");
  }
  return {};
}

}  // namespace

LlmModelNames NamesOfLlmModels(const std::string& model_name) {
  if (model_name.empty()) return {kTemplates[0], kTemplates[1], kTemplates[2], kTemplates[3]};
  return {model_name, model_name + "_preprocessing", model_name + "_tensorrt_llm",
          model_name + "_postprocessing"};
}

Status CheckModelName(const std::string& name) {
  constexpr size_t kMaxBytes = 128;
  const auto is_alnum = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool is_valid = !name.empty() && name.size() <= kMaxBytes && is_alnum(name.front()) &&
                        std::all_of(name.begin(), name.end(), [&](char c) {
                          return is_alnum(c) || c == '.' || c == '_' || c == '-';
                        });
  if (is_valid) return {};
  return InvalidArgError("'", name, "' cannot be the name of a model: expected 1 to ", kMaxBytes,
                         " letters, digits, '.', '_' and '-', of which the first is a letter or a ",
                         "digit");
}

Status NewLlm(const NewLlmOptions& options) {
  NEREID_RETURN_IF_ERROR(ValidateOptions(options));
  NEREID_ASSIGN_OR_RETURN(const CheckpointSummary checkpoint,
                          InspectCheckpoint(options.checkpoint, options.tokenizer));
  std::error_code ignored;
  const bool existed = fs::exists(options.out, ignored);
  Status status = WriteRepository(options, checkpoint);
  if (status.ok()) return status;
  for (const std::string& model : ModelNames(options)) {
    fs::remove_all(fs::path(options.out) / model, ignored);
  }
  if (!existed) fs::remove(options.out, ignored);
  return status;
}

Result<std::string> FillTemplate(std::string_view text, const TemplateValues& values,
                                 const std::string& name) {
  std::string filled;
  while (true) {
    const size_t start = text.find("${");
    filled += text.substr(0, start);
    if (start == std::string_view::npos) return filled;
    const size_t end = text.find('}', start);
    const auto line = 1 + std::count(filled.begin(), filled.end(), '\n');
    if (end == std::string_view::npos) {
      return InvalidArgError(name, ":", line, ": '${' without '}'");
    }
    const std::string key(text.substr(start + 2, end - start - 2));
    const auto value = values.find(key);
    if (value == values.end()) {
      return InvalidArgError(name, ":", line, ": no value for ${", key, "}");
    }
    filled += Escape(value->second);
    text.remove_prefix(end + 1);
  }
}

}  // namespace nereid::repo
