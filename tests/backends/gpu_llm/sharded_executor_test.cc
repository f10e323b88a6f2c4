// Several GPUs as one: all-reduce, the tiny checkpoints against one GPU and the CPU, faults of one
// GPU. Tests that need two GPUs are skipped if there are fewer.
#include "backends/gpu_llm/sharded_executor.h"

#include <future>
#include <list>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/engine_fixture.h"
#include "tests/backends/gpu_llm/single_sequence.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using cpu::testing::GoldenPrompt;
using cpu::testing::ReadGolden;
using testing::Answer;
using testing::AnswerSink;
using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::RunSequence;

// Uses all GPUs of the machine, up to four.
class AllReduceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasPair()) GTEST_SKIP() << "no two GPUs that reach each other's memory";
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    std::vector<int32_t> devices;
    for (int32_t device = 0; device < std::min(count, 4); ++device) devices.push_back(device);
    group_ = std::move(*PeerGroup::Create(devices));
    ranks_.resize(devices.size());
    for (int32_t rank = 0; rank < num_ranks(); ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      Rank& own = ranks_[rank];
      own.stream = std::move(*MakeStream());
      for (DeviceMemory* memory : {&own.partials, &own.residual, &own.normed, &own.weight})
        *memory = std::move(*DeviceMemory::Allocate(2 * kMaxElements, "a test"));
      group_->RegisterBuffers(rank,
                              {own.partials.as<__nv_bfloat16>(), own.residual.as<__nv_bfloat16>(),
                               own.normed.as<__nv_bfloat16>(), nullptr, nullptr});
    }
  }
  void TearDown() override { (void)cudaSetDevice(0); }

  int32_t num_ranks() const { return static_cast<int32_t>(ranks_.size()); }
  std::vector<uint16_t> Random(int64_t count) {
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values)
      value = Bf16Bits(static_cast<float>(random_() % 1001) / 250.0f - 2.0f);
    return values;
  }
  static void Fill(const DeviceMemory& memory, const std::vector<uint16_t>& values) {
    // The memory after the values must not change.
    ASSERT_EQ(cudaMemset(memory.data(), 0x77, memory.size_bytes()), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(memory.data(), values.data(), 2 * values.size(), cudaMemcpyDefault),
              cudaSuccess);
  }
  // Random partial sums of each GPU, then the residual.
  std::vector<std::vector<uint16_t>> FillAll(int64_t count) {
    std::vector<std::vector<uint16_t>> values;
    for (int32_t i = 0; i <= num_ranks(); ++i) values.push_back(Random(count));
    for (int32_t rank = 0; rank < num_ranks(); ++rank) {
      EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
      Fill(ranks_[rank].partials, values[rank]);
      Fill(ranks_[rank].residual, values.back());
      Fill(ranks_[rank].normed, {});
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    return values;
  }
  // Calls `start` for every GPU, then waits for all.
  template <typename Start>
  void OnAll(const Start& start) {
    for (int32_t rank = 0; rank < num_ranks(); ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      start(rank);
      ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    }
    for (Rank& rank : ranks_) ASSERT_EQ(cudaStreamSynchronize(rank.stream.get()), cudaSuccess);
    ASSERT_TRUE(group_->status().ok()) << group_->status().message();
  }
  // Updates the expected residual by one call.
  void AddPartials(std::vector<std::vector<uint16_t>>& values) const {
    for (size_t i = 0; i < values.back().size(); ++i) {
      float sum = 0.0f;
      for (int32_t rank = 0; rank < num_ranks(); ++rank) sum += FromBf16(values[rank][i]);
      values.back()[i] = Bf16Bits(sum + FromBf16(values.back()[i]));
    }
  }
  static void ExpectEqual(const DeviceMemory& memory, const std::vector<uint16_t>& expected,
                          int32_t rank) {
    const auto got = testing::ToHost<uint16_t>(memory, expected.size() + 8);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin())) << "GPU " << rank;
    for (size_t i = expected.size(); i < got.size(); ++i)
      ASSERT_EQ(got[i], 0x7777) << "GPU " << rank;
  }

  void Check(int64_t count, AllReduceAlgorithm algorithm, int num_rounds) {
    SCOPED_TRACE(::testing::Message() << count << " elements");
    auto values = FillAll(count);
    OnAll([&](int32_t rank) {
      for (int round = 0; round < num_rounds; ++round)
        AllReduce(group_->peers(rank), count, AllReduceTarget::kResidual, algorithm,
                  ranks_[rank].stream.get());
    });
    for (int round = 0; round < num_rounds; ++round) AddPartials(values);
    for (int32_t rank = 0; rank < num_ranks(); ++rank)
      ExpectEqual(ranks_[rank].residual, values.back(), rank);
  }

  // Some all-reduces with norms, then one without, as in the layers of a step. Returns the normed
  // rows.
  std::vector<uint16_t> CheckRows(int num_rows, int size, AllReduceAlgorithm algorithm,
                                  int num_rounds) {
    SCOPED_TRACE(::testing::Message() << num_rows << " rows of " << size);
    auto values = FillAll(int64_t{num_rows} * size);
    const std::vector<uint16_t> weight = Random(size);
    for (Rank& rank : ranks_) Fill(rank.weight, weight);
    const auto sum = [&](int32_t rank, bool norms) {
      AllReduceNorm(
          group_->peers(rank),
          {norms ? ranks_[rank].weight.as<__nv_bfloat16>() : nullptr, num_rows, size, 1e-5f},
          algorithm, ranks_[rank].stream.get());
    };
    OnAll([&](int32_t rank) {
      for (int round = 0; round < num_rounds; ++round) sum(rank, true);
    });
    for (int round = 0; round < num_rounds; ++round) AddPartials(values);
    std::vector<float> expected(values.back().size());
    for (int row = 0; row < num_rows; ++row) {
      const uint16_t* from = values.back().data() + int64_t{row} * size;
      double squares = 0.0;
      for (int i = 0; i < size; ++i) squares += double{FromBf16(from[i])} * FromBf16(from[i]);
      const double scale = 1.0 / std::sqrt(squares / size + 1e-5);
      for (int i = 0; i < size; ++i) {
        expected[int64_t{row} * size + i] =
            static_cast<float>(FromBf16(from[i]) * scale * FromBf16(weight[i]));
      }
    }
    std::vector<uint16_t> first;
    for (int32_t rank = 0; rank < num_ranks(); ++rank) {
      const auto bits = testing::ToHost<uint16_t>(ranks_[rank].normed, expected.size());
      if (rank == 0) first = bits;
      EXPECT_EQ(bits, first) << "GPU " << rank;
      std::vector<float> got;
      for (const uint16_t value : bits) got.push_back(FromBf16(value));
      EXPECT_LT(RelativeError(got, expected), 4e-3) << "GPU " << rank;
    }
    OnAll([&](int32_t rank) { sum(rank, false); });
    AddPartials(values);
    for (int32_t rank = 0; rank < num_ranks(); ++rank)
      ExpectEqual(ranks_[rank].residual, values.back(), rank);
    return first;
  }

  static constexpr int64_t kMaxElements = 5'000'000;
  struct Rank {
    Stream stream;
    DeviceMemory partials, residual, normed, weight;
  };
  std::unique_ptr<PeerGroup> group_;
  std::vector<Rank> ranks_;
  std::mt19937 random_{3};
};

