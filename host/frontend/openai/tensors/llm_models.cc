// Each loop keeps the signatures that it has used.
#include "host/frontend/openai/tensors/llm_models.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "host/frontend/http/json/json_reader.h"

namespace nereid::openai {
namespace {

using Clock = std::chrono::steady_clock;

struct CachedLlm {
  std::string metadata;
  Clock::time_point read_at;
  std::shared_ptr<const LlmSignature> signature;
};

// A model that was loaded again may have another configuration with the same tensors.
constexpr std::chrono::seconds kMaxAge(1);
constexpr size_t kMaxEntries = 256;  // models may come and go under ever new names

Result<std::string> ReadConfig(const Server& server, const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(const Message message, server.ModelConfig(model.c_str()));
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message.Json());
  return std::string(json);
}

Status NoLanguageModel(const std::string& name) {
  return NotFoundError("model '", name,
                       "' is no language model: it needs an output 'text_output' and an input "
                       "'messages' or 'text_input'");
}

Result<std::vector<std::string>> ListModels(const Server& server) {
  NEREID_ASSIGN_OR_RETURN(const Message index, server.ModelIndex(/*ready_only=*/true));
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, index.Json());
  std::vector<std::string> names;
  http::JsonReader reader(json, /*max_depth=*/8);
  NEREID_RETURN_IF_ERROR(reader.ReadArray([&]() -> Status {
    return reader.ReadObject([&](std::string_view key) -> Status {
      if (key != "name") return reader.SkipValue();
      NEREID_ASSIGN_OR_RETURN(const std::string_view name, reader.ReadString());
      names.emplace_back(name);
      return Status::Ok();
    });
  }));
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // a line for each version
  return names;
}

// The signature of the model that offers an adapter of this name, as the adapter's. Null: none.
std::shared_ptr<const LlmSignature> FindAdapter(const Server& server, const LoadedAdapters& loaded,
                                                const std::string& name) {
  struct CachedAdapter {
    Clock::time_point read_at;
    uint64_t loaded_version = 0;
    std::shared_ptr<const LlmSignature> signature;
  };
  thread_local std::unordered_map<std::string, CachedAdapter> cache;
  const Clock::time_point now = Clock::now();
  const auto cached = cache.find(name);
  const uint64_t version = loaded.version();
  if (cached != cache.end() && now - cached->second.read_at <= kMaxAge &&
      cached->second.loaded_version == version) {
    return cached->second.signature;
  }
  const Result<std::vector<std::string>> models = ListModels(server);
  if (!models.ok()) return nullptr;
  for (const std::string& model : *models) {
    const auto found = FindSignature(server, model);
    if (!found.ok() || !(*found)->is_language_model()) continue;
    std::vector<std::string> adapters = (*found)->adapters;
    loaded.Apply(model, adapters);
    if (std::find(adapters.begin(), adapters.end(), name) == adapters.end()) continue;
    auto signature = std::make_shared<LlmSignature>(**found);
    signature->name = signature->adapter = name;
    if (cache.size() > kMaxEntries) cache.clear();
    cache[name] = {now, version, signature};
    return signature;
  }
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<const LlmSignature>> FindSignature(const Server& server,
                                                          const std::string& name) {
  thread_local std::unordered_map<std::string, CachedLlm> cache;
  NEREID_ASSIGN_OR_RETURN(const Message message, server.ModelMetadata(name.c_str()));
  NEREID_ASSIGN_OR_RETURN(const std::string_view metadata, message.Json());
  if (cache.size() > kMaxEntries) cache.clear();
  CachedLlm& entry = cache[name];
  const Clock::time_point now = Clock::now();
  if (entry.signature == nullptr || entry.metadata != metadata || now - entry.read_at > kMaxAge) {
    NEREID_ASSIGN_OR_RETURN(LlmSignature signature,
                            MakeLlmSignature(metadata, [&](const std::string& model) {
                              return ReadConfig(server, model);
                            }));
    // The name under which the client knows it.
    signature.name = signature.model = name;
    entry = {std::string(metadata), now,
             std::make_shared<const LlmSignature>(std::move(signature))};
  }
  return entry.signature;
}

Result<std::shared_ptr<const LlmSignature>> FindLlm(const Server& server,
                                                    const LoadedAdapters& loaded,
                                                    const std::string& name) {
  Result<std::shared_ptr<const LlmSignature>> found = FindSignature(server, name);
  if (found.ok() && !(*found)->is_language_model()) return NoLanguageModel(name);
  if (found.ok() || found.status().code() != StatusCode::kNotFound) return found;
  if (std::shared_ptr<const LlmSignature> adapter = FindAdapter(server, loaded, name)) {
    return adapter;
  }
  return found;
}

Result<std::vector<ListedLlm>> ListLlms(const Server& server, const LoadedAdapters& loaded) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListModels(server));
  std::vector<ListedLlm> models;
  for (const std::string& name : names) {
    const auto found = FindSignature(server, name);
    if (!found.ok() || !(*found)->is_language_model()) continue;
    models.push_back({name, "", (*found)->max_model_len});
    std::vector<std::string> adapters = (*found)->adapters;
    loaded.Apply(name, adapters);
    for (const std::string& adapter : adapters) {
      if (!std::binary_search(names.begin(), names.end(), adapter)) {
        models.push_back({adapter, name, (*found)->max_model_len});
      }
    }
  }
  return models;
}

}  // namespace nereid::openai
