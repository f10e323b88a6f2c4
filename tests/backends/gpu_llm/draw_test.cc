// Sampling on the device against llm_core's sampler: the same tokens, unless two are closer than
// the difference of the two implementations of the logarithm.
#include "backends/gpu_llm/kernels/sampling/sample.h"

#include <random>

#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::ToDevice;
using testing::ToHost;

struct DrawCase {
  const char* name;
  int32_t vocab_size = 1024;
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 0.0f;
  float min_p = 0.0f;
  bool penalties = false;
  bool bans_all = false;
  int mask_every = 0;  // every so many rows have a mask, with random tokens; 0: none
  float step = 0.0f;   // logits are multiples of it, which produces ties
};

class DrawTest : public testing::GpuTest<::testing::TestWithParam<DrawCase>> {};

TEST_P(DrawTest, DrawsWhatTheCpuDraws) {
  constexpr int32_t kRows = 64;
  const DrawCase& given = GetParam();
  const int32_t vocab = given.vocab_size;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(size_t{kRows} * vocab);
  for (float& logit : logits) {
    logit = normal(random);
    if (given.step > 0.0f) logit = std::round(logit / given.step) * given.step;
  }
  std::vector<llm::SamplingParams> params(kRows);
  std::vector<std::vector<int32_t>> tokens(kRows);
  const auto num_words = static_cast<size_t>(llm::TokenMaskWords(vocab));
  std::vector<std::vector<uint32_t>> masks(kRows);
  llm::StepBatch batch;
  for (int32_t row = 0; row < kRows; ++row) {
    llm::SamplingParams& p = params[row];
    p.temperature = given.temperature;
    p.top_k = given.top_k;
    p.top_p = given.top_p;
    p.min_p = given.min_p;
    p.seed = random() | uint64_t{random()} << 32;
    p.returns_log_probs = true;
    tokens[row].resize(random() % 50 + 1);
    for (int32_t& id : tokens[row]) id = static_cast<int32_t>(random() % vocab);
    if (given.penalties) {
      p.repetition_penalty = 1.3f;
      p.presence_penalty = 0.5f;
      p.frequency_penalty = 0.25f;
      p.bad_words = {{static_cast<int32_t>(random() % vocab)}};
    }
    for (int32_t id = 0; given.bans_all && id < vocab; ++id) p.bad_words.push_back({id});
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.slot = kRows - 1 - row;
    sequence.num_logits = 1;
    sequence.samples = true;
    sequence.sampling = {&p, tokens[row], 0, {}};
    if (given.mask_every == 0 || row % given.mask_every != 0) continue;
    masks[row].resize(num_words);
    for (uint32_t& word : masks[row]) word = random() & random() & random();
    sequence.token_masks = masks[row];
  }
  DrawPlanner planner(vocab, 1 << 14);
  planner.Plan(batch);
  ASSERT_EQ(planner.items().size(), size_t{kRows});
  const DeviceMemory device_logits = ToDevice(logits);
  const DeviceMemory items =
      ToDevice(std::vector<DrawItem>(planner.items().begin(), planner.items().end()));
  const DeviceMemory edits =
      ToDevice(std::vector<LogitEdit>(planner.edits().begin(), planner.edits().end()));
  std::vector<uint32_t> mask_words(num_words);  // at least one row
  for (size_t i = 0; i < planner.masks().size(); ++i) {
    mask_words.resize((i + 1) * num_words);
    std::copy(planner.masks()[i].begin(), planner.masks()[i].end(),
              mask_words.end() - static_cast<ptrdiff_t>(num_words));
  }
  const DeviceMemory device_masks = ToDevice(mask_words);
  std::vector<float> log_sums(kRows);
  std::vector<int32_t> slots(kRows);
  for (int32_t row = 0; row < kRows; ++row) {
    double sum = 0.0;
    for (int32_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[size_t{row} * vocab + i]});
    log_sums[row] = static_cast<float>(std::log(sum));
    slots[row] = batch.entries[row].slot;
  }
  const DeviceMemory device_sums = ToDevice(log_sums), device_slots = ToDevice(slots);
  const DeviceMemory half = ToDevice(std::vector<int32_t>{1});
  const DeviceMemory ids = ToDevice(std::vector<int32_t>(2 * kRows, -2));
  const DeviceMemory log_probs = ToDevice(std::vector<float>(2 * kRows));
  const DeviceMemory last_tokens = ToDevice(std::vector<int32_t>(kRows, -1));
  DrawParams draw = {};
  draw.logits = device_logits.as<float>();
  draw.log_sums = device_sums.as<float>();
  draw.items = items.as<DrawItem>();
  draw.edits = edits.as<LogitEdit>();
  draw.target = {half.as<int32_t>(),         ids.as<int32_t>(),         log_probs.as<float>(),
                 device_slots.as<int32_t>(), last_tokens.as<int32_t>(), kRows};
  draw.masks = device_masks.as<uint32_t>();
  draw.mask_words = static_cast<int>(num_words);
  draw.num_items = kRows;
  draw.vocab_size = vocab;
  DrawTokens(draw, nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto drawn = ToHost<int32_t>(ids, 2 * kRows);
  const auto drawn_log_probs = ToHost<float>(log_probs, 2 * kRows);
  const auto last = ToHost<int32_t>(last_tokens, kRows);
  llm::Sampler sampler;
  int32_t equal = 0;
  for (int32_t row = 0; row < kRows; ++row) {
    std::vector<float> own(logits.begin() + ptrdiff_t{row} * vocab,
                           logits.begin() + ptrdiff_t{row + 1} * vocab);
    llm::SamplingInput input = batch.entries[row].sampling;
    input.token_mask = masks[row];
    const llm::SampledToken expected = sampler.Sample(own, input);
    if (!masks[row].empty() && drawn[kRows + row] >= 0) {
      EXPECT_TRUE(masks[row][drawn[kRows + row] / 32] >> (drawn[kRows + row] % 32) & 1);
    }
    EXPECT_EQ(drawn[row], -2) << "the other half";
    EXPECT_EQ(last[slots[row]], std::max(0, drawn[kRows + row]));  // a valid id for the next step
    if (drawn[kRows + row] != expected.id) continue;
    ++equal;
    EXPECT_NEAR(drawn_log_probs[kRows + row], expected.log_prob, 1e-4f);
  }
  EXPECT_GE(equal, kRows - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, DrawTest,
    ::testing::Values(
        DrawCase{.name = "Whole", .temperature = 0.7f, .top_p = 1.0f},
        DrawCase{.name = "TopK", .top_k = 40},
        DrawCase{.name = "TopKMore", .vocab_size = 100, .top_k = 500},
        DrawCase{.name = "TopP", .top_p = 0.8f}, DrawCase{.name = "TopPSmall", .top_p = 0.01f},
        DrawCase{.name = "TopKTopP", .temperature = 1.5f, .top_k = 50, .top_p = 0.5f},
        DrawCase{.name = "MinP", .min_p = 0.1f},
        DrawCase{.name = "All",
                 .temperature = 0.9f,
                 .top_k = 300,
                 .top_p = 0.9f,
                 .min_p = 0.01f,
                 .penalties = true},
        DrawCase{.name = "Ties", .top_k = 37, .step = 1.0f},
        DrawCase{.name = "TiesTopP", .top_p = 0.6f, .step = 2.0f},
        DrawCase{.name = "AllEqual", .top_k = 10, .step = 1000.0f},
        DrawCase{.name = "Penalties", .top_k = 1, .penalties = true},
        DrawCase{.name = "BansAllGreedy", .vocab_size = 100, .top_k = 1, .bans_all = true},
        DrawCase{.name = "BansAllTopP", .vocab_size = 100, .top_p = 0.9f, .bans_all = true},
        DrawCase{.name = "MaskGreedy", .top_k = 1, .mask_every = 1},
        DrawCase{.name = "MaskWhole", .temperature = 2.0f, .top_p = 1.0f, .mask_every = 2},
        DrawCase{.name = "MaskAll",
                 .vocab_size = 1028,
                 .temperature = 0.9f,
                 .top_k = 300,
                 .top_p = 0.9f,
                 .min_p = 0.01f,
                 .penalties = true,
                 .mask_every = 3},
        DrawCase{.name = "MaskWide",
                 .vocab_size = 128256,
                 .temperature = 2.0f,
                 .top_p = 0.95f,
                 .mask_every = 1},
        DrawCase{.name = "Wide", .vocab_size = 128256, .temperature = 0.8f, .top_p = 0.95f}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nereid::gpu
