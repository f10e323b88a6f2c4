// The message type of config.pbtxt, built from the embedded descriptor set in a pool of its own:
// nothing enters protobuf's global tables. Included by config/*.cc alone. [any thread]
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include <memory>

namespace nereid::config {

class Schema {
 public:
  // The one schema of the process, built on first use.
  static const Schema& Get();

  const google::protobuf::Descriptor& model_config() const { return *model_config_; }
  // An empty ModelConfig.
  std::unique_ptr<google::protobuf::Message> NewModelConfig() const;

 private:
  Schema();

  google::protobuf::DescriptorPool pool_;
  mutable google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Descriptor* model_config_ = nullptr;
};

}  // namespace nereid::config
