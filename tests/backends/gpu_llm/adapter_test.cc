// LoRA adapters on the GPU: the kernels compared with sums in double precision, the executor with
// the CPU's, and an engine with less memory than its adapters need with each request alone.
#include <cuda_fp16.h>

#include <random>

#include "backends/gpu_llm/kernels/gemm/adapter_gemm.h"
#include "tests/backends/gpu_llm/adapter_parts.h"
#include "tests/backends/gpu_llm/engine_fixture.h"
#include "tests/backends/gpu_llm/single_sequence.h"
#include "tests/backends/gpu_llm/tiny_model.h"
#include "tests/backends/llm_core/adapter_files.h"

namespace nereid::gpu {
namespace {

using cpu::testing::GoldenPrompt;
using cpu::testing::ReadGolden;
using testing::AdapterPointer;
using testing::Answer;
using testing::Bf16Bits;
using testing::FromBf16;
using testing::LogitsOf;
using testing::MakeAdapter;
using testing::Part;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

// ---- Kernels.

struct HostMatrix {
  std::vector<uint16_t> a, b;  // [rank, depth], [outputs, rank]
  int32_t rank;
  float scale;
  DeviceMemory device_a, device_b;
};

std::vector<uint16_t> RandomBf16(std::mt19937& random, size_t count) {
  std::uniform_real_distribution<float> number(-1.0f, 1.0f);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = Bf16Bits(number(random));
  return values;
}

HostMatrix MakeMatrix(std::mt19937& random, int32_t rank, int depth, int num_outputs) {
  HostMatrix matrix;
  matrix.rank = rank;
  matrix.scale = 0.5f;
  matrix.a = RandomBf16(random, static_cast<size_t>(rank) * depth);
  matrix.b = RandomBf16(random, static_cast<size_t>(rank) * num_outputs);
  matrix.device_a = ToDevice(matrix.a);
  matrix.device_b = ToDevice(matrix.b);
  return matrix;
}

class AdapterKernelTest : public testing::GpuTest<::testing::TestWithParam<int>> {};

// Three slots of different ranks, one of which does not change the second module; rows without an
// adapter between, and tiles of one row and of several. The same rows give the same bits when each
// of them is a tile of its own.
TEST_P(AdapterKernelTest, RowsOfManyAdaptersEqualTheirSums) {
  const int depth = GetParam();
  constexpr int kNumRows = 45, kMaxRank = 80;
  constexpr int kOutputs[] = {1096, 72};
  constexpr int64_t kStride = 1096 + 72 + 8;
  std::mt19937 random(7);
  std::vector<std::vector<HostMatrix>> slots;
  for (const int32_t rank : {16, 80, 32}) {
    std::vector<HostMatrix>& slot = slots.emplace_back();
    for (const int outputs : kOutputs) slot.push_back(MakeMatrix(random, rank, depth, outputs));
  }
  slots[2][1].rank = 0;
  std::vector<AdapterMatrix> table;
  for (const auto& slot : slots) {
    for (const HostMatrix& matrix : slot) {
      table.push_back({matrix.device_a.as<__nv_bfloat16>(), matrix.device_b.as<__nv_bfloat16>(),
                       matrix.rank, matrix.scale});
    }
  }
  const std::vector<AdapterTile> tiles = {{0, 16, 1},  {16, 3, 1}, {20, 1, 0},
                                          {21, 16, 2}, {37, 5, 0}, {44, 1, -1}};
  std::vector<int32_t> row_slots(kNumRows, -1);
  for (const AdapterTile& tile : tiles)
    std::fill_n(row_slots.begin() + tile.first_row, tile.num_rows, tile.slot);
  const std::vector<uint16_t> in = RandomBf16(random, size_t{kNumRows} * depth);
  const std::vector<uint16_t> before = RandomBf16(random, size_t{kNumRows} * kStride);
  const DeviceMemory device_table = ToDevice(table), device_tiles = ToDevice(tiles);
  const DeviceMemory device_slots = ToDevice(row_slots), device_in = ToDevice(in);
  const int64_t low_rank_stride = int64_t{2} * NumAdapterParts(depth) * kMaxRank;
  const DeviceMemory low_rank =
      ToDevice(std::vector<float>(static_cast<size_t>(kNumRows * low_rank_stride), NAN));
  std::vector<uint16_t> first_result;
  for (const bool uses_tiles : {true, false}) {
    const DeviceMemory out = ToDevice(before);
    AdapterGemmParams params = {};
    params.rows = {device_table.as<AdapterMatrix>(), 2,       nullptr,
                   device_slots.as<int32_t>(),       nullptr, kNumRows};
    if (uses_tiles) {
      params.rows.tiles = device_tiles.as<AdapterTile>();
      params.rows.num_tiles = static_cast<int>(tiles.size());
    }
    params.modules[0] = {0, kOutputs[0], 0, false};
    params.modules[1] = {1, kOutputs[1], kOutputs[0], false};
    params.num_modules = 2;
    params.in = device_in.as<__nv_bfloat16>();
    params.depth = depth;
    params.low_rank = low_rank.as<float>();
    params.low_rank_stride = low_rank_stride;
    params.max_rank = kMaxRank;
    params.out = out.data();
    params.out_stride = kStride;
    AdapterShrink(params, nullptr);
    AdapterExpand(params, nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<uint16_t> result = ToHost<uint16_t>(out, before.size());
    if (!uses_tiles) {
      EXPECT_EQ(result, first_result);
      continue;
    }
    first_result = result;
    double largest = 0.0;
    for (int row = 0; row < kNumRows; ++row) {
      for (int column = 0; column < kStride; ++column) {
        const size_t at = size_t(row) * kStride + column;
        const int module = column < kOutputs[0] ? 0 : 1;
        const int output = column - (module == 0 ? 0 : kOutputs[0]);
        const HostMatrix* matrix = row_slots[row] >= 0 && output < kOutputs[module]
                                       ? &slots[row_slots[row]][module]
                                       : nullptr;
        if (matrix == nullptr || matrix->rank == 0) {
          ASSERT_EQ(result[at], before[at]) << row << " " << column;
          continue;
        }
        double sum = 0.0, size = 0.0;
        for (int r = 0; r < matrix->rank; ++r) {
          double inner = 0.0;
          for (int k = 0; k < depth; ++k)
            inner += double{FromBf16(in[size_t(row) * depth + k])} *
                     FromBf16(matrix->a[size_t(r) * depth + k]);
          const double part = inner * FromBf16(matrix->b[size_t(output) * matrix->rank + r]);
          sum += part;
          size += std::abs(part);
        }
        const double expected = FromBf16(before[at]) + 0.5 * sum;
        const double error = std::abs(FromBf16(result[at]) - expected);
        largest = std::max(largest, error / (std::abs(expected) / 256 + 1e-4 * size + 1e-3));
      }
    }
    EXPECT_LT(largest, 1.0);
  }
}

// Of three adapters, one changes gate alone and one has different ranks; rows without an adapter
// get their gate, too.
TEST_P(AdapterKernelTest, GatedRowsEqualTheGateOfTheSums) {
  const int depth = GetParam();
  constexpr int kNumRows = 21, kMaxRank = 32, kOutputs = 296;
  std::mt19937 random(9);
  std::vector<std::vector<HostMatrix>> slots;
  for (const auto& [gate_rank, up_rank] : {std::pair{16, 16}, {32, 0}, {16, 32}}) {
    std::vector<HostMatrix>& slot = slots.emplace_back();
    slot.push_back(MakeMatrix(random, gate_rank, depth, kOutputs));
    slot.push_back(MakeMatrix(random, std::max(up_rank, 16), depth, kOutputs));
    slot[1].rank = up_rank;
  }
  std::vector<AdapterMatrix> table;
  for (const auto& slot : slots) {
    for (const HostMatrix& matrix : slot) {
      table.push_back({matrix.device_a.as<__nv_bfloat16>(), matrix.device_b.as<__nv_bfloat16>(),
                       matrix.rank, matrix.scale / static_cast<float>(depth)});
    }
  }
  const std::vector<AdapterTile> tiles = {{0, 11, 1}, {11, 2, -1}, {13, 5, 0}, {18, 3, 2}};
  std::vector<int32_t> row_slots(kNumRows, -1);
  for (const AdapterTile& tile : tiles)
    std::fill_n(row_slots.begin() + tile.first_row, tile.num_rows, tile.slot);
  const std::vector<uint16_t> in = RandomBf16(random, size_t{kNumRows} * depth);
  const std::vector<uint16_t> before = RandomBf16(random, size_t{kNumRows} * 2 * kOutputs);
  const DeviceMemory device_table = ToDevice(table), device_tiles = ToDevice(tiles);
  const DeviceMemory device_slots = ToDevice(row_slots), device_in = ToDevice(in);
  const DeviceMemory gate_up = ToDevice(before);
  const int64_t low_rank_stride = int64_t{2} * NumAdapterParts(depth) * kMaxRank;
  const DeviceMemory low_rank =
      ToDevice(std::vector<float>(static_cast<size_t>(kNumRows * low_rank_stride), NAN));
  std::vector<uint16_t> first_result;
  for (const bool uses_tiles : {true, false}) {
    const DeviceMemory gated = ToDevice(std::vector<uint16_t>(size_t{kNumRows} * kOutputs));
    AdapterGemmParams params = {};
    params.rows = {device_table.as<AdapterMatrix>(), 2,       nullptr,
                   device_slots.as<int32_t>(),       nullptr, kNumRows};
    if (uses_tiles) {
      params.rows.tiles = device_tiles.as<AdapterTile>();
      params.rows.num_tiles = static_cast<int>(tiles.size());
    }
    params.modules[0] = {0, kOutputs, 0, true};
    params.modules[1] = {1, kOutputs, 8, true};
    params.num_modules = 2;
    params.in = device_in.as<__nv_bfloat16>();
    params.depth = depth;
    params.low_rank = low_rank.as<float>();
    params.low_rank_stride = low_rank_stride;
    params.max_rank = kMaxRank;
    params.out = gate_up.data();
    params.out_stride = 2 * kOutputs;
    params.output = AdapterOutput::kSiluGate;
    params.gated = gated.as<__nv_bfloat16>();
    AdapterShrink(params, nullptr);
    AdapterExpand(params, nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto result = ToHost<uint16_t>(gated, size_t{kNumRows} * kOutputs);
    if (!uses_tiles) {
      EXPECT_EQ(result, first_result);
      continue;
    }
    first_result = result;
    double largest = 0.0;
    for (int row = 0; row < kNumRows; ++row) {
      for (int output = 0; output < kOutputs; ++output) {
        double sums[2];
        for (int module = 0; module < 2; ++module) {
          const int column = output / 8 * 16 + output % 8 + 8 * module;
          sums[module] = FromBf16(before[size_t(row) * 2 * kOutputs + column]);
          if (row_slots[row] < 0) continue;
          const HostMatrix& matrix = slots[row_slots[row]][module];
          for (int r = 0; r < matrix.rank; ++r) {
            double inner = 0.0;
            for (int k = 0; k < depth; ++k)
              inner += double{FromBf16(in[size_t(row) * depth + k])} *
                       FromBf16(matrix.a[size_t(r) * depth + k]);
            sums[module] +=
                0.5 / depth * inner * FromBf16(matrix.b[size_t(output) * matrix.rank + r]);
          }
        }
        const double expected = sums[0] / (1.0 + std::exp(-sums[0])) * sums[1];
        const double error = std::abs(FromBf16(result[size_t(row) * kOutputs + output]) - expected);
        largest = std::max(largest, error / (std::abs(expected) / 256 + 1e-3));
      }
    }
    EXPECT_LT(largest, 1.0);
  }
}

// Depths of one part that is not full, of several steps, and of several parts.
INSTANTIATE_TEST_SUITE_P(Depths, AdapterKernelTest, ::testing::Values(64, 200, 1024, 2600));

// ---- Executors.

class AdapterExecutorTest : public testing::TinyModelTest {
 protected:
  std::unique_ptr<GpuExecutor> Load(int64_t adapter_bytes, bool is_batch_invariant = false) const {
    GpuExecutorOptions options = SmallOptions();
    options.max_num_tokens = 512;
    options.max_cache_tokens = 8 * 256;
    options.adapter_memory_bytes = adapter_bytes;
    options.is_batch_invariant = is_batch_invariant;
    options.steps_before_recording = 1;
    return LoadGpu(Model(), options);
  }
  std::unique_ptr<cpu::CpuExecutor> LoadCpu() const {
    cpu::CpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 512;
    options.max_positions = 256;
    return TinyModelTest::LoadCpu(Model(), options);
  }
};

// As ExecutorTest: bf16 against float. The adapters' own roundings come on top.
constexpr double kAdapterLogitTolerance = 8e-2;

TEST_P(AdapterExecutorTest, LogitsEqualTheCpusWithinBf16) {
  const auto gpu = Load(int64_t{8} << 20);
  ASSERT_NE(gpu, nullptr);
  const auto cpu = LoadCpu();
  const llm::DecoderModel model = Model();
  const AdapterPointer first = MakeAdapter(model, 3, false, 1);
  const AdapterPointer second = MakeAdapter(model, 8, true, 1000);
  const AdapterPointer third = MakeAdapter(model, 37, false, 2000);
  ASSERT_TRUE(first && second && third);
  std::vector<int32_t> tokens = ReadGolden(directory_).back().ids;
  tokens.resize(std::min<size_t>(tokens.size(), 60));
  const std::vector<int32_t> short_tokens(tokens.begin(), tokens.begin() + tokens.size() / 2);
  std::vector<Part> parts = {{tokens, first},
                             {tokens, nullptr},
                             {short_tokens, second},
                             {tokens, third},
                             {short_tokens, first}};
  const auto wanted = LogitsOf(*cpu, parts), got = LogitsOf(*gpu, parts);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSERT_EQ(got[i].size(), wanted[i].size());
    EXPECT_LT(RelativeError(got[i], wanted[i]), kAdapterLogitTolerance) << "part " << i;
  }
  EXPECT_GT(RelativeError(wanted[0], wanted[1]), 2 * kAdapterLogitTolerance);
  // Decode steps, most of which are recorded.
  for (int32_t step = 0; step < 6; ++step) {
    for (Part& part : parts) {
      part.num_cached += static_cast<int32_t>(part.tokens.size());
      part.tokens = {5 + step};
    }
    const auto wanted_rows = LogitsOf(*cpu, parts, 1), got_rows = LogitsOf(*gpu, parts, 1);
    ASSERT_EQ(got_rows.size(), wanted_rows.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_LT(RelativeError(got_rows[i], wanted_rows[i]), kAdapterLogitTolerance)
          << "step " << step << ", part " << i;
    }
  }
  EXPECT_GT(gpu->num_graph_steps(), 0);
}

// Also while other adapters come and go in memory for two.
TEST_P(AdapterExecutorTest, BatchInvariantBitsAreThoseOfTheSequenceAlone) {
  const llm::DecoderModel model = Model();
  std::vector<AdapterPointer> adapters = {nullptr};
  for (uint32_t i = 1; i <= 5; ++i)
    adapters.push_back(MakeAdapter(model, i % 2 == 0 ? 4 : 20, false, 500 * i));
  const auto sized = Load(int64_t{8} << 20);
  ASSERT_NE(sized, nullptr);
  const auto gpu = Load(2 * *sized->AdapterBytes(*adapters[1]), true);
  ASSERT_NE(gpu, nullptr);
  std::vector<int32_t> tokens = ReadGolden(directory_).back().ids;
  tokens.resize(std::min<size_t>(tokens.size(), 33));
  std::vector<std::vector<float>> alone;
  for (const AdapterPointer& adapter : adapters)
    alone.push_back(LogitsOf(*gpu, {{tokens, adapter}})[0]);
  for (const auto& [i, j] : {std::pair{1, 2}, {3, 4}, {5, 1}, {2, 3}}) {
    const auto mixed =
        LogitsOf(*gpu, {{tokens, adapters[i]}, {tokens, nullptr}, {tokens, adapters[j]}});
    EXPECT_EQ(mixed[0], alone[i]);
    EXPECT_EQ(mixed[1], alone[0]);
    EXPECT_EQ(mixed[2], alone[j]);
  }
  EXPECT_GT(gpu->num_copied_adapters(), 5);
  // An adapter that is copied beside the steps of others.
  const int64_t num_copied = gpu->num_copied_adapters();
  EXPECT_EQ(LogitsOf(*gpu, {{tokens, adapters[4]}})[0], alone[4]);
  EXPECT_EQ(LogitsOf(*gpu, {{tokens, adapters[2]}})[0], alone[2]);
  while (!gpu->PrepareAdapter(adapters[1]))
    EXPECT_EQ(LogitsOf(*gpu, {{tokens, adapters[2]}})[0], alone[2]);
  (void)gpu->PrepareAdapter(adapters[5]);  // the step waits until it is there
  EXPECT_EQ(LogitsOf(*gpu, {{tokens, adapters[5]}, {tokens, adapters[2]}})[0], alone[5]);
  EXPECT_EQ(LogitsOf(*gpu, {{tokens, adapters[1]}})[0], alone[1]);
  EXPECT_GT(gpu->num_copied_adapters(), num_copied);
}

// Numbers that F32, F16 and bf16 represent, of an adapter of layer 0's q alone.
TEST_P(AdapterExecutorTest, EveryDataTypeOfTheSameNumbersGivesTheSameBits) {
  const auto gpu = Load(int64_t{8} << 20);
  ASSERT_NE(gpu, nullptr);
  const int64_t hidden = gpu->spec().hidden_size, q = gpu->spec().q_size();
  constexpr int64_t kRank = 5;
  const auto number = [](int64_t i) { return static_cast<float>(i * 7919 % 17 - 8) / 64.0f; };
  std::vector<std::vector<uint8_t>> memory;
  const auto matrix = [&](llm::CheckpointDataType type, int64_t rows, int64_t columns) {
    const size_t size = llm::Info(type).size_bytes;
    std::vector<uint8_t>& bytes = memory.emplace_back(static_cast<size_t>(rows * columns) * size);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = number(i);
      const __half half = __float2half(value);
      const __nv_bfloat16 brain = __float2bfloat16(value);
      const void* from = &brain;
      if (type == llm::CheckpointDataType::kF32) from = &value;
      if (type == llm::CheckpointDataType::kF16) from = &half;
      std::memcpy(bytes.data() + i * static_cast<int64_t>(size), from, size);
    }
    return llm::LoraMatrix{type, rows, columns, bytes.data()};
  };
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5};
  std::vector<float> first;
  for (const auto type : {llm::CheckpointDataType::kF32, llm::CheckpointDataType::kF16,
                          llm::CheckpointDataType::kBF16}) {
    llm::LoraBuilder builder("typed", gpu->spec().num_layers());
    ASSERT_TRUE(builder
                    .Add({0, llm::WeightKind::kQ}, "q",
                         {matrix(type, kRank, hidden), matrix(type, q, kRank), 2.0f})
                    .ok());
    const std::vector<float> logits = LogitsOf(*gpu, {{tokens, builder.Finish()}})[0];
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << llm::Info(type).name;
  }
  EXPECT_NE(LogitsOf(*gpu, {{tokens, nullptr}})[0], first);
}

INSTANTIATE_TEST_SUITE_P(Tiny, AdapterExecutorTest,
                         ::testing::Values("gemma2", "gemma3", "gpt2", "gpt_bigcode", "gpt_neox",
                                           "llama", "llama-mha", "llama-mqa-bias", "llama-tied",
                                           "mistral", "phi3", "qwen2", "qwen3", "starcoder2"),
                         cpu::testing::kNameOfCheckpoint);

// ---- Engine.

class AdapterEngineTest : public testing::GpuEngineTest {
 protected:
  std::unique_ptr<llm::GenerationRequest> Request(int i) const {
    auto request = std::make_unique<llm::GenerationRequest>();
    // Prompts with a common prefix, which only requests of the same adapter share.
    request->prompt.assign(static_cast<size_t>(72 + i % 7), 11);
    for (size_t t = 68; t < request->prompt.size(); ++t)
      request->prompt[t] = static_cast<int32_t>((i * 31 + t) % 400);
    request->stop.max_tokens = 12 + i % 9;
    if (i % 6 != 0) request->adapter = adapters_[i % adapters_.size()];
    return request;
  }
  std::vector<AdapterPointer> adapters_;
};

// Seven adapters in memory for two, and a KV cache that is too small as well: requests wait, are
// preempted, and end with the tokens that each of them has alone.
TEST_F(AdapterEngineTest, MoreAdaptersThanMemoryGiveTheSameTokens) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  const llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint));
  for (uint32_t i = 1; i <= 7; ++i)
    adapters_.push_back(MakeAdapter(model, i % 3 == 0 ? 24 : 8, false, 300 * i));
  options_.is_batch_invariant = true;
  options_.steps_before_recording = 2;
  options_.adapter_memory_bytes = int64_t{8} << 20;
  int64_t bytes = 0;
  {
    const auto sized = MakeExecutor();
    ASSERT_NE(sized, nullptr);
    for (const auto& adapter : adapters_) bytes = std::max(bytes, *sized->AdapterBytes(*adapter));
  }
  options_.adapter_memory_bytes = 2 * bytes;
  max_cache_tokens_ = 16 * 64;
  scheduler_.policy = llm::CapacityPolicy::kMaxUtilization;
  Start(true);
  if (HasFatalFailure()) return;
  constexpr int kNumRequests = 60;
  std::vector<llm::TokenIds> alone;
  for (int i = 0; i < kNumRequests; ++i) {
    const Answer answer = Send(Request(i)).get();
    ASSERT_TRUE(answer.error.ok()) << answer.error.message();
    alone.push_back(answer.ids);
  }
  const int64_t num_copied = executor_->num_copied_adapters();
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < kNumRequests; ++i) answers.push_back(Send(Request(i)));
  for (int i = 0; i < kNumRequests; ++i) {
    const Answer answer = answers[i].get();
    EXPECT_TRUE(answer.error.ok()) << answer.error.message();
    EXPECT_EQ(answer.ids, alone[i]) << "request " << i;
  }
  while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
  EXPECT_GT(executor_->num_copied_adapters(), num_copied);
  EXPECT_GT(engine_->stats().counts.num_reused_blocks, 0);
  EXPECT_TRUE(engine_->health().ok());
}

