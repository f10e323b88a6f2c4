#include "repo_templates/tool/check.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "backends/llm_core/model/architecture.h"
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"
#include "base/closest_name.h"
#include "nereid/data_type.h"
#include "repo_templates/tool/check_engine.h"
#include "repo_templates/tool/checkpoint.h"
#include "repo_templates/tool/llm_tables.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

// An unfilled placeholder counts as unset, as it does when the model loads.
bool IsUnset(const std::string& value) {
  return value.empty() || value.find("${") != std::string::npos;
}

LlmRole RoleOf(const core::ModelConfig& config) {
  if (config.backend == "tokenizer") {
    // Without `mode`, the inputs decide, as they do when the model loads.
    const auto mode = config.parameters.find("mode");
    const bool is_post = mode != config.parameters.end() && !IsUnset(mode->second)
                             ? mode->second == "postprocessing"
                             : config.FindInput("TOKENS_BATCH") != nullptr;
    return is_post ? LlmRole::kPostprocessing : LlmRole::kPreprocessing;
  }
  return IsLlmEngine(config) ? LlmRole::kEngine : LlmRole::kNone;
}

bool TypeAgrees(const core::TensorConfig& declared, const LlmTensor& known) {
  const DataType type = declared.data_type;
  // Releases before 0.7 use UINT32 where later ones use INT32.
  if (known.data_type == "INT32" && type == DataType::kUint32) return true;
  if (known.data_type[0] != '*') return ConfigName(type) == StrCat("TYPE_", known.data_type);
  return type == DataType::kFp32 || type == DataType::kFp16 || type == DataType::kBf16;
}

void CheckTensor(const RepositoryModel& model, const std::string& field,
                 const core::TensorConfig& declared, const LlmTensor& known, Findings& findings) {
  if (!TypeAgrees(declared, known)) {
    findings.push_back(
        FindingAt(model.folder, field + ".data_type",
                  StrCat("tensor '", declared.name, "': expected ",
                         known.data_type[0] == '*' ? "a floating point type"
                                                   : StrCat("TYPE_", known.data_type),
                         ", got ", ConfigName(declared.data_type))));
  }
  const std::string dims = DimsText(declared.dims);
  if (dims != known.dims && dims != known.older_dims) {
    findings.push_back(
        FindingAt(model.folder, field + ".dims",
                  StrCat("tensor '", declared.name, "': expected ", known.dims, ", got ", dims)));
  }
}

void CheckTensors(const RepositoryModel& model, const char* field,
                  const std::vector<core::TensorConfig>& declared, LlmRole role,
                  std::span<const LlmTensor> known, Findings& findings) {
  for (size_t i = 0; i < declared.size(); ++i) {
    const std::string key = StrCat(field, "[", i, "]");
    const LlmTensor* tensor = FindLlmTensor(known, declared[i].name);
    if (tensor != nullptr) {
      CheckTensor(model, key, declared[i], *tensor, findings);
      continue;
    }
    const std::string meant = DidYouMean(declared[i].name, NamesOf(known));
    Finding finding = FindingAt(model.folder, key + ".name",
                                StrCat("tensor '", declared[i].name, "' is unknown to backend '",
                                       model.config->backend, "'", meant));
    // The engine refuses every other tensor, the tokenizer's models ignore them.
    finding.is_warning = meant.empty() && role != LlmRole::kEngine;
    findings.push_back(std::move(finding));
  }
}

void CheckRequiredInputs(const RepositoryModel& model, LlmRole role, Findings& findings) {
  if (model.config->inputs.empty()) return;
  for (const LlmTensor& tensor : LlmInputs(role)) {
    if (!tensor.required || model.config->FindInput(tensor.name) != nullptr) continue;
    findings.push_back(FindingAt(model.folder, "input",
                                 StrCat("input '", tensor.name, "', which backend '",
                                        model.config->backend, "' needs, is not declared")));
  }
}

// The texts are those of the load.
void CheckEngineParameters(const RepositoryModel& model, Findings& findings) {
  for (const auto& [key, value] : model.config->parameters) {
    if (value.empty() || IsUnset(value)) continue;
    const auto at = [&model, &name = key](const std::string& text) {
      return FindingAtMapEntry(model.folder, "parameters", name, text);
    };
    if (const Status status = llm::CheckEngineParameter(key, value); !status.ok()) {
      findings.push_back(at(status.message()));
    } else if (llm::FindEngineParameter(key) == nullptr) {
      findings.push_back(AsWarning(at(llm::NoteOnEngineParameter(key, value, true))));
    }
  }
}

// The text of a value that the backend refuses; empty if it takes the value.
std::string FaultOf(const LlmParameter& parameter, const std::string& value) {
  std::string expected;
  if (std::string_view(parameter.key) == "chat_parser") {
    if (value == "auto" || value == "none" || tokenizer::FindParserFamily(value) != nullptr)
      return "";
    expected = "one of: auto none";
    for (const auto* family : tokenizer::ParserFamilies()) expected += StrCat(" ", family->name);
  } else if (!llm::IsValueOf(parameter.kind, parameter.choices, value)) {
    expected = llm::ExpectedValue(parameter.kind, parameter.choices);
  }
  return expected.empty() ? "" : StrCat("expected ", expected, ", got '", value, "'");
}

