// Outputs that only some requests have, from the engine's output to the tensors of a response.
#include "backends/llm_core/adapter/extra_outputs.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid::llm {
namespace {

template <typename T>
std::vector<T> ValuesOf(const fake::Output& output) {
  std::vector<T> values(output.bytes.size() / sizeof(T));
  std::memcpy(values.data(), output.bytes.data(), output.bytes.size());
  return values;
}

class ExtraOutputsTest : public BackendTest {
 protected:
  struct Declared {
    std::string name, type;
    int num_dims;
  };
  // The outputs of a response of these sequences. The model declares `declared`, and the request
  // names them.
  std::map<std::string, fake::Output> Set(const ExtraOutputs& asked,
                                          const std::vector<SequenceUpdate>& all, size_t longest,
                                          const std::vector<Declared>& declared) {
    std::string outputs;
    std::vector<std::string> names;
    for (const auto& [name, type, num_dims] : declared) {
      std::string dims = "-1";
      for (int i = 1; i < num_dims; ++i) dims += ",-1";
      outputs += StrCat(outputs.empty() ? "" : ",", R"({"name":")", name, R"(","data_type":")",
                        type, R"(","dims":[)", dims, "]}");
      names.push_back(name);
    }
    model_.config = StrCat(R"({"name":"model","max_batch_size":8,"output":[)", outputs, "]}");
    EXPECT_EQ(fake::Take(Entry::InitializeModel(model_.handle())), std::nullopt);
    EXPECT_EQ(fake::Take(Entry::InitializeInstance(instance_.handle())), std::nullopt);
    AddRequest({1.0f}).requested_outputs = names;
    ScriptedModel::on_execute = [&](ScriptedModel& model, Batch& batch) -> Status {
      ConfiguredOutputs configured(model.config());
      configured.vocab_size = 2;
      for (Request& request : batch.Take()) {
        NEREID_ASSIGN_OR_RETURN(Response * response, request.GetOrCreateResponse());
        ResponseTensors tensors(*response, configured);
        const TokenIds prompt = {4, 5, 6};
        NEREID_RETURN_IF_ERROR(SetExtraOutputs(tensors, asked, all, longest, &prompt, true));
        NEREID_RETURN_IF_ERROR(request.Finish());
      }
      return {};
    };
    std::vector<TRITONBACKEND_Request*> handles = {requests_[0]->handle()};
    EXPECT_EQ(fake::Take(Entry::Execute(instance_.handle(), handles.data(), 1)), std::nullopt);
    EXPECT_EQ(fake::Take(Entry::FinalizeInstance(instance_.handle())), std::nullopt);
    EXPECT_EQ(fake::Take(Entry::FinalizeModel(model_.handle())), std::nullopt);
    return requests_[0]->responses.at(0).outputs;
  }
};

TEST_F(ExtraOutputsTest, WhatASequenceHasIsAppendedFromTheFirstNewIdOn) {
  ExtraOutputs asked;
  asked.log_probs = true;
  asked.num_top_log_probs = 1;
  const TokenIds ids = {7, 8, 9};
  const std::vector<float> log_probs = {-1, -2, -3};
  const std::vector<float> logits = {1, 2, 3, 4, 5, 6};
  const std::vector<SampledToken> top = {{7, -1}, {8, -2}, {9, -3}};
  SequenceOutput output;
  output.ids = ids;
  output.log_probs = log_probs;
  output.generation_logits = logits;
  output.top_tokens = top;
  output.cum_log_prob = -6;
  ExtraResults results;
  // The last two ids, and one in their place that was not sampled.
  results.AppendTokens(output, /*first=*/1, /*num_ids=*/3, asked);
  EXPECT_EQ(results.log_probs, (std::vector<float>{-2, -3, 0}));
  EXPECT_EQ(results.generation_logits, (std::vector<float>{3, 4, 5, 6, 0, 0}));
  ASSERT_EQ(results.top_tokens.size(), 3u);
  EXPECT_EQ(results.top_tokens[0].id, 8);
  EXPECT_EQ(results.top_tokens[2].id, kNoToken);
  EXPECT_EQ(results.cum_log_prob, -6);
}

