// Validates sequence_batching.
#include <set>

#include "host/core/config/validate.h"

namespace nereid::core::config {
namespace {

const char* ControlKindName(SequenceControl::Kind kind) {
  switch (kind) {
    case SequenceControl::Kind::kStart:
      return "CONTROL_SEQUENCE_START";
    case SequenceControl::Kind::kReady:
      return "CONTROL_SEQUENCE_READY";
    case SequenceControl::Kind::kEnd:
      return "CONTROL_SEQUENCE_END";
    case SequenceControl::Kind::kCorrelationId:
      break;
  }
  return "CONTROL_SEQUENCE_CORRID";
}

void ValidateControl(const SequenceControl& control, const std::string& model,
                     const std::string& key, ConfigErrors* errors) {
  const std::string suffix = StrCat(" for ", ControlKindName(control.kind), " for ", model);
  const std::initializer_list<std::pair<const char*, size_t>> lists = {
      {"int32_false_true", control.int32_false_true.size()},
      {"fp32_false_true", control.fp32_false_true.size()},
      {"bool_false_true", control.bool_false_true.size()}};
  if (control.kind == SequenceControl::Kind::kCorrelationId) {
    const auto type = control.data_type;
    if (type != DataType::kUint64 && type != DataType::kInt64 && type != DataType::kUint32 &&
        type != DataType::kInt32 && type != DataType::kBytes) {
      AddError(
          errors, key + ".data_type",
          StrCat("unexpected data type for control CONTROL_SEQUENCE_CORRID for ", model,
                 ". Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and "
                 "TYPE_STRING, got ",
                 Name(type)));
    }
    for (const auto& [list, size] : lists) {
      if (size == 0) continue;
      AddError(
          errors, key,
          StrCat("sequence batching must not specify either 'int32_false_true', 'fp32_false_true' "
                 "or 'bool_false_true'",
                 suffix, ", got '", list, "'"));
    }
    return;
  }
  int num_lists = 0;
  for (const auto& [list, size] : lists) {
    if (size == 0) continue;
    ++num_lists;
    if (size != 2) {
      AddError(errors, StrCat(key, ".", list),
               StrCat("sequence batching control '", list, "' must have exactly 2 entries", suffix,
                      ", got ", size));
    }
  }
  if (num_lists == 0) {
    AddError(
        errors, key,
        StrCat("sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
               "'bool_false_true'",
               suffix));
  } else if (num_lists > 1) {
    AddError(errors, key,
             StrCat("sequence batching specifies more than one from 'int32_false_true', "
                    "'fp32_false_true' and 'bool_false_true'",
                    suffix));
  }
}

void ValidateControls(const SequenceBatching& batching, const std::string& model,
                      ConfigErrors* errors) {
  std::set<SequenceControl::Kind> kinds;
  std::set<std::string> names;
  for (size_t i = 0; i < batching.control_inputs.size(); ++i) {
    const SequenceControlInput& input = batching.control_inputs[i];
    const std::string key = StrCat("sequence_batching.control_input[", i, "]");
    if (input.name.empty()) {
      AddError(errors, key + ".name",
               StrCat("sequence batching control tensor must have a name for ", model));
    } else if (!names.insert(input.name).second) {
      AddError(errors, key + ".name",
               StrCat("sequence batching control tensor '", input.name,
                      "' is specified for multiple control kinds for ", model));
    }
    if (input.controls.size() != 1) {
      AddError(errors, key + ".control",
               StrCat("expected one control for '", input.name, "', got ", input.controls.size()));
    }
    for (const SequenceControl& control : input.controls) {
      ValidateControl(control, model, key + ".control[0]", errors);
      if (kinds.insert(control.kind).second) continue;
      AddError(errors, key,
               StrCat("sequence batching specifies multiple ", ControlKindName(control.kind),
                      " tensors for ", model, ", '", input.name, "' among them"));
    }
  }
}

void ValidateInitialState(const SequenceStateConfig& state, const std::string& key,
                          ConfigErrors* errors) {
  if (state.initial_states.empty()) return;
  if (state.initial_states.size() > 1) {
    AddError(errors, key, StrCat("expected at most one, got ", state.initial_states.size()));
  }
  const SequenceInitialState& initial = state.initial_states.front();
  if (initial.name.empty()) {
    AddError(errors, key + "[0].name", StrCat("must be set for state '", state.input_name, "'"));
  }
  if (initial.zero_data != initial.data_file.empty()) {
    AddError(errors, key + "[0]",
             StrCat("expected either zero_data or data_file for state '", state.input_name, "'"));
  }
  if (initial.data_type != state.data_type) {
    AddError(errors, key + "[0].data_type",
             StrCat("expected that of state '", state.input_name, "', ", Name(state.data_type),
                    ", got ", Name(initial.data_type)));
  }
  bool same = initial.dims.size() == state.dims.size();
  for (size_t i = 0; same && i < initial.dims.size(); ++i) {
    same = initial.dims[i] >= 0 && (state.dims[i] < 0 || state.dims[i] == initial.dims[i]);
  }
  if (!same) {
    AddError(
        errors, key + "[0].dims",
        StrCat("expected fixed sizes that agree with the dims of state '", state.input_name, "'"));
  }
}

void ValidateState(const SequenceStateConfig& state, const std::string& key, ConfigErrors* errors) {
  if (state.input_name.empty()) AddError(errors, key + ".input_name", "must not be empty");
  if (state.output_name.empty()) AddError(errors, key + ".output_name", "must not be empty");
  if (state.data_type == DataType::kInvalid) {
    AddError(errors, key + ".data_type", StrCat("must be set for state '", state.input_name, "'"));
  }
  for (const int64_t dim : state.dims) {
    if (dim >= 1 || dim == -1) continue;
    AddError(errors, key + ".dims",
             StrCat("expected dimensions >= 1, or -1 for a variable size, got ", dim));
  }
  ValidateInitialState(state, key + ".initial_state", errors);
}

}  // namespace

void ValidateSequenceBatching(const ModelConfig& config, ConfigErrors* errors) {
  if (!config.sequence_batching.has_value()) return;
  const SequenceBatching& batching = *config.sequence_batching;
  if (const auto* direct = std::get_if<SequenceDirect>(&batching.strategy)) {
    const float utilization = direct->minimum_slot_utilization;
    if (!(utilization >= 0 && utilization <= 1)) {
      AddError(errors, "sequence_batching.direct.minimum_slot_utilization",
               StrCat("sequence batching minimum slot utilization must be in range (0.0, 1.0] for ",
                      config.name, ", got ", utilization));
    }
  }
  ValidateControls(batching, config.name, errors);
  for (size_t i = 0; i < batching.states.size(); ++i) {
    ValidateState(batching.states[i], StrCat("sequence_batching.state[", i, "]"), errors);
  }
  const auto* oldest = std::get_if<SequenceOldest>(&batching.strategy);
  if (oldest != nullptr && oldest->max_candidate_sequences < 0) {
    AddError(
        errors, "sequence_batching.oldest.max_candidate_sequences",
        StrCat("expected 0 or more for ", config.name, ", got ", oldest->max_candidate_sequences));
  }
  if (oldest != nullptr) {
    ValidatePreferredSizes(oldest->preferred_batch_sizes, config,
                           "sequence batching preferred batch size",
                           "sequence_batching.oldest.preferred_batch_size", errors);
  }
}

}  // namespace nereid::core::config
