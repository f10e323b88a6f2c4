#include "repo_templates/tool/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/closest_name.h"
#include "base/file_content.h"
#include "base/json_reader.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The model types of the engine's architecture table; a test compares the two.
constexpr const char* kModelTypes[] = {
    "gemma2",  "gemma3",  "gemma3_text", "gpt2",  "gpt_bigcode", "gpt_neox",  "llama",
    "mistral", "mixtral", "phi3",        "qwen2", "qwen3",       "qwen3_moe", "starcoder2"};

// The quantization methods that the engine reads; it checks the details at load.
constexpr std::string_view kQuantMethods[] = {"awq", "gptq",       "compressed-tensors",
                                              "fp8", "fbgemm_fp8", "modelopt"};

// The file names that the tokenizer tries in this order, before a file that ends in .tiktoken.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "spiece.model",
                                           "tekken.json", "tiktoken.model"};

// Optional files beside weights and tokenizer.
constexpr const char* kOptionalFiles[] = {"generation_config.json",  "tokenizer_config.json",
                                          "special_tokens_map.json", "added_tokens.json",
                                          "chat_template.jinja",     "chat_template.json"};

constexpr const char* kSamplingDefaults[] = {"temperature", "top_k", "top_p", "min_p",
                                             "repetition_penalty"};

std::string PathOf(const std::string& directory, const std::string& file) {
  return (fs::path(directory) / file).string();
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<Json> ReadJsonFile(const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextFileBytes));
  return ReadJsonObject<Json>(text, StrCat("'", path, "'"));
}

int64_t IntOr(const Json& json, const char* key, int64_t fallback) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number_integer() ? it->get<int64_t>() : fallback;
}

std::string TextOr(const Json& json, const char* key, const std::string& fallback) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : fallback;
}

constexpr const char* kQuantKeys[] = {"quantization_config", "compression_config", "quantization"};

// The method of a quantized checkpoint; empty for any other.
std::string QuantMethod(const Json& config) {
  for (const char* key : kQuantKeys) {
    if (config.contains(key))
      return TextOr(config[key], "quant_method", TextOr(config[key], "quant_algo", key));
  }
  return "";
}

Status CheckModelType(const std::string& path, const Json& config) {
  const std::string model_type = TextOr(config, "model_type", "");
  const std::vector<std::string> known = SupportedModelTypes();
  for (const char* key : kQuantKeys) {
    if (!config.contains(key)) continue;
    const std::string method = TextOr(config[key], "quant_method", "");
    if (std::find(std::begin(kQuantMethods), std::end(kQuantMethods), method) ==
        std::end(kQuantMethods)) {
      return UnsupportedError("'", path, "': '", key, "': quantisation '", method,
                              "' is not supported; give awq, gptq, compressed-tensors or fp8, or "
                              "a checkpoint in F32, F16 or BF16");
    }
  }
  if (std::find(known.begin(), known.end(), model_type) != known.end()) return {};
  std::string list;
  for (const std::string& name : known) list += StrCat(list.empty() ? "" : ", ", name);
  return UnsupportedError("'", path, "': model_type '", model_type, "' is not supported",
                          DidYouMean(model_type, known), "; known: ", list);
}

// The name in config.json; a TensorRT-LLM checkpoint has a single `architecture`.
std::string Architecture(const Json& config) {
  const auto it = config.find("architectures");
  if (it != config.end() && it->is_array() && !it->empty() && it->front().is_string()) {
    return it->front().get<std::string>();
  }
  return TextOr(config, "architecture", TextOr(config, "model_type", ""));
}

// What the headers of the weight files declare.
struct WeightTotals {
  uint64_t num_elements = 0;
  std::map<std::string, uint64_t> bytes_by_type;
};

// Sizes beyond 2^62 are claims of a damaged file; they only spoil the totals, which are shown.
void AddTensor(const Json& tensor, uint64_t size_bytes, WeightTotals& totals) {
  totals.bytes_by_type[TextOr(tensor, "dtype", "")] += size_bytes;
  const auto shape = tensor.find("shape");
  if (shape == tensor.end() || !shape->is_array()) return;
  uint64_t num_elements = 1;
  for (const Json& extent : *shape) {
    num_elements *= extent.is_number_unsigned() ? extent.get<uint64_t>() : 0;
  }
  totals.num_elements += num_elements;
}

