// Blocks of a GPU's KV cache that were kept in host memory or in a file come back as they were, and
// change no answer.
#include <fstream>
#include <mutex>

#include "backends/gpu_llm/gpu_block_storage.h"
#include "backends/gpu_llm/kernels/device/delay.h"
#include "tests/backends/gpu_llm/engine_fixture.h"
#include "tests/backends/llm_core/checkpoint_files.h"
#include "tests/support/test_folder.h"

namespace nereid::gpu {
namespace {

using testing::Answer;
using testing::GpuEngineTest;

// A cache without a model. A block is filled with one byte.
class GpuBlockStorageTest : public testing::GpuTest<::testing::Test> {
 protected:
  static constexpr int32_t kNumBlocks = 4, kNumLayers = 3;

  void Open(int64_t part_bytes, int64_t num_places, const std::string& path = "") {
    storage_.reset();
    cache_.part_bytes = part_bytes;
    cache_.num_layers = kNumLayers;
    cache_.num_blocks = kNumBlocks;
    cache_.layer_bytes = kNumBlocks * part_bytes;
    memory_ = std::move(*DeviceMemory::Allocate(kNumLayers * cache_.layer_bytes, "a test"));
    cache_.data = memory_.as<char>();
    stream_ = std::move(*MakeStream());
    std::unique_ptr<llm::BlockFile> file;
    if (!path.empty()) {
      auto opened =
          llm::BlockFile::Open({.path = path,
                                .max_bytes = 8192 + 4 * (4096 + cache_.block_bytes()),
                                .block_size = kBlockTokens,
                                .block_bytes = cache_.block_bytes(),
                                .identity = std::string(64, 'a'),
                                .log = [this](const std::string& line) { log_ += line + "\n"; }});
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      file = std::move(*opened);
    }
    auto storage = GpuBlockStorage::Create(cache_, 0, stream_.get(),
                                           num_places * cache_.block_bytes(), std::move(file));
    ASSERT_TRUE(storage.ok()) << storage.status().message();
    storage_ = std::move(*storage);
  }
  // A step that writes the block.
  void Step(int32_t block, uint8_t byte) {
    ASSERT_TRUE(storage_->BeginStep().ok());
    const StridedRows parts = cache_.Parts(block);
    ASSERT_EQ(cudaMemset2DAsync(parts.data, parts.stride, byte, cache_.part_bytes, kNumLayers,
                                stream_.get()),
              cudaSuccess);
  }
  std::vector<int32_t> FetchAndWait(std::vector<llm::BlockStorage::Transfer> transfers) {
    storage_->Fetch(++ticket_, std::move(transfers));
    const auto fetched = storage_->Collect(true);
    EXPECT_EQ(fetched.size(), 1u);
    EXPECT_EQ(fetched[0].ticket, ticket_);
    return fetched[0].lost;
  }
  llm::BlockContent Content(uint64_t serial) const {
    return {storage_->first_serial() + serial, 0, 0, std::vector<int32_t>(kBlockTokens, 7)};
  }
  uint64_t Serial(uint64_t serial) const { return storage_->first_serial() + serial; }
  // The byte that the whole block has; -1: it has others, too.
  int ByteOf(int32_t block) {
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
    std::vector<uint8_t> bytes(cache_.block_bytes());
    const StridedRows parts = cache_.Parts(block);
    EXPECT_EQ(cudaMemcpy2D(bytes.data(), cache_.part_bytes, parts.data, parts.stride,
                           cache_.part_bytes, kNumLayers, cudaMemcpyDeviceToHost),
              cudaSuccess);
    const bool is_one =
        std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return byte == bytes[0]; });
    return is_one ? bytes[0] : -1;
  }

  CacheBlocks cache_;
  DeviceMemory memory_;
  Stream stream_;
  std::unique_ptr<GpuBlockStorage> storage_;
  uint64_t ticket_ = 0;
  std::string log_;
};

