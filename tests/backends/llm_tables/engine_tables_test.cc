// Walks through the tables of the `tensorrt_llm` model: each row has the outcome that it states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "backends/llm_tables/engine_parameters.h"
#include "backends/llm_tables/engine_tensors.h"

namespace nereid::llm {
namespace {

using testing::HasSubstr;

// A value of the parameter's kind that asks for something.
std::string ValueFor(const EngineParameter& parameter) {
  switch (parameter.kind) {
    case ParameterKind::kText:
      return "/some/path";
    case ParameterKind::kBool:
      return IsOneOf("true", parameter.idle) ? "false" : "true";
    case ParameterKind::kInt:
    case ParameterKind::kRange:
    case ParameterKind::kSizes:
      return "7";
    case ParameterKind::kFloat:
    case ParameterKind::kFraction:
      return "0.5";
    case ParameterKind::kDeviceIds:
      return "0,1";
    case ParameterKind::kChoice:
      break;
  }
  const std::string_view choices = parameter.choices;
  return std::string(choices.substr(0, choices.find(' ')));
}

TEST(EngineParametersTest, EachRowHasTheOutcomeThatItStates) {
  for (const EngineParameter& row : EngineParameters()) {
    SCOPED_TRACE(row.key);
    const std::string value = ValueFor(row);
    const Status status = CheckEngineParameter(row.key, value);
    const std::string on_cpu = NoteOnEngineParameter(row.key, value, false);
    const std::string on_gpu = NoteOnEngineParameter(row.key, value, true);
    if (row.rule == ParameterRule::kRefused) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported);
      EXPECT_THAT(status.message(), HasSubstr(StrCat("'", row.key, "' is '", value, "'")));
      continue;
    }
    EXPECT_TRUE(status.ok()) << status.message();
    switch (row.rule) {
      case ParameterRule::kNoted:
        EXPECT_THAT(on_cpu, HasSubstr(kTunesNothing));
        EXPECT_EQ(on_cpu, on_gpu);
        break;
      case ParameterRule::kUsedOnGpu:
        EXPECT_THAT(on_cpu, HasSubstr("this backend runs on the CPU"));
        EXPECT_EQ(on_gpu, "");
        break;
      case ParameterRule::kUsedOnCpu:
        EXPECT_EQ(on_cpu, "");
        EXPECT_THAT(on_gpu, HasSubstr("this backend runs on the GPU"));
        break;
      default:
        EXPECT_EQ(on_cpu + on_gpu, "");
    }
  }
}

TEST(EngineParametersTest, ValuesThatAskForNothingPassWithoutANote) {
  for (const EngineParameter& row : EngineParameters()) {
    std::string_view idle = row.idle;
    while (!idle.empty()) {
      const std::string value(idle.substr(0, idle.find(' ')));
      EXPECT_TRUE(CheckEngineParameter(row.key, value).ok()) << row.key << " " << value;
      EXPECT_EQ(NoteOnEngineParameter(row.key, value, false), "") << row.key << " " << value;
      idle.remove_prefix(std::min(value.size() + 1, idle.size()));
    }
  }
}

