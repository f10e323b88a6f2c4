// `nereid-repo new`: creates a model repository from a checkpoint. With an error, nothing of the
// output folder is left behind.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

// `nereid-repo new llm`: a repository that loads without further changes.
struct NewLlmOptions {
  enum class Files { kReference, kCopy, kLink };

  std::string checkpoint;
  std::string tokenizer;  // a folder or file in place of the checkpoint's tokenizer, or empty
  std::string out;        // must not exist or must be empty
  std::string backend = "auto";  // auto, gpu_llm, cpu_reference
  bool decoupled = false;
  int max_batch_size = 64;
  int max_queue_size = 1024;
  Files files = Files::kReference;  // the repository refers to the checkpoint's path, or has copies
                                    // of or links to its files
  std::string templates;            // the folder of template files

  // The model that clients call. Empty: `ensemble`, whose steps have their usual names; otherwise
  // the steps are named after it, so that several such repositories can be served together.
  std::string model_name;
  // A file to use in place of the checkpoint's chat template, or empty. Not with kReference,
  // because the tokenizer reads the template from the folder of its own files.
  std::string chat_template;
  // How answers are parsed: auto (by the chat template), none, or a family of docs/tool_calls.md.
  std::string chat_parser = "auto";
  std::map<std::string, std::string> engine_parameters;  // added to the engine's configuration
};

// The names of the models of a repository, see NewLlmOptions::model_name.
struct LlmModelNames {
  std::string ensemble, preprocessing, engine, postprocessing;
};
LlmModelNames NamesOfLlmModels(const std::string& model_name);

// INVALID_ARG if `name` is not the name of a model: letters, digits, '.', '_' and '-', at most 128,
// of which the first is a letter or a digit.
Status CheckModelName(const std::string& name);

Status NewLlm(const NewLlmOptions& options);

// `nereid-repo new qaic-style`: a repository in the style of the LLM samples of Qualcomm's Cloud AI
// SDK. The engine serves it instead of their accelerator. The flags are those of the SDK's
// generate_llm_model_repo.py.
struct NewQaicOptions {
  std::string model_name;  // of the model that clients call
  // --hf_model_name: a folder, or organization/model of a hub, whose snapshot is in the cache of
  // Hugging Face's tools. Empty: the model that the SDK's samples serve under model_name.
  std::string checkpoint;
  std::string model_type = "kv_cache";
  std::string compile_config;  // a file, or empty
  std::string out;             // must not exist or must be empty
  std::string backend = "auto";
  bool decoupled = false;
  bool has_backend_dir = false;  // --python_backend_dir was given
  // A configuration that asks for 6-bit weights runs with those of the checkpoint.
  bool uses_checkpoint_precision = false;
  std::string templates;  // the folder of template files: llm/ and qaic/
};

// `notes` receives the names of the given settings that have no effect.
Status NewQaic(const NewQaicOptions& options, std::vector<std::string>& notes);

// `nereid-repo new inflight`: a repository with the models and tensors of one release of
// TensorRT-LLM, for clients that were written for it.
struct NewInflightOptions {
  std::string generation = "main";  // 0.5, 0.9, 0.13, 0.18 or main, the last one upstream
  std::string checkpoint;
  std::string out;  // must not exist or must be empty
  std::string backend = "auto";
  bool decoupled = false;
  int max_batch_size = 64;
  int max_queue_size = 1024;
  std::string templates;  // the folder of template files
};

Status NewInflight(const NewInflightOptions& options);

// ---- templates

// The values of placeholders, by name.
using TemplateValues = std::map<std::string, std::string>;

// Replaces the ${placeholders} of a template by values. INVALID_ARG, with the line, for a
// placeholder without a value. `name` is the template's name in errors. Quotes and backslashes in
// values are escaped for the protobuf text format.
Result<std::string> FillTemplate(std::string_view text, const TemplateValues& values,
                                 const std::string& name);

}  // namespace nereid::repo
