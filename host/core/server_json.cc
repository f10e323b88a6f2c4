// The JSON answers of the server.
#include <nlohmann/json.hpp>

#include "host/core/model/model.h"
#include "host/core/repository/model_repository.h"
#include "host/core/server.h"

namespace nereid::core {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json TensorsJson(const std::vector<TensorConfig>& tensors, bool batched) {
  Json array = Json::array();
  for (const TensorConfig& tensor : tensors) {
    Json shape = Json::array();
    if (batched) shape.push_back(-1);
    for (const int64_t dim : tensor.dims) shape.push_back(dim);
    array.push_back(
        {{"name", tensor.name}, {"datatype", Name(tensor.data_type)}, {"shape", std::move(shape)}});
  }
  return array;
}

}  // namespace

std::string Server::MetadataJson() const {
  return Dump({{"name", options_.server_id},
               {"version", kServerVersion},
               {"extensions", kServerExtensions},
               {"nereid_version", NEREID_VERSION}});
}

Result<std::string> Server::ModelMetadataJson(const std::string& name, int64_t version) const {
  NEREID_ASSIGN_OR_RETURN(const auto model, models_.Find(name, version));
  NEREID_ASSIGN_OR_RETURN(auto versions, models_.Versions(name));
  if (version >= 0) versions.assign({version});  // only the requested version
  const ModelConfig& config = model->config();
  Json json = {{"name", config.name}, {"versions", Json::array()}};
  for (const int64_t serving : versions) json["versions"].push_back(std::to_string(serving));
  json["platform"] = config.platform.empty() ? config.backend : config.platform;
  json["inputs"] = TensorsJson(config.inputs, config.max_batch_size > 0);
  json["outputs"] = TensorsJson(config.outputs, config.max_batch_size > 0);
  return Dump(json);
}

Result<std::string> Server::ModelConfigJson(const std::string& name, int64_t version) const {
  NEREID_ASSIGN_OR_RETURN(const auto model, models_.Find(name, version));
  return model->ConfigJson();
}

Result<std::string> Server::StatisticsJson(const std::string& name, int64_t version) const {
  std::string elements;
  std::vector<std::shared_ptr<Model>> models;
  if (name.empty()) {
    models = models_.All();
  } else if (auto serving = models_.Serving(name); serving.ok()) {
    models = std::move(serving).value();
  } else if (serving.status().code() != StatusCode::kNotFound) {
    return std::move(serving).status();
  }
  for (const auto& model : models) {
    // As in Triton, a version without a model name is ignored.
    if (!name.empty() && version != ModelTable::kLatest && model->version() != version) continue;
    if (!elements.empty()) elements += ",";
    elements += model->StatisticsJson();
  }
  if (!name.empty() && elements.empty()) {
    if (models.empty()) {
      return NotFoundError("requested model '", name, "' is not available");
    }
    return NotFoundError("requested model version is not available for model '", name, "'");
  }
  return StrCat("{\"model_stats\":[", elements, "]}");
}

std::string Server::IndexJson(bool ready_only) const {
  Json index = Json::array();
  for (const IndexEntry& entry : repository_->Index(ready_only)) {
    Json json = {{"name", entry.name}};
    const bool has_version = entry.version != IndexEntry::kNoVersion;
    if (has_version) json["version"] = std::to_string(entry.version);
    if (has_version || !entry.status.reason.empty()) {
      json["state"] = ModelStateName(entry.status.state);
    }
    if (!entry.status.reason.empty()) json["reason"] = entry.status.reason;
    index.push_back(std::move(json));
  }
  return Dump(index);
}

}  // namespace nereid::core