// Other requests run meanwhile, so that the copy ahead of the step fails first, and then that of
// the step.
TEST_F(AdapterEngineTest, OnlyRequestsOfAnAdapterThatCannotBeCopiedFail) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  const llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint));
  for (uint32_t i = 1; i <= 3; ++i) adapters_.push_back(MakeAdapter(model, 8, false, 300 * i));
  options_.is_batch_invariant = true;
  options_.adapter_memory_bytes = int64_t{8} << 20;
  constexpr int kNumRequests = 24;
  std::vector<llm::TokenIds> alone;
  Start(true);
  if (HasFatalFailure()) return;
  for (int i = 0; i < kNumRequests; ++i) alone.push_back(Send(Request(i)).get().ids);
  engine_.reset();
  Start(true);
  if (HasFatalFailure()) return;
  const std::string& name = adapters_[1]->name();
  executor_->FailAdapterCopiesOf(name);
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < kNumRequests; ++i) answers.push_back(Send(Request(i)));
  int num_failed = 0;
  for (int i = 0; i < kNumRequests; ++i) {
    const Answer answer = answers[i].get();
    if (Request(i)->adapter != adapters_[1]) {
      EXPECT_TRUE(answer.error.ok()) << answer.error.message();
      EXPECT_EQ(answer.ids, alone[i]) << "request " << i;
      continue;
    }
    ++num_failed;
    EXPECT_NE(answer.error.message().find("'" + name + "' could not be copied"), std::string::npos)
        << answer.error.message();
  }
  EXPECT_GT(num_failed, 4);
  EXPECT_TRUE(engine_->health().ok());
  const Answer last = Send(Request(1)).get();  // nothing else runs: its step copies it
  EXPECT_FALSE(last.error.ok());
  while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
  executor_->FailAdapterCopiesOf("");
  EXPECT_EQ(Send(Request(1)).get().ids, alone[1]);
}

TEST_F(AdapterEngineTest, AnAdapterThatDoesNotFitIsRefusedWithBothSizes) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  const llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint));
  options_.adapter_memory_bytes = 4096;
  Start(true);
  if (HasFatalFailure()) return;
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt = {1, 2, 3};
  request->stop.max_tokens = 2;
  request->adapter = MakeAdapter(model, 8, false, 1);
  const Status status = engine_->Enqueue(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_NE(status.message().find("have 4096"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace nereid::gpu
