#include "backends/python_like_scripted/offers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"

namespace nereid::scripted {
namespace {

constexpr uint64_t kBytes = Offers::kMinBlockBytes;

class OffersTest : public ::testing::Test {
 protected:
  std::byte* Make(uint64_t size_bytes) {
    const Offers::Offer offer = offers_->Make(*region_, size_bytes);
    if (offer.base != nullptr) made_.push_back(offer);
    return static_cast<std::byte*>(offer.base);
  }
  void GiveBackFirst() {
    made_.front().give_back(made_.front().lender_userp);
    made_.erase(made_.begin());
  }
  ~OffersTest() override {
    while (!made_.empty()) GiveBackFirst();
  }

  uint64_t FileBytes() const {
    struct stat file {};
    EXPECT_EQ(fstat(region_->fd(), &file), 0);
    return static_cast<uint64_t>(file.st_size);
  }

  // How an input is named to the worker: the numbers of its place, none for a copy.
  std::vector<uint64_t> PlaceOf(std::span<const InputPiece> pieces) {
    int64_t size_bytes = 0;
    for (const InputPiece& piece : pieces) size_bytes += static_cast<int64_t>(piece.bytes.size());
    MarshalWriter writer;
    blocks_.clear();
    EXPECT_TRUE(WriteTensor(TensorView::Of("IN", DataType::kUint8, {&size_bytes, 1}, pieces),
                            *region_, *offers_, nullptr, blocks_, writer)
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
  std::vector<uint64_t> PlaceOf(std::span<const std::byte> bytes) {
    const InputPiece piece{bytes, TRITONSERVER_MEMORY_CPU, 0};
    return PlaceOf({&piece, 1});
  }

  std::unique_ptr<SharedRegion> region_ = *SharedRegion::Create("test", 128 << 20, 1 << 20);
  std::shared_ptr<Offers> offers_ = std::make_shared<Offers>(0);
  std::vector<Offers::Offer> made_;
  std::vector<Block> blocks_;
};

TEST_F(OffersTest, AnOfferIsABlockUntilItIsGivenBack) {
  std::byte* const base = Make(kBytes);
  ASSERT_NE(base, nullptr);
  const std::optional<Block> block = offers_->Find({base, kBytes});
  ASSERT_TRUE(block.has_value());
  EXPECT_EQ(block->data(), base);
  EXPECT_FALSE(block->is_in_use());  // the worker has not got it
  EXPECT_NE(region_->Allocate(100)->offset, block->offset);
  GiveBackFirst();
  EXPECT_FALSE(offers_->Find({base, kBytes}).has_value());
  EXPECT_EQ(region_->Allocate(100)->offset, block->offset);
}

TEST_F(OffersTest, AnOfferOutlivesWorkerAndRegion) {
  std::byte* const base = Make(kBytes);
  region_.reset();
  offers_.reset();
  std::memset(base, 1, kBytes);
  GiveBackFirst();
}

TEST_F(OffersTest, WhatIsShortOrVeryLongIsNotOffered) {
  EXPECT_EQ(Make(kBytes - 1), nullptr);
  EXPECT_EQ(Make(Offers::kMaxBlockBytes + 1), nullptr);
  EXPECT_EQ(Make(std::numeric_limits<uint64_t>::max()), nullptr);
  EXPECT_NE(Make(Offers::kMaxBlockBytes), nullptr);
}

TEST_F(OffersTest, SoManyBlocksAndBytesAreOfferedAtATime) {
  for (size_t i = 0; i < Offers::kMaxBlocks; ++i) ASSERT_NE(Make(kBytes), nullptr);
  EXPECT_EQ(Make(kBytes), nullptr);
  GiveBackFirst();
  EXPECT_NE(Make(kBytes), nullptr);
  while (!made_.empty()) GiveBackFirst();
  for (size_t i = 0; i < Offers::kMaxBytes / Offers::kMaxBlockBytes; ++i) {
    ASSERT_NE(Make(Offers::kMaxBlockBytes), nullptr);
  }
  EXPECT_EQ(Make(kBytes), nullptr);
}

TEST_F(OffersTest, NothingIsOfferedWhereTheMemoryHasALimit) {
  offers_ = std::make_shared<Offers>(1 << 30);
  EXPECT_EQ(Make(kBytes), nullptr);
}

TEST_F(OffersTest, NoMemoryIsGotForAnOfferThatHasNoRoomUntilThereIsTime) {
  region_ = *SharedRegion::Create("test", 4096, 4096);
  EXPECT_EQ(Make(kBytes), nullptr);
  EXPECT_EQ(Make(3 * kBytes), nullptr);
  EXPECT_EQ(FileBytes(), 4096u);
  ASSERT_TRUE(region_->GrowAsMissed().ok());
  EXPECT_NE(Make(3 * kBytes), nullptr);
  const uint64_t grown_bytes = FileBytes();
  ASSERT_TRUE(region_->GrowAsMissed().ok());  // nothing was missed since
  EXPECT_EQ(FileBytes(), grown_bytes);
}

// Inputs come eight at a time. What is not offered is copied, and all of them are read.
TEST_F(OffersTest, InTheSteadyStateAllInputsAreOffered) {
  region_ = *SharedRegion::Create("test", 1 << 20, 1 << 20);
  size_t num_refused = 0, num_refused_late = 0;
  for (int round = 0; round < 40; ++round) {
    size_t num_copied = 0;
    for (int i = 0; i < 8; ++i) num_copied += Make(1 << 20) == nullptr ? 1 : 0;
    num_refused += num_copied;
    if (round >= 20) num_refused_late += num_copied;
    for (int i = 0; i < 8; ++i) {
      if (num_copied > 0) {
        --num_copied;
        region_->Allocate(1 << 20)->Release();
      } else {
        GiveBackFirst();
      }
      ASSERT_TRUE(region_->GrowAsMissed().ok());
    }
  }
  EXPECT_GT(num_refused, 0u);
  EXPECT_EQ(num_refused_late, 0u);
  EXPECT_LE(FileBytes(), 20u << 20);
}

TEST_F(OffersTest, BlocksKeepApartWhileTheRegionGrows) {
  region_ = *SharedRegion::Create("test", 16 * kBytes, 4096);
  std::vector<Block> copied;
  std::thread executing([&] {
    for (int i = 0; i < 200; ++i) {
      copied.push_back(*region_->Allocate(kBytes));
      std::memset(copied.back().data(), 1, kBytes);
      EXPECT_TRUE(region_->GrowAsMissed().ok());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    if (std::byte* const base = Make(kBytes); base != nullptr) std::memset(base, 2, kBytes);
    if (made_.size() > 8) GiveBackFirst();
  }
  executing.join();
  for (const Block& block : copied) {
    for (uint64_t i = 0; i < kBytes; i += 4096) {
      ASSERT_EQ(block.data()[i], std::byte{1}) << block.offset << " " << i;
    }
  }
}

TEST_F(OffersTest, AWorkerThatSaysItIsFreeDoesNotHaveItOfferedTwice) {
  std::byte* const base = Make(kBytes);
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Make(kBytes), nullptr);
  EXPECT_TRUE(offers_->Find({base, kBytes}).has_value());
}

TEST_F(OffersTest, AWorkerThatSaysItIsFreeDoesNotHaveAPartOfItOffered) {
  const Block before = *region_->Allocate(kBytes);
  std::byte* const base = Make(kBytes);
  before.Release();
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Make(2 * kBytes), nullptr);  // where `before` was, and into the next one
  EXPECT_NE(Make(kBytes), nullptr);
}

TEST_F(OffersTest, AWorkerThatSaysItIsFreeDoesNotHaveItOfferedTwiceWhenTheRegionHasGrown) {
  std::byte* const base = Make(kBytes);
  ASSERT_TRUE(region_->Allocate(256 << 20).ok());  // mapped anew
  std::memset(base - kBlockHeaderBytes, 0, kBlockHeaderBytes);
  EXPECT_EQ(Make(kBytes), nullptr);
}

TEST_F(OffersTest, AnInputThatIsAWholeBlockIsNotCopied) {
  std::byte* const base = Make(kBytes);
  const Block block = *offers_->Find({base, kBytes});
  EXPECT_EQ(PlaceOf({base, kBytes}), (std::vector<uint64_t>{block.offset, kBytes}));
  EXPECT_TRUE(block.is_in_use());
  GiveBackFirst();  // the request is over, the worker has it still
  EXPECT_NE(region_->Allocate(100)->offset, block.offset);
  blocks_.front().Release();
  EXPECT_EQ(region_->Allocate(100)->offset, block.offset);
}

TEST_F(OffersTest, InputsThatArePartsOfABlockNameIt) {
  std::byte* const base = Make(3 * kBytes);
  const uint64_t offset = offers_->Find({base, kBytes})->offset;
  EXPECT_EQ(PlaceOf({base, kBytes}), (std::vector<uint64_t>{offset, kBytes, offset, 3 * kBytes}));
  EXPECT_EQ(PlaceOf({base + kBytes, 2 * kBytes}),
            (std::vector<uint64_t>{offset + kBytes, 2 * kBytes, offset, 3 * kBytes}));
}

TEST_F(OffersTest, OtherInputsAreCopied) {
  std::byte* const base = Make(2 * kBytes);
  const Block block = *offers_->Find({base, kBytes});
  const auto is_copied = [&](std::span<const InputPiece> pieces) {
    const std::vector<uint64_t> place = PlaceOf(pieces);
    return place.size() == 2 && place[0] >= block.offset + block.size_bytes && !block.is_in_use();
  };
  const InputPiece unaligned{{base + 1, kBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&unaligned, 1}));
  const InputPiece beyond{{base + kBlockHeaderBytes, 2 * kBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&beyond, 1}));
  const InputPiece before{{base - kBlockHeaderBytes, kBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&before, 1}));
  const InputPiece two[] = {{{base, kBytes}, TRITONSERVER_MEMORY_CPU, 0},
                            {{base + kBytes, kBytes}, TRITONSERVER_MEMORY_CPU, 0}};
  EXPECT_TRUE(is_copied(two));
  std::vector<std::byte> elsewhere(kBytes);
  const InputPiece other{elsewhere, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&other, 1}));
  offers_ = std::make_shared<Offers>(0);  // another worker's
  const InputPiece whole{{base, 2 * kBytes}, TRITONSERVER_MEMORY_CPU, 0};
  EXPECT_TRUE(is_copied({&whole, 1}));
}

}  // namespace
}  // namespace nereid::scripted
