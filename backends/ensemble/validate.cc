#include "backends/ensemble/validate.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/closest_name.h"

namespace nereid::ensemble {
namespace {

using Location = ValidationIssue::Location;

std::string DimsText(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += StrCat(text.size() > 1 ? "," : "", dim);
  return text + "]";
}

std::vector<std::string> Names(const std::vector<TensorSpec>& tensors) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : tensors) names.push_back(tensor.name);
  return names;
}

std::vector<int64_t> FullDims(const TensorSpec& tensor, bool batching) {
  std::vector<int64_t> dims = tensor.dims;
  if (batching) dims.insert(dims.begin(), -1);
  return dims;
}

bool DimsAgree(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int64_t x, int64_t y) { return x == y || x == -1 || y == -1; });
}

// One use of an ensemble tensor, with the specification that applies to it.
struct TensorUse {
  std::string where;  // "input 'IN' of step 0 ('add_one')"
  const TensorSpec* spec;
  bool batching;
  Location location;
  int step;
  std::string key;
};

class Validator {
 public:
  Validator(const EnsembleConfig& config, std::span<const Result<ModelSpec>> models)
      : config_(config), models_(models) {}

  std::vector<ValidationIssue> Run() {
    if (config_.steps.empty()) {
      AddIssue(Location::kEnsemble, -1, "", "must specify 'step' for ensemble '",
               config_.model.name, "'");
    }
    for (const TensorSpec& input : config_.model.inputs) {
      AddProducer(input.name, {StrCat("input '", input.name, "' of the ensemble"), &input,
                               config_.model.max_batch_size > 0, Location::kInput, -1, input.name});
    }
    for (int i = 0; i < static_cast<int>(config_.steps.size()); ++i) CheckStep(i);
    CheckConsumers();
    CheckEnsembleOutputs();
    CheckUnusedInputs();
    CheckCycles();
    const bool has_no_error =
        std::all_of(issues_.begin(), issues_.end(),
                    [](const ValidationIssue& issue) { return issue.is_warning; });
    if (has_no_error) CheckUnusedTensors();  // with other errors, these would be follow-ups
    return std::move(issues_);
  }

 private:
  // Triton's messages begin with it.
  std::string MessagePrefix() const { return StrCat("in ensemble ", config_.model.name, ", "); }

  std::string StepText(int index) const {
    return StrCat("step ", index, " ('", config_.steps[index].model_name, "')");
  }

  template <typename... Args>
  ValidationIssue& AddIssue(Location location, int step, std::string key, const Args&... text) {
    issues_.push_back(
        {.message = StrCat(text...), .location = location, .step = step, .key = std::move(key)});
    return issues_.back();
  }

  void AddProducer(const std::string& tensor, TensorUse mention) {
    const auto [it, added] = producers_.try_emplace(tensor, std::move(mention));
    if (added) return;
    AddIssue(mention.location, mention.step, mention.key, "ensemble tensor '", tensor,
             "' can appear in an output map only once for ensemble '", config_.model.name,
             "': it is ", it->second.where, " and ", mention.where);
  }

  void AddMissingField(int index, const char* field) {
    AddIssue(Location::kModel, index, "", "must specify '", field, "' in step ", index,
             " of ensemble '", config_.model.name, "'");
  }

  void CheckStep(int index) {
    const StepConfig& step = config_.steps[index];
    if (step.model_name.empty()) {
      AddMissingField(index, "model_name");
      return;
    }
    if (step.input_map.empty()) AddMissingField(index, "input_map");
    if (step.output_map.empty()) AddMissingField(index, "output_map");
    if (!models_[index].ok()) {
      AddIssue(Location::kModel, index, "model_name", "ensemble '", config_.model.name,
               "' depends on '", step.model_name, "' ", models_[index].status().message());
      AddTensorsOfUnknownModel(index);
      return;
    }
    if (!models_[index]->is_complete) {
      AddTensorsOfUnknownModel(index);
      return;
    }
    CheckBatchSize(index);
    CheckInputMap(index, *models_[index]);
    CheckOutputMap(index, *models_[index]);
  }

  // The model's tensors are unknown. Its outputs count as produced, so that one issue does not
  // cause others.
  void AddTensorsOfUnknownModel(int index) {
    for (const auto& [output, tensor] : config_.steps[index].output_map) {
      AddProducer(tensor, {StrCat("output '", output, "' of ", StepText(index)), nullptr, false,
                           Location::kOutputMap, index, output});
    }
    for (const auto& [input, tensor] : config_.steps[index].input_map) {
      consumers_.push_back({tensor,
                            {StrCat("input '", input, "' of ", StepText(index)), nullptr, false,
                             Location::kInputMap, index, input}});
    }
  }

  void CheckBatchSize(int index) {
    const ModelSpec& model = *models_[index];
    if (model.max_batch_size > 0 && config_.model.max_batch_size > model.max_batch_size) {
      AddIssue(Location::kModel, index, "model_name", "ensemble ", config_.model.name,
               " allows maximum batch size ", config_.model.max_batch_size,
               ", but it contains model ", config_.steps[index].model_name,
               " which only allows maximum batch size to be ", model.max_batch_size, " (",
               StepText(index), ")");
    }
  }