TEST_F(AllReduceTest, EveryGpuHasThePlainSum) {
  // 512 * 1024 elements are 1 MiB.
  for (const int64_t count : {1, 3, 4, 8, 31, 2048, 4096, 4097, 262144, 512 * 1024, 4'000'003}) {
    for (const AllReduceAlgorithm algorithm :
         {AllReduceAlgorithm::kAuto, AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot}) {
      Check(count, algorithm, 1);
      Check(count, algorithm, 5);
    }
  }
}

TEST_F(AllReduceTest, EveryGpuHasTheNormedRows) {
  const std::pair<int, int> sizes[] = {{1, 8},     {1, 8192}, {3, 4104}, {8, 8192},   {16, 16384},
                                       {128, 776}, {31, 64},  {70, 512}, {301, 4096}, {129, 2048}};
  for (const auto& [rows, size] : sizes) {
    for (const AllReduceAlgorithm algorithm :
         {AllReduceAlgorithm::kAuto, AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot}) {
      CheckRows(rows, size, algorithm, 1);
      CheckRows(rows, size, algorithm, 4);
    }
  }
}

TEST_F(AllReduceTest, NormedRowsAreBitIdenticalWithBothAlgorithms) {
  // One-shot with eight blocks a row, four, two, one.
  const std::pair<int, int> sizes[] = {{1, 64},     {1, 4104},  {1, 16384}, {16, 16384},
                                       {17, 15416}, {33, 7936}, {65, 4032}, {100, 2048}};
  for (const auto& [rows, size] : sizes) {
    ASSERT_LE(int64_t{rows} * size, MaxOneShotElements());
    random_.seed(size);
    const auto one_shot = CheckRows(rows, size, AllReduceAlgorithm::kOneShot, 1);
    random_.seed(size);
    EXPECT_EQ(CheckRows(rows, size, AllReduceAlgorithm::kTwoShot, 1), one_shot)
        << rows << " rows of " << size;
  }
}

