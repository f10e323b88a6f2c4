#include "host/core/config/schema.h"

#include <google/protobuf/descriptor.pb.h>

#include <cstdlib>

namespace nereid::config {
namespace {

constexpr unsigned char kDescriptorSet[] = {
#include "model_config_schema.inc"
};

}  // namespace

const Schema& Schema::Get() {
  // Never destroyed: load threads may still parse while the process exits.
  static const Schema* const schema = new Schema;
  return *schema;
}

Schema::Schema() : factory_(&pool_) {
  google::protobuf::FileDescriptorSet files;
  // Bytes of our own build: a failure is a broken build, not bad input.
  if (!files.ParseFromArray(kDescriptorSet, sizeof(kDescriptorSet))) std::abort();
  for (const auto& file : files.file()) {
    if (pool_.BuildFile(file) == nullptr) std::abort();
  }
  model_config_ = pool_.FindMessageTypeByName("inference.ModelConfig");
  if (model_config_ == nullptr) std::abort();
}

std::unique_ptr<google::protobuf::Message> Schema::NewModelConfig() const {
  return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(model_config_)->New());
}

}  // namespace nereid::config