// The end of the last tensor in bytes, from the header of a safetensors file.
Result<uint64_t> DeclaredBytes(const std::string& path, uint64_t size, WeightTotals& totals) {
  constexpr size_t kPrefix = 8;
  constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the loader
  NEREID_ASSIGN_OR_RETURN(const std::string prefix, ReadFileBeginning(path, kPrefix));
  if (size < kPrefix || prefix.size() < kPrefix) {
    return InvalidArgError("'", path, "': expected a safetensors file, got ", size, " bytes");
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(prefix[i]);
  }
  if (header_bytes > size - kPrefix) {
    return InvalidArgError("'", path, "': is cut off: header of ", header_bytes, " bytes in ",
                           size);
  }
  if (header_bytes > kMaxHeaderBytes) {
    return InvalidArgError("'", path, "': header of ", header_bytes, " bytes, limit ",
                           kMaxHeaderBytes);
  }
  NEREID_ASSIGN_OR_RETURN(const std::string text, ReadFileBeginning(path, kPrefix + header_bytes));
  NEREID_ASSIGN_OR_RETURN(
      const Json header,
      ReadJsonObject<Json>(std::string_view(text).substr(kPrefix), StrCat("'", path, "': header"),
                           {.max_bytes = kMaxHeaderBytes}));
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = tensor.find("data_offsets");
    if (offsets == tensor.end() || !offsets->is_array() || offsets->size() != 2 ||
        !offsets->at(0).is_number_unsigned() || !offsets->at(1).is_number_unsigned()) {
      return InvalidArgError("'", path, "': tensor '", name, "' has no data_offsets");
    }
    end = std::max(end, offsets->at(1).get<uint64_t>());
    AddTensor(tensor, offsets->at(1).get<uint64_t>() - offsets->at(0).get<uint64_t>(), totals);
  }
  return kPrefix + header_bytes + end;
}

Status CheckWeightFile(const std::string& path, WeightTotals& totals) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return NotFoundError("'", path, "': cannot be opened");
  NEREID_ASSIGN_OR_RETURN(const uint64_t declared, DeclaredBytes(path, size, totals));
  if (declared <= size) return {};
  return InvalidArgError("'", path, "': is cut off: its header declares ", declared,
                         " bytes, the file has ", size);
}

// A file of `directory` with one of these endings; empty if there is none.
std::string FileThatEndsIn(const std::string& directory,
                           std::initializer_list<std::string_view> endings) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string extension = entry.path().extension().string();
    if (std::find(endings.begin(), endings.end(), extension) != endings.end()) {
      return entry.path().filename().string();
    }
  }
  return "";
}

// "; found: config.json, README.md, ...", for a folder that lacks what it needs.
std::string FoundIn(const std::string& directory) {
  constexpr size_t kMaxShown = 8;
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(".")) names.insert(std::move(name));
  }
  if (names.empty()) return "; the folder is empty";
  std::string text;
  size_t num_shown = 0;
  for (const std::string& name : names) {
    if (++num_shown > kMaxShown) break;
    text += StrCat(text.empty() ? "; found: " : ", ", name);
  }
  if (names.size() > kMaxShown) text += StrCat(" and ", names.size() - kMaxShown, " more");
  return text;
}

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirstRank = "rank0.safetensors";  // of a TensorRT-LLM checkpoint

bool HasOneOf(const std::string& directory, std::initializer_list<const char*> files) {
  return std::any_of(files.begin(), files.end(),
                     [&](const char* file) { return IsFile(PathOf(directory, file)); });
}

Result<std::map<std::string, std::string>> ReadSamplingDefaults(const std::string& directory) {
  std::map<std::string, std::string> defaults;
  const std::string path = PathOf(directory, "generation_config.json");
  if (!IsFile(path)) return defaults;
  NEREID_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path));
  for (const char* key : kSamplingDefaults) {
    const auto value = config.find(key);
    if (value != config.end() && value->is_number()) defaults[key] = ShowJson(*value);
  }
  return defaults;
}

// A TensorRT-LLM checkpoint has one file for each rank.
std::vector<std::string> RankFiles(const Json& config) {
  const Json mapping = config.value("mapping", Json::object());
  const auto size_of = [&](const char* key) {
    return std::clamp<int64_t>(IntOr(mapping, key, 1), 1, 64);
  };
  const int64_t num_ranks = size_of("tp_size") * size_of("pp_size");
  std::vector<std::string> files;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    files.push_back(StrCat("rank", rank, ".safetensors"));
  }
  return files;
}

// The index and the shards that it lists, or model.safetensors alone.
Result<std::vector<std::string>> WeightFiles(const std::string& directory) {
  const std::string index_name = kIndex;
  const std::string index_path = PathOf(directory, index_name);
  if (!IsFile(index_path)) {
    if (IsFile(PathOf(directory, kWeights))) return std::vector<std::string>{kWeights};
    return NotFoundError("'", directory, "': has neither model.safetensors nor ", index_name,
                         IsFile(PathOf(directory, "pytorch_model.bin"))
                             ? " (pytorch_model.bin is not read: save it as safetensors)"
                             : FoundIn(directory));
  }
  NEREID_ASSIGN_OR_RETURN(const Json index, ReadJsonFile(index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return InvalidArgError("'", index_path, "': has no weight_map");
  }
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return InvalidArgError("'", index_path, "': weight_map['", tensor, "']");
    shards.insert(file.get<std::string>());
  }
  std::vector<std::string> files{index_name};
  files.insert(files.end(), shards.begin(), shards.end());
  return files;
}

