#include "host/core/model/instance_specs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/concat.h"

namespace nereid::core {
namespace {

TRITONSERVER_InstanceGroupKind ToKind(InstanceGroup::Kind kind) {
  switch (kind) {
    case InstanceGroup::Kind::kGpu:
      return TRITONSERVER_INSTANCEGROUPKIND_GPU;
    case InstanceGroup::Kind::kModel:
      return TRITONSERVER_INSTANCEGROUPKIND_MODEL;
    default:
      return TRITONSERVER_INSTANCEGROUPKIND_CPU;
  }
}

std::string PolicyName(const InstanceGroup& group, int32_t device_id) {
  if (!group.host_policy.empty()) return group.host_policy;
  if (group.kind == InstanceGroup::Kind::kGpu) return StrCat("gpu_", device_id);
  return group.kind == InstanceGroup::Kind::kModel ? "model" : "cpu";
}

std::string PolicyJson(const std::string& name, const HostPolicies& policies) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  if (const auto it = policies.find(name); it != policies.end()) {
    for (const auto& [key, value] : it->second) settings[key] = value;
  }
  return nlohmann::ordered_json{{name, std::move(settings)}}.dump();
}

// Ensembles have no instance groups, but an instance must still execute their requests.
InstanceGroup DefaultGroup(const ModelConfig& config) {
  InstanceGroup group;
  group.name = config.name;
  group.kind = InstanceGroup::Kind::kCpu;
  group.count = 1;
  return group;
}

}  // namespace

Result<std::vector<InstanceSpec>> MakeInstanceSpecs(const ModelConfig& config,
                                                    const HostPolicies& policies) {
  std::vector<InstanceSpec> specs;
  std::vector<InstanceGroup> groups = config.instance_groups;
  if (groups.empty()) groups.push_back(DefaultGroup(config));
  for (size_t index = 0; index < groups.size(); ++index) {
    const InstanceGroup& group = groups[index];
    const bool on_gpu = group.kind == InstanceGroup::Kind::kGpu;
    const std::vector<int32_t> devices = on_gpu ? group.gpus : std::vector<int32_t>{0};
    for (int32_t i = 0; i < group.count; ++i) {
      for (const int32_t device_id : devices) {
        InstanceSpec spec;
        spec.name = Concat(group.name, "_", i);
        spec.group = index;
        spec.kind = ToKind(group.kind);
        spec.device_id = device_id;
        spec.passive = group.passive;
        spec.profiles = group.profiles;
        for (const auto& device : group.secondary_devices) {
          spec.secondary_devices.emplace_back(device.kind, device.device_id);
        }
        spec.host_policy_name = PolicyName(group, device_id);
        spec.host_policy_json = PolicyJson(spec.host_policy_name, policies);
        if (const auto it = policies.find(spec.host_policy_name); it != policies.end()) {
          NEREID_ASSIGN_OR_RETURN(spec.binding, ReadHostBinding(it->first, it->second));
        }
        specs.push_back(std::move(spec));
      }
    }
  }
  if (std::all_of(specs.begin(), specs.end(), [](const auto& spec) { return spec.passive; })) {
    return InvalidArgError("model '", config.name,
                           "' has only passive instances, which execute no requests");
  }
  return specs;
}

}  // namespace nereid::core
