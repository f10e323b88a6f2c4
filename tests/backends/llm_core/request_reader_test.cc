// Requests of clients as the engine gets them, read from the tensors of a fake host.
#include "backends/llm_core/adapter/request_reader.h"

#include <gtest/gtest.h>

#include "backends/llm_core/adapter/decoding_inputs.h"
#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid::llm {
namespace {

template <typename T>
fake::Input Tensor(std::string name, std::vector<T> values, int64_t num_rows = 1) {
  const auto size = static_cast<int64_t>(values.size());
  return {std::move(name),
          ToC(kDataTypeOf<T>),
          {num_rows, size / num_rows},
          {fake::BytesOf(std::move(values))}};
}

fake::Input Texts(std::string name, const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const auto size = static_cast<uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)) += text;
  }
  return {std::move(name), TRITONSERVER_TYPE_BYTES, {std::ssize(texts), 1}, {bytes}};
}

fake::Parameter TextParameter(std::string name, std::string value) {
  return {std::move(name), TRITONSERVER_PARAMETER_STRING, std::move(value)};
}

class RequestReaderTest : public BackendTest {
 protected:
  RequestReaderTest() {
    Load(/*max_batch_size=*/8);
    lora_ = *LoraRequests::Create({}, LoraTargets::Of(WeightMap(), 1), "model");
    defaults_.lora = lora_.get();
    defaults_.tokenizer = &tokenizer_;
    defaults_.end_ids = {2, 7};
    defaults_.max_positions = 20;
    defaults_.vocab_size = 50;
    defaults_.max_num_sequences = 4;
    defaults_.max_beam_width = 4;
    defaults_.num_outputs = 2;
    defaults_.has_generation_logits = true;
  }

  // A request with a prompt of three tokens and room for four.
  Result<ClientRequest> Read(std::vector<fake::Input> more,
                             std::vector<fake::Parameter> parameters = {}) {
    std::vector<fake::Input> inputs = {Tensor<int32_t>("input_ids", {4, 5, 6}),
                                       Tensor<int32_t>("request_output_len", {4})};
    inputs.insert(inputs.end(), more.begin(), more.end());
    return ReadAll(std::move(inputs), std::move(parameters));
  }
  Result<ClientRequest> ReadAll(std::vector<fake::Input> inputs,
                                std::vector<fake::Parameter> parameters = {}) {
    requests_.clear();
    fake::Request& request = *requests_.emplace_back(std::make_unique<fake::Request>());
    request.inputs = std::move(inputs);
    request.parameters = std::move(parameters);
    request.requested_outputs = outputs_;
    request.id = "seven";
    Result<ClientRequest> result = InternalError("was not called");
    Execute([&](Batch& batch) -> Status {
      for (Request& each : batch.Take()) {
        result = ReadRequest(each, defaults_);
        NEREID_RETURN_IF_ERROR(each.Fail(UnavailableError("only read")));
      }
      return {};
    });
    return result;
  }
  std::string ErrorOf(std::vector<fake::Input> more, std::vector<fake::Parameter> parameters = {}) {
    const auto result = Read(std::move(more), std::move(parameters));
    return result.ok() ? "read" : std::string(result.status().message());
  }

  LazyTokenizer tokenizer_{"/no/such/tokenizer", true, std::nullopt};
  std::unique_ptr<LoraRequests> lora_;
  RequestDefaults defaults_;
  std::vector<std::string> outputs_ = {"OUT", "TEXT"};
};

TEST_F(RequestReaderTest, APlainRequestHasTheDefaultsOfTheModel) {
  defaults_.sampling.top_k = 9;
  const auto client = Read({Tensor<float>("temperature", {0.5f})});
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(client->id, "seven");
  EXPECT_FALSE(client->is_streaming);
  ASSERT_EQ(client->items.size(), 1u);
  const RequestItem& item = client->items[0];
  const GenerationRequest& generation = *item.generation;
  EXPECT_EQ(generation.prompt, (TokenIds{4, 5, 6}));
  EXPECT_EQ(generation.stop.max_tokens, 4);
  EXPECT_EQ(generation.stop.end_ids, (TokenIds{2, 7}));
  EXPECT_EQ(generation.sampling.top_k, 9);
  EXPECT_EQ(generation.sampling.temperature, 0.5f);
  EXPECT_EQ(generation.num_sequences, 1);
  EXPECT_TRUE(generation.speculates);
  EXPECT_EQ(item.embeddings, nullptr);
  EXPECT_EQ(item.stop_strings, nullptr);
  EXPECT_FALSE(item.guide);
  EXPECT_FALSE(item.extras.log_probs || item.extras.token_ids || item.extras.prompt_ids);
}

