#include "backends/bls/chain.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "backends/ensemble/validate.h"

namespace nereid::bls {
namespace {

using ensemble::ModelSpec;
using ensemble::TensorSpec;
using Names = std::vector<std::string>;

ModelSpec SpecOf(std::string name, const Names& inputs, const Names& outputs) {
  ModelSpec spec;
  spec.name = std::move(name);
  spec.max_batch_size = 8;
  for (const std::string& input : inputs) spec.inputs.push_back({input, "TYPE_INT32", {-1}, true});
  for (const std::string& output : outputs) spec.outputs.push_back({output, "TYPE_INT32", {-1}});
  return spec;
}

// Tensors of the templates of TensorRT-LLM 0.9, and of one feature that no model has: LoRA.
class ChainTest : public testing::Test {
 protected:
  ModelSpec bls_ = SpecOf(
      "tensorrt_llm_bls",
      {"text_input", "max_tokens", "end_id", "top_k", "min_length", "stream", "lora_task_id"},
      {"text_output", "cum_log_probs", "context_logits"});
  std::vector<ModelSpec> called_ = {
      SpecOf("preprocessing", {"QUERY", "REQUEST_OUTPUT_LEN", "END_ID"},
             {"INPUT_ID", "REQUEST_INPUT_LEN", "REQUEST_OUTPUT_LEN", "OUT_END_ID"}),
      SpecOf("tensorrt_llm",
             {"input_ids", "input_lengths", "request_output_len", "end_id", "runtime_top_k",
              "min_length", "streaming", "temperature"},
             {"output_ids", "sequence_length", "cum_log_probs", "output_log_probs"}),
      SpecOf("postprocessing", {"TOKENS_BATCH", "SEQUENCE_LENGTH", "CUM_LOG_PROBS"},
             {"OUTPUT", "OUT_CUM_LOG_PROBS"})};
  const ChainModels names_ = {"preprocessing", "tensorrt_llm", "postprocessing"};

  Chain Make() const { return MakeChain(bls_, names_, called_); }
  std::map<std::string, std::string> InputsOf(int step) const {
    const Chain chain = Make();
    return {chain.config.steps[step].input_map.begin(), chain.config.steps[step].input_map.end()};
  }
};

TEST_F(ChainTest, ConnectsTheTensorsThatBothSidesHave) {
  const std::map<std::string, std::string> preprocessing = {
      {"QUERY", "text_input"}, {"REQUEST_OUTPUT_LEN", "max_tokens"}, {"END_ID", "end_id"}};
  EXPECT_EQ(InputsOf(kPreprocessing), preprocessing);
  const std::map<std::string, std::string> engine = {
      {"input_ids", "_INPUT_ID"}, {"input_lengths", "_REQUEST_INPUT_LEN"},
      {"end_id", "_END_ID"},      {"request_output_len", "_REQUEST_OUTPUT_LEN"},
      {"runtime_top_k", "top_k"}, {"min_length", "min_length"},
      {"streaming", "stream"}};
  EXPECT_EQ(InputsOf(kEngine), engine);
  const std::map<std::string, std::string> postprocessing = {
      {"TOKENS_BATCH", "_TOKENS_BATCH"},
      {"SEQUENCE_LENGTH", "_SEQUENCE_LENGTH"},
      {"CUM_LOG_PROBS", "cum_log_probs"}};
  EXPECT_EQ(InputsOf(kPostprocessing), postprocessing);
}

TEST_F(ChainTest, NamesTensorsThatNoModelHas) {
  const Chain chain = Make();
  EXPECT_EQ(chain.unused_inputs, std::set<std::string>{"lora_task_id"});
  EXPECT_EQ(chain.absent_outputs, std::set<std::string>{"context_logits"});
}

TEST_F(ChainTest, IsAValidEnsemble) {
  const Chain chain = Make();
  const std::vector<Result<ModelSpec>> called(called_.begin(), called_.end());
  const Status status = ensemble::StatusOf(ensemble::Validate(chain.config, called));
  EXPECT_TRUE(status.ok()) << status.message();
}

// Preprocessing of TensorRT-LLM 0.5 returns no end id, so the engine takes the client's.
TEST_F(ChainTest, PassesTheClientsTensorWherePreprocessingHasNone) {
  called_[kPreprocessing].outputs.pop_back();
  EXPECT_EQ(InputsOf(kEngine)["end_id"], "end_id");
}

TEST(ShapeOfClientTest, TheReshapeIsUndone) {
  using ensemble::Shape;
  const TensorSpec flag{"return_log_probs", "TYPE_BOOL", {1}, true};
  EXPECT_EQ(ShapeOfClient(flag, true, Shape{4}), (Shape{4, 1}));
  EXPECT_EQ(ShapeOfClient(flag, true, Shape{4, 1}), (Shape{4, 1}));
  EXPECT_EQ(ShapeOfClient(flag, false, Shape()), Shape{1});
  const TensorSpec words{"stop_words", "TYPE_STRING", {-1}, true};
  EXPECT_EQ(ShapeOfClient(words, true, Shape{4}), Shape{4});
}

}  // namespace
}  // namespace nereid::bls