TEST(EngineParametersTest, ParametersThatNeedEachOtherAreNamed) {
  const auto conflict = [](const std::map<std::string, std::string, std::less<>>& values) {
    const auto found = FindParameterConflict([&](std::string_view key) {
      const auto it = values.find(key);
      return it == values.end() ? std::string() : it->second;
    });
    return found.has_value() ? StrCat(found->key, ": ", found->status.message()) : std::string();
  };
  EXPECT_EQ(conflict({}), "");
  EXPECT_EQ(conflict({{"kv_cache_disk_path", "a"}, {"kv_cache_disk_bytes", "9"}}), "");
  EXPECT_EQ(conflict({{"kv_cache_disk_path", "a"}}),
            "kv_cache_disk_path: parameter 'kv_cache_disk_path' is 'a' and 'kv_cache_disk_bytes' "
            "is 0, expected both or none");
  EXPECT_EQ(conflict({{"kv_cache_disk_bytes", "9"}}),
            "kv_cache_disk_bytes: parameter 'kv_cache_disk_path' is '' and 'kv_cache_disk_bytes' "
            "is 9, expected both or none");
  EXPECT_EQ(conflict({{"kv_events_topic", "kv@here"}}),
            "kv_events_topic: parameter 'kv_events_topic' is 'kv@here' and 'kv_events_endpoint' is "
            "'', expected both");
  EXPECT_EQ(conflict({{"kv_events_topic", "kv@here"},
                      {"kv_events_endpoint", "tcp://*:5557"},
                      {"enable_kv_cache_reuse", "true"}}),
            "");
  EXPECT_EQ(conflict({{"decoding_mode", "medusa"}}),
            "decoding_mode: parameter 'decoding_mode' is 'medusa' and 'speculative_decoding' is "
            "'off', expected medusa=FOLDER, the folder of the heads");
  EXPECT_EQ(conflict({{"medusa_choices", "{0}"}, {"speculative_decoding", "ngram"}}),
            "medusa_choices: parameter 'medusa_choices' is '{0}' and 'speculative_decoding' is "
            "'ngram', expected medusa=FOLDER, the folder of the heads");
  EXPECT_EQ(conflict({{"decoding_mode", "medusa"}, {"speculative_decoding", "medusa=/h"}}), "");
  EXPECT_EQ(conflict({{"max_draft_tokens", "65"}}),
            "max_draft_tokens: parameter 'max_draft_tokens' is '65' and 'speculative_decoding' is "
            "'off', which drafts chains: expected 1 to 64");
  EXPECT_EQ(conflict({{"max_draft_tokens", "127"}, {"speculative_decoding", "medusa=/h"}}), "");
  EXPECT_EQ(conflict({{"kv_events_endpoint", "tcp://*:5"}, {"enable_kv_cache_reuse", "no"}}),
            "kv_events_endpoint: parameter 'kv_events_endpoint' is 'tcp://*:5' and "
            "'enable_kv_cache_reuse' is false, expected true");
  EXPECT_EQ(conflict({{"kv_events_endpoint", "tcp://*:5"}, {"enable_kv_cache_reuse", "True"}}), "");
}

TEST(EngineParametersTest, GroupsOfGpusAreRefusedWithARepair) {
  const Status status = CheckEngineParameter("gpu_device_ids", "0,1;2,3");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("'gpu_device_ids' is '0,1;2,3': groups of GPUs"));
  EXPECT_THAT(status.message(), HasSubstr("give each group a model of its own"));
}

TEST(EngineParametersTest, ValuesOfAnotherKindAreRefusedWithTheExpectedOnes) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"kv_cache_free_gpu_mem_fraction", "7", "more than 0, up to 1"},
      {"kv_cache_free_gpu_mem_fraction", "abc", "more than 0, up to 1"},
      {"kv_cache_free_gpu_mem_fraction", "0", "more than 0, up to 1"},
      {"gpu_device_ids", "x", "numbers of GPUs"},
      {"gpu_device_ids", "0,0", "numbers of GPUs"},
      {"gpu_device_ids", "0,-1", "numbers of GPUs"},
      {"gpu_device_ids", "0,", "numbers of GPUs"},
      {"max_beam_width", "2.5", "0 to 2147483647"},
      {"max_tokens_in_paged_kv_cache", "-5", "0 to 2147483647"},
      {"cpu_threads", "100000", "0 to 1024"},
      {"lora_cache_max_adapter_size", "0", "1 to 4096"},
      {"lora_cache_host_memory_bytes", "-1", "0 or more"},
      {"max_attention_window_size", "64,x", "numbers of 1 or more, separated by commas"},
      {"max_attention_window_size", "0", "numbers of 1 or more, separated by commas"},
      {"num_nodes", "two", "an integer"},
      {"enable_kv_cache_reuse", "maybe", "true or false"},
      {"decoding_mode", "redrafter", "one of: auto top_k"},
      {"batch_scheduler_policy", "static", "one of: guaranteed_no_evict"},
      {"gpt_model_type", "V2", "one of: inflight_fused_batching"},
  };
  for (const auto& [key, value, expected] : cases) {
    const Status status = CheckEngineParameter(key, value);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArg) << key;
    EXPECT_THAT(status.message(),
                HasSubstr(StrCat("parameter '", key, "' is '", value, "', expected ", expected)));
  }
}

