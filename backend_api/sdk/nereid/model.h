/// \file
/// The classes that a backend derives from. There is one Model object for each loaded version of a
/// model. Its Execute serves all instances, unless the backend has a ModelInstance class too.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "nereid/batch.h"
#include "nereid/model_context.h"
#include "nereid/status.h"

namespace nereid {

class Model {
 public:
  virtual ~Model() = default;

  /// Adds to the configuration what config.pbtxt leaves out. The SDK calls it before Initialize,
  /// and only if the host allows it. An error fails the load. [load thread]
  virtual Status AutoComplete([[maybe_unused]] ConfigDraft& draft) { return {}; }
  /// Reads weights, starts threads. An error fails the load and becomes the reason of the model's
  /// state; the object is then destroyed without Finalize. [load thread]
  virtual Status Initialize() { return {}; }
  /// Answers the requests, or takes them to answer later (Batch::Take). An error is sent to every
  /// request that is still open. [instance thread; concurrently if the model has several instances,
  /// but never twice at once for the same instance]
  virtual Status Execute([[maybe_unused]] Batch& batch) {
    return UnsupportedError("model '", name(), "': its backend implements no Execute");
  }
  /// Whether the model can serve now. Readiness queries call it, concurrently with Execute. [any
  /// thread]
  virtual Status Ready() { return {}; }
  /// Stops threads. Called after the last request was released. [unload thread]
  virtual void Finalize() {}

  const ModelContext& context() const { return *context_; }
  const std::string& name() const { return context().name(); }
  const ModelConfig& config() const { return context().config(); }
  const ConfigParameters& parameters() const { return context().parameters(); }

  /// For the SDK: sets the context, which the constructor does not have, and runs the steps of a
  /// load.
  void Bind(ModelContext context) { context_.emplace(std::move(context)); }
  Status Load() {
    NEREID_ASSIGN_OR_RETURN(const bool may_complete, context_->MayAutoComplete());
    if (may_complete) NEREID_RETURN_IF_ERROR(Complete());
    return Initialize();
  }

 protected:
  /// Changes the configuration during Initialize; AutoComplete is the usual place.
  Status SetConfig(const Json& config) { return context_->SetConfig(config); }

 private:
  Status Complete() {
    ConfigDraft draft(config().json());
    NEREID_RETURN_IF_ERROR(AutoComplete(draft));
    if (draft.json().Dump() == config().json().Dump()) return {};
    return context_->SetConfig(draft.json());
  }

  std::optional<ModelContext> context_;  ///< set before AutoComplete
};

/// The part of an instance that the SDK uses; backends derive from ModelInstance below.
class InstanceBase {
 public:
  virtual ~InstanceBase() = default;

  /// Like the functions of Model, for this instance. The model is initialised before its instances.
  virtual Status Initialize() { return {}; }
  virtual Status Execute(Batch& batch) = 0;
  virtual Status Ready() { return {}; }
  virtual void Finalize() {}

  const InstanceContext& context() const { return *context_; }
  const std::string& name() const { return context().name(); }

  /// For the SDK. `model` outlives the instance.
  void Bind(InstanceContext context, Model& model) {
    context_.emplace(std::move(context));
    model_ = &model;
  }

 protected:
  Model& base_model() const { return *model_; }

 private:
  std::optional<InstanceContext> context_;
  Model* model_ = nullptr;
};

/// One object for each instance of `instance_group`, for state that instances must not share. One
/// thread at a time uses it.
template <typename ModelT>
class ModelInstance : public InstanceBase {
 public:
  ModelT& model() const { return static_cast<ModelT&>(base_model()); }
};

/// The instance class of a backend that has none of its own.
template <typename ModelT>
class DefaultInstance final : public ModelInstance<ModelT> {
 public:
  Status Execute(Batch& batch) override { return this->model().Execute(batch); }
  Status Ready() override { return this->model().Ready(); }
};

}  // namespace nereid
