// Loads the models that the repository asks for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/core/model/core_services.h"
#include "host/core/model/model.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/status.h"

namespace nereid::core {

// Connects repository/ and model/, which do not know each other. Both arguments outlive it. [load
// threads]
class CoreModelLoader final : public ModelLoader {
 public:
  CoreModelLoader(CoreServices* services, const ModelTable* models)
      : services_(services), models_(models) {}

  Result<std::shared_ptr<Model>> Load(ModelLoadRequest request) override {
    ModelLoadSpec spec;
    spec.model_dir = std::move(request.model_path);
    spec.version = request.version;
    spec.name_space = NamespaceOf(request.name);
    spec.config = std::move(request.config);
    spec.on_destroyed = [lifetime = std::move(request.lifetime)]() mutable { lifetime.reset(); };
    spec.step_labels = [this](const EnsembleStep& step, const std::string& output) {
      return LabelsOfStep(step, output);
    };
    return Model::Load(std::move(spec), *services_);
  }

  Status UpdateInstances(Model* model, const ModelConfig& config) override {
    return model->UpdateInstances(config);
  }

 private:
  std::vector<std::string> LabelsOfStep(const EnsembleStep& step, const std::string& output) const {
    const std::string& space = step.model_namespace;
    const auto model =
        models_->Find(space.empty() ? step.model_name : QualifiedName(space, step.model_name),
                      step.model_version);
    if (!model.ok()) return {};
    const RequestSchema& schema = (*model)->schema();
    const int index = schema.FindOutput(output);
    if (index < 0) return {};
    return schema.outputs[static_cast<size_t>(index)].labels;
  }

  CoreServices* const services_;
  const ModelTable* const models_;
};

}  // namespace nereid::core