  void CheckInputMap(int index, const ModelSpec& model) {
    const StepConfig& step = config_.steps[index];
    std::set<std::string> mapped;
    for (const auto& [name, tensor] : step.input_map) {
      mapped.insert(name);
      const TensorSpec* spec = model.FindInput(name);
      if (spec == nullptr) {
        AddIssue(Location::kInputMap, index, name, MessagePrefix(), "ensemble tensor ", tensor,
                 " is mapping to non-existing input ", name, " in model ", step.model_name,
                 DidYouMean(name, Names(model.inputs)), ", ", StepText(index));
      }
      consumers_.push_back({tensor,
                            {StrCat("input '", name, "' of ", StepText(index)), spec,
                             model.max_batch_size > 0, Location::kInputMap, index, name}});
    }
    for (const TensorSpec& input : model.inputs) {
      if (input.optional || mapped.count(input.name) > 0) continue;
      AddIssue(Location::kModel, index, "input_map", MessagePrefix(), "input ", input.name,
               " in model ", step.model_name, " is not mapped to any ensemble tensors, ",
               StepText(index));
    }
  }

  void CheckOutputMap(int index, const ModelSpec& model) {
    const StepConfig& step = config_.steps[index];
    for (const auto& [name, tensor] : step.output_map) {
      const TensorSpec* spec = model.FindOutput(name);
      if (spec == nullptr) {
        AddIssue(Location::kOutputMap, index, name, MessagePrefix(), "ensemble tensor ", tensor,
                 " is mapped from non-existing output ", name, " in model ", step.model_name,
                 DidYouMean(name, Names(model.outputs)), ", ", StepText(index));
      }
      AddProducer(tensor, {StrCat("output '", name, "' of ", StepText(index)), spec,
                           model.max_batch_size > 0, Location::kOutputMap, index, name});
    }
  }

  std::vector<std::string> ProducedNames() const {
    std::vector<std::string> names;
    for (const auto& [name, mention] : producers_) names.push_back(name);
    return names;
  }

  void CheckConsumers() {
    for (const auto& [tensor, mention] : consumers_) {
      const auto producer = producers_.find(tensor);
      if (producer == producers_.end()) {
        AddIssue(mention.location, mention.step, mention.key, MessagePrefix(), "ensemble tensor '",
                 tensor, "' is not connected: ", mention.where,
                 " reads what is neither an input of the ensemble nor an output of a step",
                 DidYouMean(tensor, ProducedNames()));
        continue;
      }
      CheckAgreement(tensor, producer->second, mention);
      if (producer->second.location == Location::kInput && producer->second.spec->optional &&
          mention.spec != nullptr && !mention.spec->optional) {
        AddIssue(mention.location, mention.step, mention.key, MessagePrefix(), mention.where,
                 " is mandatory, but the ensemble's input '", tensor,
                 "' is optional: requests without it fail")
            .is_warning = true;
      }
    }
  }

  void CheckAgreement(const std::string& tensor, const TensorUse& producer,
                      const TensorUse& consumer) {
    if (producer.spec == nullptr || consumer.spec == nullptr) return;
    if (producer.spec->data_type != consumer.spec->data_type) {
      AddMismatch("data type", tensor, {producer, producer.spec->data_type},
                  {consumer, consumer.spec->data_type});
    }
    const auto consumer_dims = FullDims(*consumer.spec, consumer.batching);
    const auto producer_dims = FullDims(*producer.spec, producer.batching);
    // Dims may also agree without the batch dimension, which ShapeFor then adds or removes.
    if (!DimsAgree(consumer_dims, producer_dims) &&
        !DimsAgree(consumer.spec->dims, producer.spec->dims)) {
      AddMismatch("shape", tensor, {producer, DimsText(producer_dims)},
                  {consumer, DimsText(consumer_dims)});
    }
  }

  // As in Triton, the ensemble's own value comes first, then those of its steps.
  void AddMismatch(const char* what, const std::string& tensor,
                   std::pair<const TensorUse&, std::string> producer,
                   std::pair<const TensorUse&, std::string> consumer) {
    const bool is_output = consumer.first.location == Location::kOutput;
    const auto& [first, first_value] = is_output ? consumer : producer;
    const auto& [second, second_value] = is_output ? producer : consumer;
    const TensorUse& at = consumer.first;
    AddIssue(at.location, at.step, at.key, MessagePrefix(), "ensemble tensor ", tensor,
             ": inconsistent ", what, ": ", first_value, " is inferred from model ", ModelOf(first),
             " while ", second_value, " is inferred from model ", ModelOf(second), " (",
             first.where, ", ", second.where, ")");
  }

  const std::string& ModelOf(const TensorUse& mention) const {
    return mention.step < 0 ? config_.model.name : config_.steps[mention.step].model_name;
  }

