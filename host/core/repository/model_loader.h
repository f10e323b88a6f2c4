// The seam between which models there should be (repository/) and what a model is (model/): the
// lifecycle asks a loader for models and knows nothing of backends. server.cc implements it with
// model/, tests with fakes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid {

class Model;  // model/model.h

struct ModelLoadRequest {
  std::string name;
  int64_t version = 0;
  std::string
      model_path;      // folder of config.pbtxt; the version's files are in <model_path>/<version>
  ModelConfig config;  // from ReadModelConfig
  // The model keeps it and drops it when nothing of it is left: instances and model finalised,
  // memory given back. Also dropped when loading fails. That is how the lifecycle learns that an
  // unload is complete.
  std::shared_ptr<void> lifetime;
};

class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // Blocks until the model can execute. [a load thread; several at once]
  virtual Result<std::shared_ptr<Model>> Load(ModelLoadRequest request) = 0;
  // Gives a model that serves the instances of `config`; on error it serves on as it was. [a load
  // thread; one at a time for a model]
  virtual Status UpdateInstances(Model* model, const ModelConfig& config) = 0;
};

}  // namespace nereid
