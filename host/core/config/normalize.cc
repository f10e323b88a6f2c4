#include "host/core/config/normalize.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "base/concat.h"

namespace nereid::core::config {
namespace {

// Backends that Triton also recognizes by platform or model file.
struct KnownBackend {
  const char* backend;
  const char* platform;  // nullptr if it has none
  const char* filename;  // default_model_filename
};
constexpr std::array<KnownBackend, 7> kKnownBackends = {{
    {"tensorrt", "tensorrt_plan", "model.plan"},
    {"onnxruntime", "onnxruntime_onnx", "model.onnx"},
    {"pytorch", "pytorch_libtorch", "model.pt"},
    {"tensorflow", "tensorflow_savedmodel", "model.savedmodel"},
    {"tensorflow", "tensorflow_graphdef", "model.graphdef"},
    {"openvino", nullptr, "model.xml"},
    {"python", nullptr, "model.py"},
}};

const std::string& Text(const Json& config, const char* key) {
  return config.at(key).get_ref<const std::string&>();
}

bool Empty(const Json& config, const char* key) {
  return Text(config, key).empty();
}

// Determines the backend of a model that sets none: from a known file in a version folder,
// otherwise from a model name of the form "<name>.<backend>".
void GuessBackend(const ConfigSource& source, Json* config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::directory_iterator it(source.path, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    for (const KnownBackend& known : kKnownBackends) {
      if (!fs::exists(it->path() / known.filename, ignored)) continue;
      (*config)["backend"] = known.backend;
      if (known.platform != nullptr) (*config)["platform"] = known.platform;
      return;
    }
  }
  const size_t dot = source.name.find('.');
  if (dot == std::string::npos || dot + 1 == source.name.size()) return;
  if (!Empty(*config, "default_model_filename")) return;
  const std::string backend = source.name.substr(dot + 1);
  (*config)["backend"] = backend;
  (*config)["default_model_filename"] = "model." + backend;
}

void NormalizeBackend(const ConfigSource& source, Json* config) {
  if (Text(*config, "platform") == "ensemble" || config->contains("ensemble_scheduling")) return;
  if (Empty(*config, "backend") && Empty(*config, "platform") && Empty(*config, "runtime")) {
    GuessBackend(source, config);
  }
  auto& backend = config->at("backend").get_ref<std::string&>();
  auto& platform = config->at("platform").get_ref<std::string&>();
  for (const KnownBackend& known : kKnownBackends) {
    const bool same_platform = known.platform != nullptr && platform == known.platform;
    if (backend.empty() && same_platform) backend = known.backend;
    if (backend != known.backend) continue;
    if (known.platform != nullptr && platform.empty()) platform = known.platform;
    if (known.platform != nullptr && platform != known.platform) continue;
    if (Empty(*config, "default_model_filename")) {
      (*config)["default_model_filename"] = known.filename;
    }
    return;
  }
}

void NormalizeOptimization(Json* config) {
  Json& optimization = (*config)["optimization"];
  if (optimization.is_null()) {
    optimization["priority"] = "PRIORITY_DEFAULT";
    optimization["gather_kernel_buffer_threshold"] = 0;
    optimization["eager_batching"] = false;
  }
  for (const char* pinned : {"input_pinned_memory", "output_pinned_memory"}) {
    if (!optimization.contains(pinned)) optimization[pinned]["enable"] = true;
  }
}

Json NewGroup(const std::string& name, const char* kind, int32_t count) {
  return {{"name", name},
          {"kind", kind},
          {"count", count},
          {"gpus", Json::array()},
          {"secondary_devices", Json::array()},
          {"profile", Json::array()},
          {"passive", false},
          {"host_policy", ""}};
}

const char* KindName(InstanceGroup::Kind kind) {
  switch (kind) {
    case InstanceGroup::Kind::kGpu:
      return "KIND_GPU";
    case InstanceGroup::Kind::kCpu:
      return "KIND_CPU";
    case InstanceGroup::Kind::kModel:
      return "KIND_MODEL";
    case InstanceGroup::Kind::kAuto:
      break;
  }
  return "KIND_AUTO";
}

// The first preferred group that applies. A preference for GPUs applies only if there is a GPU.
const PreferredGroup* Choose(const InstanceDefaults& defaults) {
  for (const PreferredGroup& group : defaults.preferred_groups) {
    if (group.kind != InstanceGroup::Kind::kGpu || !defaults.gpus.empty()) return &group;
  }
  return nullptr;
}

// The number of instances if neither the group nor the backend sets it. As in Triton, these
// backends get two instances on the CPU.
int32_t DefaultCount(const std::string& kind, const std::string& backend) {
  const bool is_one_of_two = backend == "onnxruntime" || backend == "tensorflow";
  return kind == "KIND_CPU" && is_one_of_two ? 2 : 1;
}

void NormalizeGroup(const InstanceDefaults& defaults, const std::string& default_name,
                    const std::string& backend, Json* group) {
  if (Empty(*group, "name")) (*group)["name"] = default_name;
  const PreferredGroup* preferred = Choose(defaults);
  if (group->at("kind") == "KIND_AUTO") {
    const bool is_gpu_requested = !group->at("gpus").empty() || !group->at("profile").empty();
    if (is_gpu_requested) {
      (*group)["kind"] = "KIND_GPU";
    } else if (preferred != nullptr && preferred->kind != InstanceGroup::Kind::kAuto) {
      (*group)["kind"] = KindName(preferred->kind);
    } else {
      (*group)["kind"] = defaults.gpus.empty() ? "KIND_CPU" : "KIND_GPU";
    }
  }
  if (group->at("count").get<int32_t>() < 1) {
    const std::string& kind = Text(*group, "kind");
    const bool is_preferred =
        preferred != nullptr && preferred->count > 0 &&
        (preferred->kind == InstanceGroup::Kind::kAuto || kind == KindName(preferred->kind));
    (*group)["count"] = is_preferred ? preferred->count : DefaultCount(kind, backend);
  }
  if (group->at("kind") == "KIND_GPU" && group->at("gpus").empty()) {
    (*group)["gpus"] =
        preferred != nullptr && !preferred->devices.empty() ? preferred->devices : defaults.gpus;
  }
}

}  // namespace

void NormalizeFields(const ConfigSource& source, Json* config) {
  if (Empty(*config, "name")) (*config)["name"] = source.name;
  if (!config->contains("version_policy")) {
    (*config)["version_policy"]["latest"]["num_versions"] = 1;
  }
  NormalizeBackend(source, config);
  if (Text(*config, "platform") == "ensemble") {
    // Always present, so that the ensemble backend can set it if a step is decoupled.
    if (!config->contains("model_transaction_policy")) {
      (*config)["model_transaction_policy"] = {{"decoupled", false}};
    }
    return;
  }
  NormalizeOptimization(config);
  NormalizeBatching(config);
}

std::vector<size_t> RepeatedOutputs(const Json& config) {
  std::vector<size_t> repeated;
  std::set<std::string> names;
  size_t index = 0;
  for (const Json& output : config.value("output", Json::array())) {
    const std::string name = output.value("name", "");
    if (!name.empty() && !names.insert(name).second) repeated.push_back(index);
    ++index;
  }
  return repeated;
}

void NormalizeBatching(Json* config) {
  const auto max_batch_size = config->at("max_batch_size").get<int32_t>();
  if (const auto it = config->find("dynamic_batching"); it != config->end()) {
    Json& preferred = it->at("preferred_batch_size");
    if (preferred.empty() && max_batch_size > 0) preferred = Json::array({max_batch_size});
  }
  if (const auto it = config->find("sequence_batching"); it != config->end()) {
    constexpr uint64_t kDefaultIdleUs = 1000 * 1000;
    if (it->at("max_sequence_idle_microseconds") == 0) {
      (*it)["max_sequence_idle_microseconds"] = kDefaultIdleUs;
    }
    if (const auto oldest = it->find("oldest"); oldest != it->end()) {
      Json& preferred = oldest->at("preferred_batch_size");
      if (preferred.empty() && max_batch_size > 0) preferred = Json::array({max_batch_size});
    }
  }
}

void NormalizeInstanceGroups(const InstanceDefaults& defaults, Json* config) {
  if (Text(*config, "platform") == "ensemble") return;
  const auto name = config->at("name").get<std::string>();
  Json& groups = config->at("instance_group");
  if (groups.empty()) {
    // Like Triton, the added group is named after the model, without an index.
    groups.push_back(NewGroup(name, "KIND_AUTO", 0));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    NormalizeGroup(defaults, Concat(name, "_", i), Text(*config, "backend"), &groups[i]);
  }
}

}  // namespace nereid::core::config
