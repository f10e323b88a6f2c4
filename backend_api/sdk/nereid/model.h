// The classes that an author derives from. One Model object lives for each loaded version of a
// model; its Execute serves all instances unless the backend brings a ModelInstance class too.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "nereid/batch.h"
#include "nereid/model_context.h"
#include "nereid/status.h"

namespace nereid {
inline namespace sdk {

class Model {
 public:
  virtual ~Model() = default;

  // Fills in what config.pbtxt left out. Called before Initialize, only where the host allows it.
  // An error fails the load. [load thread]
  virtual Status AutoComplete(ConfigDraft& draft) { return {}; }
  // Reads weights, starts threads. An error fails the load, and its text becomes the model's state
  // reason; the object is then destroyed without Finalize. [load thread]
  virtual Status Initialize() { return {}; }
  // Answers the requests, or takes them to answer later (Batch::Take). An error answers every
  // request that is still open. [instance thread: concurrently where the model has several
  // instances, never twice for the same one]
  virtual Status Execute(Batch& batch) {
    return UnsupportedError("model '", name(), "': its backend implements no Execute");
  }
  // Whether it can serve right now; asked by readiness queries, beside Execute. [any thread]
  virtual Status Ready() { return {}; }
  // After the last request was released; stops threads. [unload thread]
  virtual void Finalize() {}

  const ModelContext& context() const { return *context_; }
  const std::string& name() const { return context().name(); }
  const ModelConfig& config() const { return context().config(); }
  const ConfigParameters& parameters() const { return context().parameters(); }

  // For the SDK: what the constructor cannot know yet, and the steps of a load.
  void Bind(ModelContext context) { context_.emplace(std::move(context)); }
  Status Load() {
    NEREID_ASSIGN_OR_RETURN(const bool may_complete, context_->MayComplete());
    if (may_complete) NEREID_RETURN_IF_ERROR(Complete());
    return Initialize();
  }

 protected:
  // Changes the configuration from within Initialize; AutoComplete is the usual place.
  Status SetConfig(const Json& config) { return context_->SetConfig(config); }

 private:
  Status Complete() {
    ConfigDraft draft(config().json());
    NEREID_RETURN_IF_ERROR(AutoComplete(draft));
    if (draft.json().Dump() == config().json().Dump()) return {};
    return context_->SetConfig(draft.json());
  }

  std::optional<ModelContext> context_;  // from before AutoComplete to the end
};

// What the SDK knows of an instance; authors derive from ModelInstance below.
class InstanceBase {
 public:
  virtual ~InstanceBase() = default;

  // As Model's, for this instance; the model is initialised.
  virtual Status Initialize() { return {}; }
  virtual Status Execute(Batch& batch) = 0;
  virtual Status Ready() { return {}; }
  virtual void Finalize() {}

  const InstanceContext& context() const { return *context_; }
  const std::string& name() const { return context().name(); }

  // For the SDK. `model` outlives the instance.
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

// One for each instance of `instance_group`: for state that must not be shared between instances.
// Its members are touched by one thread at a time.
template <typename ModelT>
class ModelInstance : public InstanceBase {
 public:
  ModelT& model() const { return static_cast<ModelT&>(base_model()); }
};

// The instance of a backend that brings none.
template <typename ModelT>
class PlainInstance final : public ModelInstance<ModelT> {
 public:
  Status Execute(Batch& batch) override { return this->model().Execute(batch); }
  Status Ready() override { return this->model().Ready(); }
};

}  // namespace sdk
}  // namespace nereid