void CheckTokenizerParameters(const RepositoryModel& model, LlmRole role, Findings& findings) {
  const std::span<const LlmParameter> known = TokenizerParameters();
  std::vector<std::string> names;
  for (const LlmParameter& parameter : known) names.emplace_back(parameter.key);
  for (const auto& [key, value] : model.config->parameters) {
    const auto is_key = [&key = key](const LlmParameter& parameter) {
      return key == parameter.key;
    };
    const auto parameter = std::find_if(known.begin(), known.end(), is_key);
    if (parameter == known.end()) {
      findings.push_back(AsWarning(FindingAtMapEntry(
          model.folder, "parameters", key,
          StrCat("unknown to backend '", model.config->backend, "'", DidYouMean(key, names)))));
    } else if (const std::string fault = IsUnset(value) ? "" : FaultOf(*parameter, value);
               !fault.empty()) {
      Finding finding = FindingAtMapEntry(model.folder, "parameters", key, fault);
      finding.is_warning = parameter->role != LlmRole::kNone && parameter->role != role;
      findings.push_back(std::move(finding));
    }
  }
}

void CheckPath(const RepositoryModel& model, const std::string& key, const Status& status,
               Findings& findings) {
  if (status.ok()) return;
  findings.push_back(FindingAtMapEntry(model.folder, "parameters", key, status.message()));
}

// Whether the weights are made up at load, so that the checkpoint needs only its config.json.
bool UsesDummyWeights(const core::ModelConfig& config) {
  const auto format = config.parameters.find("load_format");
  return format != config.parameters.end() && format->second == "dummy";
}

// Reads the headers of the weight files as the load does: every tensor that the architecture needs
// is there, with the right shape. The tensors of a TensorRT-LLM checkpoint are not checked, because
// joining its ranks would read all of them. `decoder` becomes the model, if it was read.
Status CheckWeights(const std::string& directory, std::optional<llm::DecoderModel>& decoder) {
  NEREID_ASSIGN_OR_RETURN(const CheckpointSummary summary, InspectWeights(directory));
  const bool is_trtllm = std::any_of(summary.files.begin(), summary.files.end(),
                                     [](auto& file) { return file == "rank0.safetensors"; });
  if (is_trtllm) return {};
  NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint, llm::Checkpoint::Open(directory));
  NEREID_ASSIGN_OR_RETURN(decoder, llm::ReadDecoder(checkpoint, /*supports_quantized=*/true));
  return {};
}

}  // namespace

std::string ValueOf(const RepositoryModel& model, std::string_view key) {
  const auto it = model.config->parameters.find(std::string(key));
  return it == model.config->parameters.end() || IsUnset(it->second) ? std::string() : it->second;
}

bool IsLlmEngine(const core::ModelConfig& config) {
  return config.backend == "tensorrtllm" || config.backend == "gpu_llm" ||
         config.backend == "cpu_reference";
}

void NameUnfilledParameters(const RepositoryModel& model, Findings& findings) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : model.config->parameters) {
    if (!value.empty() && IsUnset(value)) keys.push_back(key);
  }
  if (keys.empty()) return;
  std::string names;
  for (const std::string& key : keys) names += StrCat(names.empty() ? "" : ", ", key);
  findings.push_back(AsWarning(FindingAtMapEntry(
      model.folder, "parameters", keys.front(),
      keys.size() == 1
          ? StrCat("'", model.config->parameters.at(keys.front()),
                   "' was not filled in: it counts as unset, and the default applies")
          : StrCat(keys.size(), " placeholders were not filled in: they count as unset, and the ",
                   "defaults apply: ", names))));
}

std::string ResolvePath(const RepositoryModel& model, const std::string& key) {
  const auto it = model.config->parameters.find(key);
  if (it == model.config->parameters.end() || IsUnset(it->second)) return model.VersionFolder();
  return (fs::path(model.folder.path) / it->second).lexically_normal().string();
}

void CheckLlmModel(const RepositoryModel& model, Findings& findings) {
  const LlmRole role = RoleOf(*model.config);
  if (role == LlmRole::kNone) return;
  CheckTensors(model, "input", model.config->inputs, role, LlmInputs(role), findings);
  CheckTensors(model, "output", model.config->outputs, role, LlmOutputs(role), findings);
  CheckRequiredInputs(model, role, findings);
  NameUnfilledParameters(model, findings);
  if (role == LlmRole::kEngine) {
    CheckEngineParameters(model, findings);
    const std::string checkpoint = ResolvePath(model, "gpt_model_path");
    std::optional<llm::DecoderModel> decoder;
    CheckPath(model, "gpt_model_path",
              UsesDummyWeights(*model.config) ? Status() : CheckWeights(checkpoint, decoder),
              findings);
    CheckEngineSettings(model, decoder, findings);
  } else {
    CheckTokenizerParameters(model, role, findings);
    CheckPath(model, "tokenizer_dir", FindTokenizer(ResolvePath(model, "tokenizer_dir")).status(),
              findings);
  }
}

}  // namespace nereid::repo