void SummarizeWeights(const Json& config, const WeightTotals& totals, CheckpointSummary& summary) {
  uint64_t most = 0;
  for (const auto& [type, bytes] : totals.bytes_by_type) {
    summary.weight_bytes += bytes;
    if (bytes > most) summary.data_type = type;
    most = std::max(most, bytes);
  }
  const std::string method = QuantMethod(config);
  if (method.empty()) {
    summary.num_parameters = totals.num_elements;
  } else {
    summary.data_type = method;
  }
}

// Whether the tokenizer will find a template, as ChatTemplate::Load looks for it. An unreadable
// file is reported when the model is loaded.
bool HasChatTemplate(const std::string& directory) {
  if (HasOneOf(directory, {"chat_template.jinja", "chat_template.json"})) return true;
  const Result<Json> config = ReadJsonFile(PathOf(directory, "tokenizer_config.json"));
  return config.ok() && config->contains("chat_template") && !(*config)["chat_template"].is_null();
}

}  // namespace

std::span<const char* const> SamplingDefaultKeys() {
  return kSamplingDefaults;
}

std::vector<std::string> SupportedModelTypes() {
  return {std::begin(kModelTypes), std::end(kModelTypes)};
}

Result<CheckpointSummary> InspectWeights(const std::string& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    return NotFoundError("'", directory, "': no such checkpoint directory");
  }
  const bool is_hugging_face = HasOneOf(directory, {kWeights, kIndex});
  const bool is_trtllm = !is_hugging_face && HasOneOf(directory, {kFirstRank});
  const std::string engine = FileThatEndsIn(directory, {".engine", ".plan"});
  if (!is_hugging_face && !is_trtllm && !engine.empty()) {
    return UnsupportedError("'", directory, "': holds a TensorRT engine ('", engine,
                            "'), which only TensorRT runs; give the Hugging Face checkpoint "
                            "directory (config.json and *.safetensors) it was built from");
  }
  CheckpointSummary summary;
  summary.directory = fs::canonical(directory, ignored).string();
  const std::string config_path = PathOf(directory, "config.json");
  if (!IsFile(config_path)) {
    return NotFoundError("'", config_path, "': is missing", FoundIn(directory));
  }
  NEREID_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(config_path));
  if (!is_trtllm) NEREID_RETURN_IF_ERROR(CheckModelType(config_path, config));
  summary.architecture = Architecture(config);
  // For a multimodal model, the values of its text model.
  const auto nested = config.find("text_config");
  const Json& text = nested != config.end() && nested->is_object() ? *nested : config;
  summary.context_length = IntOr(text, "max_position_embeddings", IntOr(text, "n_positions", 0));
  summary.vocabulary_size = IntOr(text, "vocab_size", 0);
  summary.files.push_back("config.json");
  for (const char* file : kOptionalFiles) {
    if (IsFile(PathOf(directory, file))) summary.files.push_back(file);
  }
  NEREID_ASSIGN_OR_RETURN(summary.sampling_defaults, ReadSamplingDefaults(directory));
  std::vector<std::string> weights = RankFiles(config);
  if (!is_trtllm) {
    NEREID_ASSIGN_OR_RETURN(weights, WeightFiles(directory));
  }
  WeightTotals totals;
  for (const std::string& file : weights) {
    if (!file.ends_with(".json")) {
      NEREID_RETURN_IF_ERROR(CheckWeightFile(PathOf(directory, file), totals));
    }
    summary.files.push_back(file);
  }
  SummarizeWeights(config, totals, summary);
  summary.has_chat_template = HasChatTemplate(directory);
  return summary;
}

Result<std::string> FindTokenizer(const std::string& directory) {
  if (IsFile(directory)) return fs::path(directory).filename().string();
  for (const char* file : kTokenizerFiles) {
    if (IsFile(PathOf(directory, file))) return std::string(file);
  }
  const std::string ranks = FileThatEndsIn(directory, {".tiktoken"});
  if (!ranks.empty()) return ranks;
  return NotFoundError("'", directory,
                       "': has neither tokenizer.json nor tokenizer.model, spiece.model, "
                       "tekken.json, tiktoken.model or a .tiktoken file");
}

Result<CheckpointSummary> InspectCheckpoint(const std::string& directory,
                                            const std::string& tokenizer) {
  NEREID_ASSIGN_OR_RETURN(CheckpointSummary summary, InspectWeights(directory));
  if (!tokenizer.empty()) {
    NEREID_ASSIGN_OR_RETURN(summary.tokenizer_file, FindTokenizer(tokenizer));
    return summary;
  }
  NEREID_ASSIGN_OR_RETURN(summary.tokenizer_file, FindTokenizer(directory));
  summary.files.push_back(summary.tokenizer_file);
  return summary;
}

}  // namespace nereid::repo