  void CheckEnsembleOutputs() {
    if (config_.model.outputs.empty()) {
      AddIssue(Location::kEnsemble, -1, "", MessagePrefix(), "no output is declared");
    }
    for (const TensorSpec& output : config_.model.outputs) {
      const auto producer = producers_.find(output.name);
      const TensorUse mention{StrCat("output '", output.name, "' of the ensemble"),
                              &output,
                              config_.model.max_batch_size > 0,
                              Location::kOutput,
                              -1,
                              output.name};
      if (producer == producers_.end()) {
        AddUnproducedOutput(output.name);
      } else {
        CheckAgreement(output.name, producer->second, mention);
      }
    }
  }

  void AddUnproducedOutput(const std::string& output) {
    const bool is_read =
        std::any_of(consumers_.begin(), consumers_.end(),
                    [&](const auto& consumer) { return consumer.first == output; });
    AddIssue(Location::kOutput, -1, output, is_read ? "output '" : "ensemble output '", output,
             "' for ensemble '", config_.model.name, is_read ? "' is not written" : "' is not used",
             ": no step produces it", DidYouMean(output, ProducedNames()));
  }

  void CheckUnusedInputs() {
    std::set<std::string> used;
    for (const auto& [tensor, mention] : consumers_) used.insert(tensor);
    for (const TensorSpec& input : config_.model.inputs) {
      if (used.count(input.name) > 0) continue;
      AddIssue(Location::kInput, -1, input.name, "ensemble input '", input.name, "' for ensemble '",
               config_.model.name, "' is not used: no step reads it");
    }
  }

  // Reports tensors that a step produces and nothing reads, usually a misspelt name. Triton rejects
  // them, too.
  void CheckUnusedTensors() {
    std::set<std::string> used;
    for (const auto& [tensor, mention] : consumers_) used.insert(tensor);
    for (const TensorSpec& output : config_.model.outputs) used.insert(output.name);
    for (const auto& [tensor, mention] : producers_) {
      if (mention.location != Location::kOutputMap || used.count(tensor) > 0) continue;
      AddIssue(mention.location, mention.step, mention.key, "ensemble tensor '", tensor,
               "' is unused in ensemble '", config_.model.name, "': ", mention.where,
               " is neither an output of the ensemble nor an input of a step");
    }
  }

  // Depth-first search along "step reads a tensor of step". A step that is reached again on the
  // current path closes a cycle.
  void CheckCycles() {
    std::vector<std::vector<std::pair<int, std::string>>> upstream(config_.steps.size());
    for (const auto& [tensor, mention] : consumers_) {
      const auto producer = producers_.find(tensor);
      if (producer == producers_.end() || producer->second.step < 0) continue;
      upstream[mention.step].emplace_back(producer->second.step, tensor);
    }
    std::vector<Visit> visits(config_.steps.size(), Visit::kNew);
    std::vector<std::pair<int, std::string>> path;
    for (int i = 0; i < static_cast<int>(visits.size()); ++i) {
      if (visits[i] == Visit::kNew && FindCycle(i, upstream, visits, path)) return;
    }
  }

  enum class Visit { kNew, kOnPath, kDone };

  bool FindCycle(int step, const std::vector<std::vector<std::pair<int, std::string>>>& upstream,
                 std::vector<Visit>& visits, std::vector<std::pair<int, std::string>>& path) {
    visits[step] = Visit::kOnPath;
    for (const auto& [producer, tensor] : upstream[step]) {
      path.emplace_back(step, tensor);
      if (visits[producer] == Visit::kOnPath) {
        AddCycle(producer, path);
        return true;
      }
      if (visits[producer] == Visit::kNew && FindCycle(producer, upstream, visits, path)) {
        return true;
      }
      path.pop_back();
    }
    visits[step] = Visit::kDone;
    return false;
  }

  void AddCycle(int start, const std::vector<std::pair<int, std::string>>& path) {
    auto first = path.begin();
    while (first->first != start) ++first;
    std::string text = StrCat(MessagePrefix(), "the steps form a cycle: ");
    for (auto it = first; it != path.end(); ++it) {
      text += StrCat(StepText(it->first), " reads '", it->second, "' of ");
    }
    AddIssue(Location::kModel, start, "model_name", text, StepText(start));
  }

  const EnsembleConfig& config_;
  const std::span<const Result<ModelSpec>> models_;
  std::map<std::string, TensorUse> producers_;                // by ensemble tensor
  std::vector<std::pair<std::string, TensorUse>> consumers_;  // by ensemble tensor
  std::vector<ValidationIssue> issues_;
};

}  // namespace

std::vector<ValidationIssue> Validate(const EnsembleConfig& config,
                                      std::span<const Result<ModelSpec>> models) {
  return Validator(config, models).Run();
}

Status StatusOf(std::span<const ValidationIssue> issues) {
  std::string text;
  for (const ValidationIssue& issue : issues) {
    if (!issue.is_warning) text += StrCat(text.empty() ? "" : "; ", issue.message);
  }
  if (text.empty()) return {};
  return {StatusCode::kInvalidArg, std::move(text)};
}

}  // namespace nereid::ensemble
