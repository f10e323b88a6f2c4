#include "backends/python_like_scripted/posted_input_buffers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"

namespace nereid::python {
namespace {

constexpr uint64_t kPostedBytes = PostedInputBuffers::kMinBlockBytes;

class PostedInputBuffersTest : public ::testing::Test {
 protected:
  std::byte* Post(uint64_t size_bytes) {
    const PostedInputBuffers::Buffer posted_buffer =
        posted_input_buffers_->Post(*region_, size_bytes);
    if (posted_buffer.base != nullptr) made_.push_back(posted_buffer);
    return static_cast<std::byte*>(posted_buffer.base);
  }
  void ReleaseFirst() {
    made_.front().release_fn(made_.front().release_userp);
    made_.erase(made_.begin());
  }
  ~PostedInputBuffersTest() override {
    while (!made_.empty()) ReleaseFirst();
  }

  uint64_t FileBytes() const {
    struct stat file {};
    EXPECT_EQ(fstat(region_->fd(), &file), 0);
    return static_cast<uint64_t>(file.st_size);
  }

  // The location by which an input is encoded for the worker: (offset, size) or (offset, size,
  // block offset, block size).
  std::vector<uint64_t> LocationOf(std::span<const InputBufferView> pieces) {
    int64_t size_bytes = 0;
    for (const InputBufferView& piece : pieces)
      size_bytes += static_cast<int64_t>(piece.bytes.size());
    MarshalWriter writer;
    blocks_.clear();
    EXPECT_TRUE(WriteTensor(TensorView::Of("IN", DataType::kUint8, {&size_bytes, 1}, pieces),
                            *region_, *posted_input_buffers_, nullptr, blocks_, writer)
                    .ok());
    MarshalReader reader(writer.bytes());
    reader.TupleOf(4);
    EXPECT_EQ(reader.Text(), "IN");
    (void)reader.Int();
    reader.TupleOf(1);
    (void)reader.Int();
    std::vector<uint64_t> place(reader.Tuple());
    for (uint64_t& number : place) number = static_cast<uint64_t>(reader.Int());
    EXPECT_TRUE(reader.Finish().ok());
    return place;
  }
  std::vector<uint64_t> LocationOf(std::span<const std::byte> bytes) {
    const InputBufferView piece{bytes, TRITONSERVER_MEMORY_CPU, 0};
    return LocationOf({&piece, 1});
  }