TEST_F(RequestReaderTest, EachRowOfABatchIsAnItem) {
  const auto client = ReadAll(
      {Tensor<int32_t>("input_ids", {1, 2, 3, 4}, 2), Tensor<int32_t>("input_lengths", {2, 1}, 2),
       Tensor<int32_t>("request_output_len", {5, 90}, 2), Tensor<uint64_t>("seed", {8, 9}, 2)});
  ASSERT_TRUE(client.ok()) << client.status().message();
  ASSERT_EQ(client->items.size(), 2u);
  EXPECT_EQ(client->items[0].generation->prompt, (TokenIds{1, 2}));
  EXPECT_EQ(client->items[1].generation->prompt, (TokenIds{3}));
  EXPECT_EQ(client->items[1].generation->sampling.seed, 9u);
  EXPECT_EQ(client->items[0].stop_reasons.cut_length, "");
  EXPECT_EQ(client->items[1].generation->stop.max_tokens, 19);  // what the context has left
  EXPECT_EQ(client->items[1].stop_reasons.cut_length,
            "max_tokens 90 was cut to 19: the model's limit is 20 tokens, prompt and output "
            "together");
}

TEST_F(RequestReaderTest, AStopNamesOnlyTheRequest) {
  const auto client = ReadAll({Tensor<Bool>("stop", {true})});
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->is_stop);
  EXPECT_TRUE(client->items.empty());
  EXPECT_EQ(ReadAll({Tensor<int32_t>("request_output_len", {4})}).status().message(),
            "input 'input_ids' is missing: this model is a decoder");
}

TEST_F(RequestReaderTest, ATemperatureAloneSamplesOnlyWhereTheModelSaysSo) {
  auto client = Read({Tensor<float>("temperature", {0.5f})});
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->items[0].generation->sampling.is_greedy());
  EXPECT_EQ(client->unused_temperature, 0.5f);
  defaults_.temperature_samples = true;
  client = Read({Tensor<float>("temperature", {0.5f})});
  EXPECT_EQ(client->items[0].generation->sampling.top_p, 1.0f);
  EXPECT_FALSE(client->unused_temperature);
  client = Read({Tensor<float>("temperature", {0.5f}), Tensor<int32_t>("runtime_top_k", {1})});
  EXPECT_TRUE(client->items[0].generation->sampling.is_greedy());
}

TEST_F(RequestReaderTest, EndIdsAreThoseOfTheModelOrTheRequest) {
  const auto ids = [&](std::vector<fake::Input> more) {
    return Read(std::move(more))->items[0].generation->stop.end_ids;
  };
  EXPECT_EQ(ids({Tensor<int32_t>("end_id", {7})}), (TokenIds{2, 7}));
  EXPECT_EQ(ids({Tensor<int32_t>("end_id", {9})}), TokenIds{9});
  EXPECT_EQ(ids({Tensor<int32_t>("end_id", {-1})}), TokenIds{});
  EXPECT_EQ(ids({Tensor<Bool>("ignore_eos", {true}), Tensor<int32_t>("stop_token_ids", {8, 8})}),
            TokenIds{8});
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("stop_token_ids", {50})}),
            "input 'stop_token_ids' holds token id 50, expected 0 to 49");
}

TEST_F(RequestReaderTest, StopWordsNeedATokenizerOnlyAsText) {
  defaults_.matches_words_as_text = true;
  const auto client = Read({Tensor<int32_t>("stop_words_list", {11, 12, 13, 1, 3, -1}, 1)});
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(client->items[0].generation->stop.stop_words, (std::vector<TokenIds>{{11}, {12, 13}}));
  EXPECT_TRUE(Read({Texts("stop_words", {""})}).ok());
  EXPECT_EQ(
      ErrorOf({Texts("stop_words", {"end"})}).rfind("input 'stop_words' needs a tokenizer", 0), 0u);
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("bad_words_list", {11, 12, 2, 1}, 1)}),
            "input 'bad_words_list': offset 1 after 2, expected rising offsets up to 2");
}

TEST_F(RequestReaderTest, AListOfWordsHasABoundedNumberOfIds) {
  std::vector<int32_t> words(2 * (kMaxWordIds + 1), 7);
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("bad_words_list", words)}),
            "input 'bad_words_list' has 65537 ids in a row, expected at most 65536");
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("stop_words_list", words)}),
            "input 'stop_words_list' has 65537 ids in a row, expected at most 65536");
  words.assign(2 * kMaxWordIds, -1);
  EXPECT_TRUE(Read({Tensor<int32_t>("bad_words_list", words)}).ok());
}

TEST_F(RequestReaderTest, BeamsAndSequencesHaveTheLimitsOfTheModel) {
  const auto client = Read({Tensor<int32_t>("beam_width", {3})});
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->items[0].generation->num_sequences, 3);
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("beam_width", {5})}),
            "input 'beam_width' is 5, expected 1 to 4 (parameter max_beam_width)");
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("num_return_sequences", {5})}),
            "input 'num_return_sequences' is 5, expected 1 to 4");
  defaults_.decoding_mode = DecodingMode::kTopK;
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("beam_width", {3})}),
            "input 'beam_width' is 3: the model's parameter decoding_mode is top_k");
  EXPECT_EQ(ErrorOf({Tensor<float>("runtime_top_p", {0.5f})}),
            "input 'runtime_top_p' is 0.5: the model's parameter decoding_mode is top_k");
}

