// Parses a configuration into canonical JSON: config.pbtxt in protobuf's text format, or JSON, both
// with the schema of ModelConfig. Included only by config/*.cc. [any thread]
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "host/core/config/config_error.h"
#include "host/core/config/key_index.h"
#include "host/core/config/proto_json.h"

namespace nereid::core::config {

// The message type of config.pbtxt. It is built from the embedded descriptor set in its own pool,
// so that nothing enters protobuf's global tables.
class ConfigSchema {
 public:
  // The schema of the process, built on first use.
  static const ConfigSchema& Get();

  const google::protobuf::Descriptor& model_config() const { return *model_config_; }
  // An empty ModelConfig.
  std::unique_ptr<google::protobuf::Message> NewModelConfig() const;

 private:
  ConfigSchema();

  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Descriptor* model_config_ = nullptr;
};

inline constexpr size_t kMaxConfigBytes = size_t{8} << 20;

// Errors name `file` and get positions from `index`. The result is valid only if no error was
// added.
Json ParsePbtxt(std::string_view text, const std::string& file, const KeyIndex& index,
                ConfigErrors* errors);

// `text` is a complete ModelConfig in JSON. Missing fields get their defaults.
Json ParseJson(std::string_view text, ConfigErrors* errors);

}  // namespace nereid::core::config