  std::unique_ptr<SharedRegion> region_ = *SharedRegion::Create("test", 128 << 20, 1 << 20);
  std::shared_ptr<PostedInputBuffers> posted_input_buffers_ =
      std::make_shared<PostedInputBuffers>(0);
  std::vector<PostedInputBuffers::Buffer> made_;
  std::vector<SharedBlock> blocks_;
};

TEST_F(PostedInputBuffersTest, ABufferIsABlockUntilItIsReleased) {
  std::byte* const base = Post(kPostedBytes);
  ASSERT_NE(base, nullptr);
  const std::optional<SharedBlock> block = posted_input_buffers_->Find({base, kPostedBytes});
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->data(), base);
  EXPECT_FALSE(block->is_in_use());  // not passed to the worker yet
  EXPECT_NE(region_->Allocate(100)->offset, block->offset);
  ReleaseFirst();
  EXPECT_FALSE(posted_input_buffers_->Find({base, kPostedBytes}).has_value());
  EXPECT_EQ(region_->Allocate(100)->offset, block->offset);
}

TEST_F(PostedInputBuffersTest, ABufferOutlivesWorkerAndRegion) {
  std::byte* const base = Post(kPostedBytes);
  region_.reset();
  posted_input_buffers_.reset();
  std::memset(base, 1, kPostedBytes);
  ReleaseFirst();
}

TEST_F(PostedInputBuffersTest, ShortAndVeryLongBuffersAreNotPosted) {
  EXPECT_EQ(Post(kPostedBytes - 1), nullptr);
  EXPECT_EQ(Post(PostedInputBuffers::kMaxBlockBytes + 1), nullptr);
  EXPECT_EQ(Post(std::numeric_limits<uint64_t>::max()), nullptr);
  EXPECT_NE(Post(PostedInputBuffers::kMaxBlockBytes), nullptr);
}

TEST_F(PostedInputBuffersTest, BlocksAndBytesArePostedUpToALimit) {
  for (size_t i = 0; i < PostedInputBuffers::kMaxBlocks; ++i)
    ASSERT_NE(Post(kPostedBytes), nullptr);
  EXPECT_EQ(Post(kPostedBytes), nullptr);
  ReleaseFirst();
  EXPECT_NE(Post(kPostedBytes), nullptr);
  while (!made_.empty()) ReleaseFirst();
  for (size_t i = 0; i < PostedInputBuffers::kMaxBytes / PostedInputBuffers::kMaxBlockBytes; ++i) {
    ASSERT_NE(Post(PostedInputBuffers::kMaxBlockBytes), nullptr);
  }
  EXPECT_EQ(Post(kPostedBytes), nullptr);
}

TEST_F(PostedInputBuffersTest, NothingIsPostedIfTheRegionIsLimited) {
  posted_input_buffers_ = std::make_shared<PostedInputBuffers>(1 << 30);
  EXPECT_EQ(Post(kPostedBytes), nullptr);
}

TEST_F(PostedInputBuffersTest, PostingNeverGrowsTheRegion) {
  region_ = *SharedRegion::Create("test", 4096, 4096);
  EXPECT_EQ(Post(kPostedBytes), nullptr);
  EXPECT_EQ(Post(3 * kPostedBytes), nullptr);
  EXPECT_EQ(FileBytes(), 4096u);
  ASSERT_TRUE(region_->GrowForMissedAllocations().ok());
  EXPECT_NE(Post(3 * kPostedBytes), nullptr);
  const uint64_t grown_bytes = FileBytes();
  ASSERT_TRUE(region_->GrowForMissedAllocations().ok());  // nothing was missing since
  EXPECT_EQ(FileBytes(), grown_bytes);
}

// Inputs arrive eight at a time. Those without a posted buffer are copied, and all of them are
// read.
TEST_F(PostedInputBuffersTest, AllInputsArePostedInTheSteadyState) {
  region_ = *SharedRegion::Create("test", 1 << 20, 1 << 20);
  size_t num_refused = 0, num_refused_late = 0;
  for (int round = 0; round < 40; ++round) {
    size_t num_copied = 0;
    for (int i = 0; i < 8; ++i) num_copied += Post(1 << 20) == nullptr ? 1 : 0;
    num_refused += num_copied;
    if (round >= 20) num_refused_late += num_copied;
    for (int i = 0; i < 8; ++i) {
      if (num_copied > 0) {
        --num_copied;
        region_->Allocate(1 << 20)->Release();
      } else {
        ReleaseFirst();
      }
      ASSERT_TRUE(region_->GrowForMissedAllocations().ok());
    }
  }
  EXPECT_GT(num_refused, 0u);
  EXPECT_EQ(num_refused_late, 0u);
  EXPECT_LE(FileBytes(), 20u << 20);
}

TEST_F(PostedInputBuffersTest, BlocksDoNotOverlapWhileTheRegionGrows) {
  region_ = *SharedRegion::Create("test", 16 * kPostedBytes, 4096);
  std::vector<SharedBlock> copied;
  std::thread executing([&] {
    for (int i = 0; i < 200; ++i) {
      copied.push_back(*region_->Allocate(kPostedBytes));
      std::memset(copied.back().data(), 1, kPostedBytes);
      EXPECT_TRUE(region_->GrowForMissedAllocations().ok());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    if (std::byte* const base = Post(kPostedBytes); base != nullptr)
      std::memset(base, 2, kPostedBytes);
    if (made_.size() > 8) ReleaseFirst();
  }
  executing.join();
  for (const SharedBlock& block : copied) {
    for (uint64_t i = 0; i < kPostedBytes; i += 4096) {
      ASSERT_EQ(block.data()[i], std::byte{1}) << block.offset << " " << i;
    }
  }
}

TEST_F(PostedInputBuffersTest, ABlockThatTheWorkerMarksAsFreeIsNotPostedTwice) {
  std::byte* const base = Post(kPostedBytes);
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Post(kPostedBytes), nullptr);
  EXPECT_TRUE(posted_input_buffers_->Find({base, kPostedBytes}).has_value());
}

TEST_F(PostedInputBuffersTest, APartOfABlockThatTheWorkerMarksAsFreeIsNotPosted) {
  const SharedBlock before = *region_->Allocate(kPostedBytes);
  std::byte* const base = Post(kPostedBytes);
  before.Release();
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Post(2 * kPostedBytes),
            nullptr);  // would begin at `before` and reach into the next block
  EXPECT_NE(Post(kPostedBytes), nullptr);
}

TEST_F(PostedInputBuffersTest,
       ABlockThatTheWorkerMarksAsFreeIsNotPostedTwiceAfterTheRegionHasGrown) {
  std::byte* const base = Post(kPostedBytes);
  ASSERT_TRUE(region_->Allocate(256 << 20).ok());  // which maps the region again
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Post(kPostedBytes), nullptr);
}