TEST(EngineParametersTest, AMisspeltKeyIsRefusedAndAnotherOneNoted) {
  EXPECT_THAT(CheckEngineParameter("enable_kv_cache_resue", "true").message(),
              HasSubstr("did you mean 'enable_kv_cache_reuse'?"));
  EXPECT_TRUE(CheckEngineParameter("house_speciality", "soup").ok());
  EXPECT_THAT(NoteOnEngineParameter("house_speciality", "soup", true), HasSubstr("no effect"));
}

TEST(EngineParametersTest, V1IsNotedOnce) {
  EXPECT_THAT(NoteOnEngineParameter("gpt_model_type", "V1", true), HasSubstr(kTunesNothing));
}

TEST(EngineTensorsTest, NamesAreUniqueAndFoundAgain) {
  std::set<std::string_view> inputs, outputs;
  for (const EngineInput& row : EngineInputs()) {
    EXPECT_TRUE(inputs.insert(row.name).second) << row.name;
    EXPECT_EQ(FindEngineInput(row.name), &row);
    EXPECT_NE(row.about, "") << row.name;
  }
  for (const EngineOutput& row : EngineOutputs()) {
    EXPECT_TRUE(outputs.insert(row.name).second) << row.name;
    EXPECT_EQ(FindEngineOutput(row.name), &row);
  }
  EXPECT_EQ(FindEngineInput("output_ids"), nullptr);
  EXPECT_EQ(SuggestEngineInput("runtime_topk"), " (did you mean 'runtime_top_k'?)");
}

// Names of all inputs of the published configurations, from the first release to the last.
TEST(EngineTensorsTest, EveryPublishedInputHasARow) {
  for (const char* name : {"input_ids",
                           "input_lengths",
                           "request_output_len",
                           "draft_input_ids",
                           "draft_logits",
                           "draft_acceptance_threshold",
                           "encoder_input_features",
                           "encoder_output_lengths",
                           "decoder_input_ids",
                           "decoder_input_lengths",
                           "end_id",
                           "pad_id",
                           "stop_words_list",
                           "bad_words_list",
                           "embedding_bias",
                           "beam_width",
                           "num_return_sequences",
                           "temperature",
                           "runtime_top_k",
                           "runtime_top_p",
                           "runtime_top_p_min",
                           "runtime_top_p_decay",
                           "runtime_top_p_reset_ids",
                           "len_penalty",
                           "early_stopping",
                           "repetition_penalty",
                           "min_length",
                           "min_tokens",
                           "beam_search_diversity_rate",
                           "presence_penalty",
                           "frequency_penalty",
                           "prompt_ignore_length",
                           "random_seed",
                           "seed",
                           "return_log_probs",
                           "return_context_logits",
                           "return_generation_logits",
                           "return_perf_metrics",
                           "return_num_input_tokens",
                           "return_num_output_tokens",
                           "exclude_input_in_output",
                           "stop",
                           "streaming",
                           "prompt_embedding_table",
                           "prompt_table_extra_ids",
                           "prompt_vocab_size",
                           "cross_attention_mask",
                           "skip_cross_attn_blocks",
                           "lora_task_id",
                           "lora_weights",
                           "lora_config",
                           "context_phase_params",
                           "return_kv_cache_reuse_stats",
                           "retention_token_range_starts",
                           "retention_token_range_ends",
                           "retention_token_range_priorities",
                           "retention_token_range_durations_ms",
                           "retention_decode_priority",
                           "retention_decode_duration_ms",
                           "guided_decoding_guide_type",
                           "guided_decoding_guide",
                           "lookahead_window_size",
                           "lookahead_ngram_size",
                           "lookahead_verification_set_size",
                           "mrope_rotary_cos_sin",
                           "mrope_position_deltas"}) {
    EXPECT_NE(FindEngineInput(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace nereid::llm