// Blocks of 24 MB, whose copies take much longer than the steps.
TEST_F(GpuBlockStorageTest, AStoreReadsWhatEarlierStepsLeaveAndLaterOnesOverwrite) {
  Open(8 << 20, 2);
  if (HasFatalFailure()) return;
  for (uint8_t byte = 1; byte <= 6; byte += 2) {
    DelayStream(2'000'000, stream_.get());
    Step(0, byte);
    Step(1, byte + 100);
    storage_->Store(0, kNumBlocks, {});
    storage_->Store(1, kNumBlocks + 1, {});
    Step(0, 200);
    Step(1, 201);
    EXPECT_TRUE(FetchAndWait({{kNumBlocks, 2, Serial(1)}, {kNumBlocks + 1, 3, Serial(2)}}).empty());
    EXPECT_EQ(ByteOf(2), byte);
    EXPECT_EQ(ByteOf(3), byte + 100);
    EXPECT_EQ(ByteOf(0), 200);
    EXPECT_EQ(ByteOf(1), 201);
  }
  EXPECT_TRUE(storage_->BeginStep().ok());
}

TEST_F(GpuBlockStorageTest, APlaceIsUsedAgainWhileItsOldContentGoesToTheFile) {
  const TestFolder folder;
  Open(1 << 20, 1, folder / "blocks");
  if (HasFatalFailure()) return;
  const int32_t place = kNumBlocks, slot = kNumBlocks + 1;
  for (uint8_t i = 0; i < 3; ++i) {
    Step(0, 10 + i);
    storage_->Store(0, place, {});
    storage_->Store(place, slot + i, Content(i));
  }
  Step(1, 77);
  storage_->Store(1, place, {});
  Step(1, 0);
  storage_->Store(1, slot + 3, Content(3));
  EXPECT_TRUE(FetchAndWait({{slot, 0, Serial(0)},
                            {place, 1, Serial(9)},
                            {slot + 1, 2, Serial(1)},
                            {slot + 2, 3, Serial(2)}})
                  .empty());
  EXPECT_EQ(ByteOf(0), 10);
  EXPECT_EQ(ByteOf(1), 77);
  EXPECT_EQ(ByteOf(2), 11);
  EXPECT_EQ(ByteOf(3), 12);
  EXPECT_TRUE(FetchAndWait({{slot + 3, 0, Serial(3)}}).empty());
  EXPECT_EQ(ByteOf(0), 0);
  EXPECT_EQ(log_, "");
}

TEST_F(GpuBlockStorageTest, WhatTheFileHasSurvivesARestartUnlessItIsDamaged) {
  const TestFolder folder;
  const std::string path = folder / "blocks";
  Open(4096, 0, path);
  if (HasFatalFailure()) return;
  for (uint8_t i = 0; i < 3; ++i) {
    Step(i, 30 + i);
    storage_->Store(i, kNumBlocks + i, Content(i));
  }
  storage_->Finish();
  Open(4096, 2, path);
  if (HasFatalFailure()) return;
  const auto stored = storage_->TakeStored();
  ASSERT_EQ(stored.size(), 3u);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);  // in the last block
    file.put('x');
  }
  const auto lost = FetchAndWait({{stored[2].place, 2, stored[2].content.serial},
                                  {stored[1].place, 1, stored[1].content.serial},
                                  {stored[0].place, 0, stored[0].content.serial}});
  EXPECT_EQ(lost, std::vector<int32_t>{stored[2].place});
  EXPECT_EQ(ByteOf(0), 30);
  EXPECT_EQ(ByteOf(1), 31);
  EXPECT_NE(log_.find("is damaged; its tokens are computed again"), std::string::npos) << log_;
}