TEST_F(PostedInputBuffersTest, AnInputThatFillsABlockIsNotCopied) {
  std::byte* const base = Post(kPostedBytes);
  const SharedBlock block = *posted_input_buffers_->Find({base, kPostedBytes});
  EXPECT_EQ(LocationOf({base, kPostedBytes}), (std::vector<uint64_t>{block.offset, kPostedBytes}));
  EXPECT_TRUE(block.is_in_use());
  ReleaseFirst();  // the request has ended, but the worker still uses the block
  EXPECT_NE(region_->Allocate(100)->offset, block.offset);
  blocks_.front().Release();
  EXPECT_EQ(region_->Allocate(100)->offset, block.offset);
}

TEST_F(PostedInputBuffersTest, InputsInAPartOfABlockNameTheBlock) {
  std::byte* const base = Post(3 * kPostedBytes);
  const uint64_t offset = posted_input_buffers_->Find({base, kPostedBytes})->offset;
  EXPECT_EQ(LocationOf({base, kPostedBytes}),
            (std::vector<uint64_t>{offset, kPostedBytes, offset, 3 * kPostedBytes}));
  EXPECT_EQ(
      LocationOf({base + kPostedBytes, 2 * kPostedBytes}),
      (std::vector<uint64_t>{offset + kPostedBytes, 2 * kPostedBytes, offset, 3 * kPostedBytes}));
}

TEST_F(PostedInputBuffersTest, OtherInputsAreCopied) {
  std::byte* const base = Post(2 * kPostedBytes);
  const SharedBlock block = *posted_input_buffers_->Find({base, kPostedBytes});
  const auto is_copied = [&](std::span<const InputBufferView> pieces) {
    const std::vector<uint64_t> place = LocationOf(pieces);
    return place.size() == 2 && place[0] >= block.offset + block.size_bytes && !block.is_in_use();
  };
  const InputBufferView unaligned{{base + 1, kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&unaligned, 1}));
  const InputBufferView beyond{
      {base + kBlockHeaderBytes, 2 * kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&beyond, 1}));
  const InputBufferView before{
      {base - kBlockHeaderBytes, kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&before, 1}));
  const InputBufferView two[] = {{{base, kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0},
                                 {{base + kPostedBytes, kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0}};
  EXPECT_TRUE(is_copied(two));
  std::vector<std::byte> elsewhere(kPostedBytes);
  const InputBufferView other{elsewhere, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&other, 1}));
  posted_input_buffers_ = std::make_shared<PostedInputBuffers>(0);  // those of another worker
  const InputBufferView whole{{base, 2 * kPostedBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&whole, 1}));
}

}  // namespace
}  // namespace nereid::python