TEST_F(RequestReaderTest, ABiasHasAsManyIdsAsValues) {
  const auto client = Read({Tensor<int32_t>("logit_bias_ids", {3, 4}),
                            Tensor<float>("logit_bias_values", {1.0f, -2.0f}),
                            Tensor<int32_t>("allowed_token_ids", {3, 4, 5})});
  ASSERT_TRUE(client.ok());
  const SamplingParams& sampling = client->items[0].generation->sampling;
  ASSERT_EQ(sampling.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.logit_bias[1].value, -2.0f);
  EXPECT_EQ(sampling.allowed_ids, (TokenIds{3, 4, 5}));
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("logit_bias_ids", {3, 4})}),
            "input 'logit_bias_ids' has 2 values and 'logit_bias_values' has 0, expected as many");
}

TEST_F(RequestReaderTest, AGuideComesFromTensorsOrFromOneParameter) {
  const std::vector<fake::Input> tensors = {Texts("guided_decoding_guide_type", {"regex"}),
                                            Texts("guided_decoding_guide", {"a+"})};
  const auto client = Read(tensors);
  ASSERT_TRUE(client.ok()) << client.status().message();
  ASSERT_TRUE(client->items[0].guide);
  EXPECT_EQ(client->items[0].guide->text, "a+");
  const fake::Parameter parameter = TextParameter("guided_regex", "b+");
  ASSERT_TRUE(Read({}, {parameter}).ok());
  EXPECT_EQ(Read({}, {parameter})->items[0].guide->text, "b+");
  EXPECT_EQ(ErrorOf(tensors, {parameter}),
            "request parameter 'guided_regex': not beside the input 'guided_decoding_guide_type'");
  EXPECT_EQ(ErrorOf({Texts("guided_decoding_guide", {"a+"})}),
            "input 'guided_decoding_guide' needs 'guided_decoding_guide_type'");
  EXPECT_EQ(ErrorOf({Tensor<int32_t>("beam_width", {2})}, {parameter}),
            "request parameter 'guided_regex': 'beam_width' is 2: beam search follows no grammar, "
            "expected 1");
}

TEST_F(RequestReaderTest, OutputsThatNoResponseHasAreRefused) {
  EXPECT_EQ(ErrorOf({Tensor<Bool>("return_context_logits", {true})}),
            "input 'return_context_logits' is true: the model has no output 'context_logits'; add "
            "it to config.pbtxt");
  const auto client =
      Read({Tensor<Bool>("return_generation_logits", {true}),
            Tensor<int32_t>("num_prompt_logprobs", {2}), Tensor<Bool>("return_log_probs", {true})});
  ASSERT_TRUE(client.ok());
  const RequestItem& item = client->items[0];
  EXPECT_TRUE(item.generation->returns_generation_logits);
  EXPECT_TRUE(item.generation->returns_prompt_log_probs);
  EXPECT_TRUE(item.extras.prompt_ids && item.extras.log_probs && !item.extras.token_ids);
  EXPECT_EQ(item.extras.num_prompt_top_log_probs, 2);
  EXPECT_EQ(ErrorOf({}, {TextParameter("request_type", "context_only")}),
            "parameter 'request_type' is 'context_only': context and generation on different "
            "servers are not supported, expected context_and_generation");
  EXPECT_EQ(ErrorOf({}, {{"request_type", TRITONSERVER_PARAMETER_BOOL}}),
            "parameter 'request_type': expected a text");
}

TEST_F(RequestReaderTest, EqualSaltsAreEqualNumbers) {
  const auto salt = [&](const std::string& text) {
    return Read({Texts("cache_salt", {text})})->items[0].generation->cache_salt;
  };
  EXPECT_EQ(salt(""), 0u);
  EXPECT_EQ(salt("one"), salt("one"));
  EXPECT_NE(salt("one"), salt("two"));
  EXPECT_EQ(ErrorOf({Texts("cache_salt", {"one", "two"})}),
            "input 'cache_salt': expected one value a row, got 2 for 1 rows");
}

// FNV-1a, which is easy to invert, gives these bytes the number of a request without a salt.
TEST_F(RequestReaderTest, NoSaltCanBeMadeForAGivenNumber) {
  const auto client = Read({Texts("cache_salt", {"\xd5\x6b\xb9\x53\x42\x87\x08\x36"})});
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_NE(client->items[0].generation->cache_salt, 0u);
}

TEST_F(RequestReaderTest, DraftsOfTheClientAreReadWithTheirLogits) {
  fake::Parameter off = {"speculative_decoding", TRITONSERVER_PARAMETER_BOOL};
  const auto client = Read({Tensor<int32_t>("draft_input_ids", {8, 9}),
                            Tensor<Fp16>("draft_logits", {Fp16{0x3c00}, Fp16{0xc000}})},
                           {off});
  ASSERT_TRUE(client.ok()) << client.status().message();
  const GenerationRequest& generation = *client->items[0].generation;
  EXPECT_EQ(generation.draft_ids, (TokenIds{8, 9}));
  EXPECT_EQ(generation.draft_logits, (std::vector<float>{1.0f, -2.0f}));
  EXPECT_FALSE(generation.speculates);
}

}  // namespace
}  // namespace nereid::llm