TEST_F(GpuBlockStorageTest, MemoryThatHoldsNoBlockIsRefused) {
  Open(4096, 1);
  if (HasFatalFailure()) return;
  const auto storage = GpuBlockStorage::Create(cache_, 0, stream_.get(), 100, nullptr);
  ASSERT_FALSE(storage.ok());
  EXPECT_EQ(storage.status().message(),
            "parameter 'kv_cache_host_memory_bytes' is 100, expected 0 or at least 12288, the size "
            "of a KV block");
}

// Layers of a large cache are further apart than one call of CUDA can copy.
TEST_F(GpuBlockStorageTest, BlocksWithLayersFarApartAreCopied) {
  constexpr int64_t kStride = int64_t{INT32_MAX} + 4097, kRow = 4096;
  Result<DeviceMemory> memory = DeviceMemory::Allocate(kStride + 2 * kRow, "a test");
  if (!memory.ok()) GTEST_SKIP() << memory.status().message();
  char* const data = memory->as<char>();
  ASSERT_EQ(cudaMemset(data, 1, kRow), cudaSuccess);
  ASSERT_EQ(cudaMemset(data + kStride, 2, kRow), cudaSuccess);
  ASSERT_TRUE(CopyRowsAsync({data + kRow, kStride}, {data, kStride}, kRow, 2,
                            cudaMemcpyDeviceToDevice, nullptr)
                  .ok());
  std::vector<char> copied(2 * kRow);
  ASSERT_TRUE(CopyRowsAsync({copied.data(), kRow}, {data + kRow, kStride}, kRow, 2,
                            cudaMemcpyDeviceToHost, nullptr)
                  .ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(copied[0], 1);
  EXPECT_EQ(copied[kRow - 1], 1);
  EXPECT_EQ(copied[kRow], 2);
  EXPECT_EQ(copied[2 * kRow - 1], 2);
}

class GpuKvTiersTest : public GpuEngineTest {
 protected:
  // Turns of some conversations: each has its conversation's beginning, a bit more each time.
  std::vector<llm::TokenIds> DrawTurns() {
    std::mt19937 random(31);
    std::vector<llm::TokenIds> conversations(5), turns;
    for (int i = 0; i < 48; ++i) {
      llm::TokenIds& conversation = conversations[random() % 5];
      if (conversation.size() > 260) conversation.clear();
      for (auto n = random() % 100 + 20; n > 0; --n)
        conversation.push_back(static_cast<int32_t>(random() % 250));
      turns.push_back(conversation);
    }
    return turns;
  }
  std::future<Answer> SendTurn(const std::vector<llm::TokenIds>& turns, size_t i,
                               int32_t cancel_after = 0) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt = turns[i];
    request->stop.max_tokens = static_cast<int32_t>(4 + i % 12);
    request->sampling.returns_log_probs = true;
    if (i % 2 == 0) {
      request->sampling.top_k = 20;
      request->sampling.seed = 100 + i;
    }
    return Send(std::move(request), cancel_after);
  }
  int64_t BlockBytes() {
    const auto executor = MakeExecutor();
    return executor == nullptr ? 0
                               : Decoder::CacheBlockBytes(executor->spec(), options_.cache_format);
  }
  void CompareConversations();
  void Restart();
};