TEST_F(AllReduceTest, CallsOfManySizesFollowEachOther) {
  for (int round = 0; round < 60; ++round) {
    const auto count = static_cast<int64_t>(random_() % 300'000 + 1);
    Check(count, AllReduceAlgorithm::kAuto, static_cast<int>(random_() % 4 + 1));
    CheckRows(static_cast<int>(random_() % 200 + 1), 1024, AllReduceAlgorithm::kAuto,
              static_cast<int>(random_() % 3 + 1));
  }
}

TEST_F(AllReduceTest, AWaitingKernelIsWoken) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const Peers& peers = group_->peers(0);
  cudaStream_t stream = ranks_[0].stream.get();
  for (const AllReduceAlgorithm algorithm :
       {AllReduceAlgorithm::kOneShot, AllReduceAlgorithm::kTwoShot}) {
    AllReduce(peers, 4096, AllReduceTarget::kResidual, algorithm, stream);
    AllReduceNorm(peers, {nullptr, 2, 2048, 1e-5f}, algorithm, stream);
  }
  EXPECT_TRUE(group_->status().ok());
  group_->Stop();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_NE(group_->status().message().find("another GPU"), std::string::npos);
}

Result<llm::DecoderModel> ReadModel(const std::string& directory) {
  // Checkpoints that the models view.
  static std::list<llm::Checkpoint> checkpoints;
  checkpoints.push_back(std::move(*llm::Checkpoint::Open(directory)));
  return llm::ReadDecoder(checkpoints.back(), true);
}

GpuExecutorOptions Options() {
  GpuExecutorOptions options;
  options.max_num_sequences = 16;
  options.max_num_tokens = 256;
  options.max_cache_tokens = 4096;
  options.steps_before_recording = 1;
  return options;
}

TEST(ShardedExecutorRefusalTest, HeadsThatCanNotBeDividedAreRefusedWithBothNumbers) {
  const std::string directory = FindTiny("llama");
  if (directory.empty()) GTEST_SKIP() << "no test data for llama";
  const std::vector<int32_t> devices = {0, 1, 2};
  const auto executor = ShardedExecutor::Create(*ReadModel(directory), Options(), devices);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(executor.status().message().find("num_attention_heads is 4, which 3 GPUs"),
            std::string::npos)
      << executor.status().message();
}

class ShardedExecutorTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!testing::HasPair()) GTEST_SKIP() << "no two GPUs that reach each other's memory";
    directory_ = FindTiny(GetParam());
    if (directory_.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  }
  std::unique_ptr<ShardedExecutor> Load() {
    auto executor = ShardedExecutor::Create(*ReadModel(directory_), Options(), testing::kPair);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }
  std::string directory_;
};

// As in executor_test.cc, and one more rounding for each all-reduce.
constexpr double kShardedLogitTolerance = 8e-2;
constexpr double kExpertTolerance = 3e-1;

TEST_P(ShardedExecutorTest, TwoGpusGiveTheLogitsOfOneAndOfTheCpu) {
  const std::unique_ptr<ShardedExecutor> two = Load();
  ASSERT_NE(two, nullptr);
  auto one = GpuExecutor::Create(*ReadModel(directory_), Options());
  ASSERT_TRUE(one.ok()) << one.status().message();
  auto checkpoint =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  auto cpu = cpu::CpuExecutor::Create(checkpoint, *llm::ReadDecoder(*checkpoint, true), {});
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const bool has_experts = (*one)->spec().moe.num_experts > 0;
  int64_t compared = 0, equal = 0, equal_to_one = 0;
  for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
    const auto length = static_cast<int32_t>(prompt.ids.size());
    const int32_t rows = std::min(length, 100);
    const auto expected = RunSequence(**cpu, prompt.ids, 0, rows);
    const auto got = RunSequence(*two, prompt.ids, 0, rows);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_LT(RelativeError(got, expected), has_experts ? kExpertTolerance : kShardedLogitTolerance)
        << "prompt of " << length;
    RunSequence(**one, prompt.ids, 0, rows);
    for (size_t step = 0; step + 1 < prompt.greedy.size(); ++step) {
      const auto token = std::span<const int32_t>(prompt.greedy).subspan(step, 1);
      const auto at = length + static_cast<int32_t>(step);
      const auto of_two = RunSequence(*two, token, at, 1);
      ASSERT_FALSE(of_two.empty());
      ++compared;
      equal += llm::ArgMax(of_two) == prompt.greedy[step + 1];
      equal_to_one += llm::ArgMax(of_two) == llm::ArgMax(RunSequence(**one, token, at, 1));
    }
  }
  // Near ties may be resolved differently.
  EXPECT_GE(equal, compared * 9 / 10) << "of " << compared;
  EXPECT_GE(equal_to_one, compared * 9 / 10) << "of " << compared;
  EXPECT_GT(two->counts().num_recorded_steps, 0);
  EXPECT_GT(two->memory().gpu_bytes, (*one)->memory().gpu_bytes);
}

TEST_P(ShardedExecutorTest, MemoryOfAllGpusIsFreed) {
  Load();  // memory that the CUDA contexts keep
  size_t before[2] = {}, after[2] = {}, total = 0;
  const auto measure = [&](size_t(&bytes)[2]) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      ASSERT_EQ(cudaMemGetInfo(&bytes[rank], &total), cudaSuccess);
    }
  };
  measure(before);
  {
    const std::unique_ptr<ShardedExecutor> executor = Load();
    ASSERT_NE(executor, nullptr);
    RunSequence(*executor, std::vector<int32_t>{1, 2, 3}, 0, 1);
    RunSequence(*executor, std::vector<int32_t>{4}, 3, 1);
  }
  measure(after);
  for (int32_t rank = 0; rank < 2; ++rank)
    EXPECT_LT(static_cast<double>(before[rank]) - static_cast<double>(after[rank]), 64e6) << rank;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ShardedExecutorTest,
                         ::testing::ValuesIn(cpu::testing::AllCheckpoints()),
                         cpu::testing::kNameOfCheckpoint);

class ShardedEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::HasPair()) GTEST_SKIP() << "no two GPUs that reach each other's memory";
    directory_ = FindTiny("llama");
    if (directory_.empty()) GTEST_SKIP() << "no test data for llama";
  }
  std::unique_ptr<llm::Engine> Start(bool overlaps, int32_t failing_rank = -1) {
    auto executor = ShardedExecutor::Create(*ReadModel(directory_), Options(), testing::kPair);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    if (!executor.ok()) return nullptr;
    if (failing_rank >= 0) (*executor)->rank(failing_rank).FailAt(20);
    llm::EngineOptions options;
    options.overlaps_steps = overlaps;
    options.scheduler.prefix_cache = true;
    return std::make_unique<llm::Engine>(std::move(options), std::move(*executor));
  }
  static std::future<Answer> Send(llm::Engine& engine, std::mt19937& random) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt.resize(random() % 150 + 1);
    for (int32_t& id : request->prompt) id = static_cast<int32_t>(random() % 512);
    request->stop.max_tokens = static_cast<int32_t>(random() % 60 + 30);
    if (random() % 2 == 0) {
      request->sampling.temperature = 0.8f;
      request->sampling.top_p = 0.9f;
      request->sampling.seed = random();
    }
    std::promise<Answer> promise;
    std::future<Answer> answer = promise.get_future();
    request->sink = std::make_unique<AnswerSink>(std::move(promise), /*cancel_after=*/0);
    const Status queued = engine.Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }
  std::string directory_;
};

// One at a time, so that every step has the same shape in both runs.
TEST_F(ShardedEngineTest, OverlappedStepsGiveTheSameTokens) {
  std::vector<std::vector<llm::TokenIds>> all;
  for (const bool overlaps : {false, true}) {
    const std::unique_ptr<llm::Engine> engine = Start(overlaps);
    ASSERT_NE(engine, nullptr);
    std::mt19937 random(3);
    std::vector<llm::TokenIds>& answers = all.emplace_back();
    for (int i = 0; i < 30; ++i) {
      const Answer answer = Send(*engine, random).get();
      EXPECT_TRUE(answer.error.ok()) << answer.error.message();
      answers.push_back(answer.ids);
    }
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST_F(ShardedEngineTest, ManyRequestsOfAllShapesAreAnswered) {
  const std::unique_ptr<llm::Engine> engine = Start(true);
  ASSERT_NE(engine, nullptr);
  std::mt19937 random(4);
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 400; ++i) answers.push_back(Send(*engine, random));
  for (auto& answer : answers) {
    const Answer got = answer.get();
    EXPECT_TRUE(got.error.ok()) << got.error.message();
  }
  EXPECT_TRUE(engine->health().ok()) << engine->health().message();
}

TEST_F(ShardedEngineTest, AFaultOfOneGpuAnswersEveryRequestAndOtherModelsServe) {
  auto beside = GpuExecutor::Create(*ReadModel(directory_), Options());
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  const std::vector<int32_t> prompt = {5, 6, 7, 8};
  const std::vector<float> before = RunSequence(**beside, prompt, 0, 1);
  for (const bool overlaps : {false, true}) {
    for (int32_t failing = 0; failing < 2; ++failing) {
      const std::unique_ptr<llm::Engine> engine = Start(overlaps, failing);
      ASSERT_NE(engine, nullptr);
      std::mt19937 random(5);
      std::vector<std::future<Answer>> answers;
      for (int i = 0; i < 30; ++i) answers.push_back(Send(*engine, random));
      for (auto& answer : answers) {
        const Answer got = answer.get();
        EXPECT_NE(got.error.message().find("an injected fault"), std::string::npos)
            << got.error.message();
      }
      EXPECT_FALSE(engine->health().ok());
      EXPECT_EQ(RunSequence(**beside, prompt, 0, 1), before);
    }
  }
  const std::unique_ptr<llm::Engine> again = Start(true);
  ASSERT_NE(again, nullptr);
  std::mt19937 random(6);
  EXPECT_TRUE(Send(*again, random).get().error.ok());
}

}  // namespace
}  // namespace nereid::gpu
