// One case per rule. Each error names its key and both values.
#include "host/core/config/validate.h"

#include "tests/host/core/config/temp_model.h"

namespace nereid::core::config {
namespace {

struct Case {
  const char* name;
  const char* pbtxt;
  const char* error;  // the expected error
};

class ValidateTest : public testing::TestWithParam<Case> {};

TEST_P(ValidateTest, Reports) {
  const TempModel model(GetParam().pbtxt);
  std::string all;
  for (const ConfigError& error : CheckModelConfig(model.folder()))
    all += error.key + ": " + error.message + "\n";
  EXPECT_NE(all.find(GetParam().error), std::string::npos) << "got: " << all;
}

#define IO "backend: 'b' max_batch_size: 4 "
#define TENSORS                                            \
  "input { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] } " \
  "output { name: 'Z' data_type: TYPE_INT32 dims: [ 1 ] } "
INSTANTIATE_TEST_SUITE_P(
    Rules, ValidateTest,
    testing::Values(
        Case{"NegativeBatch", "backend: 'b' max_batch_size: -1",
             "max_batch_size: 'max_batch_size' must be non-negative value for m, got -1"},
        Case{"ZeroDim", IO "input { name: 'A' data_type: TYPE_INT32 dims: [ 0 ] }",
             "input[0].dims: model input 'A' dimension must be integer >= 1, or -1 to indicate a "
             "variable-size dimension for m, got 0"},
        Case{"NoDims", IO "input { name: 'A' data_type: TYPE_INT32 }",
             "input[0].dims: model input 'A' must specify 'dims' for m"},
        Case{"FormatOfImages",
             IO "input { name: 'A' data_type: TYPE_INT32 format: FORMAT_NCHW dims: [ 2, 2 ] }",
             "input[0].format: model input NHWC/NCHW require 3 dims for m: FORMAT_NCHW, got [2,2]"},
        Case{"NoType", IO "output { name: 'A' dims: [ 1 ] }",
             "output[0].data_type: model output 'A' must specify 'data_type' for m"},
        Case{"NoName", IO "output { data_type: TYPE_INT32 dims: [ 1 ] }",
             "output[0].name: model output must specify 'name' for m"},
        Case{"TwiceTheName",
             IO "input { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] } input { name: 'A' "
                "data_type: TYPE_INT32 dims: [ 1 ] }",
             "input[1].name: 'A' is given twice"},
        Case{"ReshapeLosesElements",
             IO "input { name: 'A' data_type: TYPE_INT32 dims: [ 4, 2 ] reshape { shape: [ 7 ] } }",
             "input[0].reshape.shape: model input 'A' has different size for dims and reshape for "
             "m: "
             "[4,2] and [7]"},
        Case{
            "ReshapeLosesAVariableSize",
            IO
            "output { name: 'A' data_type: TYPE_INT32 dims: [ -1, -1 ] reshape { shape: [ -1 ] } }",
            "output[0].reshape.shape: model output 'A' has different number of variable-size "
            "dimensions for dims and reshape for m: [-1,-1] and [-1]"},
        Case{"EmptyReshapeWithoutBatch",
             "backend: 'b' input { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] reshape { } }",
             "input[0].reshape.shape: model input 'A' cannot have empty reshape for non-batching "
             "model "
             "as scalar tensors are not supported for m"},
        Case{
            "PreferredTooLarge", IO "dynamic_batching { preferred_batch_size: [ 5 ] }",
            "dynamic_batching.preferred_batch_size: dynamic batching preferred size must be <= max "
            "batch size for m, which is 4, got 5"},
        Case{"PreferredZero", IO "dynamic_batching { preferred_batch_size: [ 0 ] }",
             "dynamic_batching.preferred_batch_size: dynamic batching preferred size must be "
             "positive for m, got 0"},
        Case{
            "PreferredTooLargeForSequences",
            IO "sequence_batching { oldest { preferred_batch_size: [ 5 ] } }",
            "sequence_batching.oldest.preferred_batch_size: sequence batching preferred batch size "
            "must be <= max batch size for m, which is 4, got 5"},
        Case{"PriorityDefault",
             IO "dynamic_batching { priority_levels: 3 default_priority_level: 4 }",
             "dynamic_batching.default_priority_level: default priority level must be in range [1, "
             "3] for m, got 4"},
        Case{"PriorityPolicy",
             IO "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
                "priority_queue_policy { key: 9 value { } } }",
             "dynamic_batching.priority_queue_policy: priority queue policy must have priority "
             "level "
             "in range [1, 2] for m, got 9"},
        Case{"OrderedPriorities",
             IO "dynamic_batching { preserve_ordering: true priority_levels: 2 "
                "default_priority_level: 1 }",
             "dynamic_batching.priority_levels: Only one priority level is allowed when "
             "'preserve_ordering' is true for m, got 2"},
        Case{"OrderedDelay",
             IO "dynamic_batching { preserve_ordering: true default_queue_policy { "
                "timeout_action: DELAY default_timeout_microseconds: 1 } }",
             "dynamic_batching.default_queue_policy: Queue policy can not have DELAY as timeout "
             "action when 'preserve_ordering' is true for m"},
        Case{"OrderedDelayOfALevel",
             IO "dynamic_batching { preserve_ordering: true priority_levels: 1 "
                "default_priority_level: 1 priority_queue_policy { key: 1 value { "
                "timeout_action: DELAY default_timeout_microseconds: 1 } } }",
             "dynamic_batching.priority_queue_policy: Queue policy can not have DELAY as timeout "
             "action when 'preserve_ordering' is true for m"},
        Case{"BatchInputKind", IO TENSORS "batch_input { kind: 17 source_input: 'A' }",
             "batch_input[0].kind: expected a value of Kind, got 17"},
        Case{"BatchInputSources",
             IO TENSORS "batch_input { kind: BATCH_ITEM_SHAPE data_type: TYPE_INT32 }",
             "batch_input[0].source_input: batch input kind 'BATCH_ITEM_SHAPE' expects 1 source "
             "input, got 0"},
        Case{"BatchInputSource",
             IO TENSORS "batch_input { data_type: TYPE_INT32 source_input: 'X' }",
             "batch_input[0].source_input: unknown source input name 'X' for m"},
        Case{"BatchInputType", IO TENSORS "batch_input { data_type: TYPE_INT64 source_input: 'A' }",
             "batch_input[0].data_type: batch input data type must be TYPE_INT32 or TYPE_FP32 "
             "for m, got TYPE_INT64"},
        Case{"BatchOutputSources", IO TENSORS "batch_output { }",
             "batch_output[0].source_input: batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' "
             "expects 1 source input, got 0"},
        Case{"BatchOutputTarget", IO TENSORS "batch_output { target_name: 'X' source_input: 'A' }",
             "batch_output[0].target_name: unknown target output name 'X'"},
        Case{"BatchOutputTargetTwice",
             IO TENSORS "batch_output { target_name: 'Z' target_name: 'Z' source_input: 'A' }",
             "batch_output[0].target_name: target output name 'Z' can only be specified once"},
        Case{"LatestZero", IO "version_policy { latest { num_versions: 0 } }",
             "version_policy.latest.num_versions: expected at least 1, got 0"},
        Case{"TagThatIsNoLabel", IO "metric_tags { key: 'a-b' value: 'c' }",
             "metric_tags: expected keys of letters, digits and '_', got 'a-b'"},
        Case{"MetricWithoutIdentifier", IO "model_metrics { metric_control { } }",
             "model_metrics.metric_control[0]: metric control must specify 'metric_identifier'"},
        Case{"MetricWithoutFamily",
             IO "model_metrics { metric_control { metric_identifier { } histogram_options { "
                "buckets: [ 1 ] } } }",
             "metric_control[0].metric_identifier: metric identifier must specify non-empty "
             "'family'"},
        Case{"MetricWithoutOptions",
             IO "model_metrics { metric_control { metric_identifier { family: 'f' } } }",
             "model_metrics.metric_control[0]: metric control must specify 'histogram_options'"},
        Case{"MetricWithoutBuckets",
             IO "model_metrics { metric_control { metric_identifier { family: 'f' } "
                "histogram_options { } } }",
             "histogram options must specify non-empty 'buckets'"},
        Case{"SpecificEmpty", IO "version_policy { specific { } }",
             "version_policy.specific.versions: must name at least one version"},
        Case{"EnsembleWithoutSteps", "platform: 'ensemble' ensemble_scheduling { }",
             "ensemble_scheduling.step: must specify 'step' for ensemble 'm'"},
        Case{"EnsembleWithoutScheduling", "platform: 'ensemble'",
             "platform: ensemble scheduling must be set for ensemble m whose platform is ensemble"},
        Case{"EnsembleWithBackend", "platform: 'ensemble' backend: 'b'",
             "backend: Ensemble model 'm' must have platform type 'ensemble' and empty backend "
             "type, got 'b'"},
        Case{"NothingThatNamesABackend", "max_batch_size: 1",
             "backend: Invalid model name: Could not determine backend for model 'm' with no "
             "backend in model configuration. Expected model name of the form "
             "'model.<backend_name>'."},
        Case{"PlatformOfNoBackend", "platform: 'tensorflo'",
             "backend: unexpected platform type 'tensorflo' for m"},
        Case{"SchedulingWithoutEnsemble",
             IO
             "ensemble_scheduling { step { model_name: 'x' output_map { key: 'a' value: 'b' } } }",
             "ensemble_scheduling: ensemble scheduling cannot be set for model 'm' whose platform "
             "is not ensemble, got ''"},
        Case{"EnsembleWithInstances",
             "platform: 'ensemble' instance_group { } ensemble_scheduling { step { model_name: 'x' "
             "output_map { key: 'a' value: 'b' } } }",
             "instance_group: instance group should not be specified for ensemble 'm'"},
        Case{"EnsembleWithOptimization",
             "platform: 'ensemble' optimization { } ensemble_scheduling { step { model_name: 'x' "
             "output_map { key: 'a' value: 'b' } } }",
             "optimization: optimization should not be specified for ensemble 'm'"},
        Case{"StepWithoutModel",
             "platform: 'ensemble' ensemble_scheduling { step { output_map { key: 'a' value: 'b' } "
             "} }",
             "ensemble_scheduling.step[0].model_name: must specify 'model_name' in step 0 of "
             "ensemble 'm'"},
        Case{
            "StepWithoutInputs",
            "platform: 'ensemble' ensemble_scheduling { step { model_name: 'x' output_map { key: "
            "'a' value: 'b' } } }",
            "ensemble_scheduling.step[0].input_map: must specify 'input_map' in step 0 of ensemble "
            "'m'"},
        Case{"ControlWithoutValues",
             IO "sequence_batching { control_input { name: 'S' control { kind: "
                "CONTROL_SEQUENCE_START } } }",
             "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
             "'bool_false_true' for CONTROL_SEQUENCE_START for m"},
        Case{"ControlWithTwoKindsOfValues",
             IO "sequence_batching { control_input { name: 'S' control { kind: "
                "CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ] } } }",
             "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' "
             "and 'bool_false_true' for CONTROL_SEQUENCE_START for m"},
        Case{"ControlWithOneValue",
             IO "sequence_batching { control_input { name: 'S' control { kind: "
                "CONTROL_SEQUENCE_END int32_false_true: [ 1 ] } } }",
             "sequence batching control 'int32_false_true' must have exactly 2 entries for "
             "CONTROL_SEQUENCE_END for m, got 1"},
        Case{
            "ControlTwice",
            IO "sequence_batching { control_input [ { name: 'S' control { kind: "
               "CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }, { name: 'T' control { kind: "
               "CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } ] }",
            "sequence batching specifies multiple CONTROL_SEQUENCE_CORRID tensors for m, 'T' among "
            "them"},
        Case{"CorrelationIdType",
             IO "sequence_batching { control_input { name: 'S' control { kind: "
                "CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }",
             "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types "
             "are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING, got FP32"},
        Case{"InitialStateWithoutName",
             IO "sequence_batching { state { input_name: 'A' output_name: 'B' data_type: "
                "TYPE_FP32 dims: [ 1 ] initial_state { data_type: TYPE_FP32 dims: [ 1 ] "
                "zero_data: true } } }",
             "initial_state[0].name: must be set for state 'A'"},
        Case{
            "ControlTensorOfTwoKinds",
            IO "sequence_batching { control_input [ { name: 'S' control { kind: "
               "CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }, { name: 'S' control { "
               "kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } } ] }",
            "control_input[1].name: sequence batching control tensor 'S' is specified for multiple "
            "control kinds for m"},
        Case{"UnknownType", IO "input { name: 'A' data_type: 99 dims: [ 1 ] }",
             "input[0].data_type: expected a value of DataType, got 99"},
        Case{"ShapeTensor",
             IO "input { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] is_shape_tensor: true }",
             "input[0].is_shape_tensor: shape tensors are only supported for TensorRT platform for "
             "m"},
        Case{"NonLinearFormat",
             IO
             "output { name: 'A' data_type: TYPE_INT32 dims: [ 1 ] is_non_linear_format_io: true }",
             "output[0].is_non_linear_format_io: Non-linear IO format is only supported for the "
             "TensorRT platform for m"},
        Case{"EnsembleWithWarmup",
             "platform: 'ensemble' model_warmup { name: 'w' } ensemble_scheduling { step { "
             "model_name: 'x' output_map { key: 'a' value: 'b' } } }",
             "model_warmup can not be specified for ensemble 'm'"},
        Case{"SlotUtilizationOfNoNumber",
             IO "sequence_batching { direct { minimum_slot_utilization: nan } }",
             "minimum slot utilization must be in range (0.0, 1.0] for m, got nan"},
        Case{"SlotUtilization", IO "sequence_batching { direct { minimum_slot_utilization: 2 } }",
             "minimum slot utilization must be in range (0.0, 1.0] for m, got 2"}),
    [](const auto& test) { return std::string(test.param.name); });
#undef IO

}  // namespace
}  // namespace nereid::core::config