void GpuKvTiersTest::CompareConversations() {
  const std::vector<llm::TokenIds> turns = DrawTurns();
  options_.is_batch_invariant = true;
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
    const TestFolder folder;
    options_.cache_format = format;
    const int64_t block_bytes = BlockBytes();
    if (block_bytes == 0) return;
    options_.tiers = {};
    max_cache_tokens_ = 8192;
    scheduler_.prefix_cache = false;
    Start(true);
    if (HasFatalFailure()) return;
    std::vector<Answer> plain;
    for (size_t i = 0; i < turns.size(); ++i) plain.push_back(SendTurn(turns, i).get());
    engine_.reset();
    llm::KvTierOptions host, file, both;
    host.host_bytes = 20 * block_bytes;
    both.host_bytes = 4 * block_bytes;
    file.file_path = folder / "file";
    both.file_path = folder / "both";
    file.file_bytes = both.file_bytes = 64 * (block_bytes + 8192);
    scheduler_.prefix_cache = true;
    max_cache_tokens_ = 12 * 64;
    for (const llm::KvTierOptions& tiers : {host, file, both, both}) {  // the last one: a restart
      options_.tiers = tiers;
      Start(true);
      if (HasFatalFailure()) return;
      std::vector<std::future<Answer>> answers, cancelled;
      for (size_t i = 0; i < turns.size(); ++i) {
        answers.push_back(SendTurn(turns, i));
        if (i % 5 == 1) cancelled.push_back(SendTurn(turns, turns.size() - 1 - i, 2));
        if (i % 3 == 2) answers[i - 1].wait();  // later requests arrive while others run
      }
      for (size_t i = 0; i < turns.size(); ++i) {
        const Answer got = answers[i].get();
        EXPECT_TRUE(got.error.ok()) << got.error.message();
        EXPECT_EQ(got.ids, plain[i].ids) << i;
        EXPECT_EQ(got.log_probs, plain[i].log_probs) << i;
      }
      for (auto& each : cancelled) each.wait();
      EXPECT_GT(engine_->stats().counts.num_kept_blocks, 0);
      EXPECT_GT(engine_->stats().counts.num_fetched_blocks, 0);
      EXPECT_TRUE(engine_->health().ok()) << engine_->health().message();
      engine_.reset();
      if (HasFailure()) return;
    }
  }
}

void GpuKvTiersTest::Restart() {
  const TestFolder folder;
  std::string log;
  options_.tiers.file_path = folder / "blocks";
  options_.tiers.file_bytes = int64_t{64} << 20;
  std::mutex log_mutex;  // each GPU has a thread
  options_.tiers.log = [&](const std::string& line) {
    const std::lock_guard lock(log_mutex);
    log += line + "\n";
  };
  std::vector<llm::TokenIds> turns(1);
  for (int32_t i = 0; i < 300; ++i) turns[0].push_back(i % 97);
  std::vector<Answer> answers;
  for (const int64_t num_fetched : {0, 4}) {
    Start(true);
    if (HasFatalFailure()) return;
    answers.push_back(SendTurn(turns, 0).get());
    EXPECT_EQ(engine_->stats().counts.num_fetched_blocks, num_fetched);
    engine_.reset();
  }
  EXPECT_EQ(answers[0].ids, answers[1].ids);
  EXPECT_EQ(log, "");
  options_.cache_format = CacheFormat::kInt8;
  Start(true);
  if (HasFatalFailure()) return;
  SendTurn(turns, 0).wait();
  EXPECT_EQ(engine_->stats().counts.num_fetched_blocks, 0);
  EXPECT_NE(log.find("is of another checkpoint or another format of the KV cache"),
            std::string::npos)
      << log;
}

// A model on two GPUs, each of which keeps its part of a block.
class ShardedKvTiersTest : public GpuKvTiersTest {
 protected:
  void SetUp() override {
    GpuKvTiersTest::SetUp();
    if (!IsSkipped() && !testing::HasPair())
      GTEST_SKIP() << "no two GPUs that reach each other's memory";
  }
  std::unique_ptr<llm::Executor> MakeTarget() override { return MakeSharded(); }
};

TEST_F(GpuKvTiersTest, ConversationsGetTheAnswersThatTheyGetWithout) {
  CompareConversations();
}
TEST_F(ShardedKvTiersTest, ConversationsGetTheAnswersThatTheyGetWithout) {
  CompareConversations();
}

TEST_F(GpuKvTiersTest, ARestartedServerFetchesWhatItHadComputedAndAnotherModelDoesNot) {
  Restart();
}
TEST_F(ShardedKvTiersTest, ARestartedServerFetchesWhatItHadComputedAndAnotherModelDoesNot) {
  Restart();
}

}  // namespace
}  // namespace nereid::gpu