TEST_F(ExtraOutputsTest, ShorterSequencesArePadded) {
  ExtraOutputs asked;
  asked.log_probs = asked.generation_logits = true;
  std::vector<SequenceUpdate> all(2);
  all[0].ids = {7, 8};
  all[0].extras.log_probs = {-1, -2};
  all[0].extras.generation_logits = {1, 2, 3, 4};
  all[0].extras.cum_log_prob = -3;
  all[1].ids = {9};
  all[1].extras.log_probs = {-5};
  all[1].extras.generation_logits = {5, 6};
  all[1].extras.cum_log_prob = -5;
  const auto outputs = Set(asked, all, 2,
                           {{"output_log_probs", "TYPE_FP32", 2},
                            {"generation_logits", "TYPE_FP32", 3},
                            {"cum_log_probs", "TYPE_FP32", 1}});
  EXPECT_EQ(ValuesOf<float>(outputs.at("output_log_probs")), (std::vector<float>{-1, -2, -5, -1}));
  EXPECT_EQ(outputs.at("output_log_probs").shape, (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(ValuesOf<float>(outputs.at("cum_log_probs")), (std::vector<float>{-3, -5}));
  EXPECT_EQ(ValuesOf<float>(outputs.at("generation_logits")),
            (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0}));
  EXPECT_EQ(outputs.at("generation_logits").shape, (std::vector<int64_t>{1, 2, 2, 2}));
}

// A stop string that begins within the first token: the only id of the output was not sampled.
TEST_F(ExtraOutputsTest, IdsThatWereNotSampledHaveLogitsOfZero) {
  ExtraOutputs asked;
  asked.generation_logits = true;
  std::vector<SequenceUpdate> all(1);
  all[0].ids = {7};
  const auto outputs = Set(asked, all, 1, {{"generation_logits", "TYPE_FP32", 3}});
  ASSERT_EQ(outputs.count("generation_logits"), 1u);
  EXPECT_EQ(outputs.at("generation_logits").shape, (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(ValuesOf<float>(outputs.at("generation_logits")), (std::vector<float>{0, 0}));
}

TEST_F(ExtraOutputsTest, WhatNobodyAskedForIsLeftOut) {
  std::vector<SequenceUpdate> all(1);
  all[0].ids = {7};
  const auto outputs = Set({}, all, 1,
                           {{"output_log_probs", "TYPE_FP32", 2},
                            {"prompt_ids", "TYPE_INT32", 1},
                            {"num_cached_tokens", "TYPE_INT32", 1},
                            {"stop_reason", "TYPE_STRING", 1}});
  EXPECT_EQ(outputs.count("prompt_ids"), 0u);
  EXPECT_EQ(outputs.count("stop_reason"), 0u);  // the sequence goes on
  EXPECT_EQ(outputs.count("num_cached_tokens"), 1u);
}

TEST_F(ExtraOutputsTest, TheIdsOfPromptAndOutputComeOnRequest) {
  ExtraOutputs asked;
  asked.prompt_ids = asked.token_ids = true;
  std::vector<SequenceUpdate> all(2);
  all[0].ids = {7, 8};
  all[1].ids = {9};
  const auto outputs =
      Set(asked, all, 2, {{"prompt_ids", "TYPE_INT32", 1}, {"output_token_ids", "TYPE_INT32", 1}});
  EXPECT_EQ(ValuesOf<int32_t>(outputs.at("prompt_ids")), (TokenIds{4, 5, 6}));
  EXPECT_EQ(ValuesOf<int32_t>(outputs.at("output_token_ids")), (TokenIds{7, 8, 9}));
}

}  // namespace
}  // namespace nereid::llm
