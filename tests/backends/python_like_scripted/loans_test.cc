#include "backends/python_like_scripted/loans.h"

#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid::scripted {
namespace {

constexpr uint64_t kBytes = Loans::kMinBlockBytes;

class LoansTest : public BackendTest {
 protected:
  LoansTest() { request_.takes_lent_outputs = true; }
  ~LoansTest() override {
    for (const auto& give_back : request_.loans) give_back();
  }

  Block BlockOf(uint64_t size_bytes, char fill) {
    const Block block = *region_->Allocate(size_bytes);
    std::memset(block.data(), fill, size_bytes);
    return block;
  }

  // An answer with these blocks as outputs; the blocks that were not lent are given back.
  Status Send(const std::vector<Block>& blocks, bool is_handed_back = false,
              DataType datatype = DataType::kUint8) {
    PackedResponse packed;
    packed.loans = loans_.get();
    for (const Block& block : blocks) {
      PackedTensor& output = packed.outputs.emplace_back();
      output.name = names_.emplace_back(StrCat("OUT", names_.size()));
      output.datatype = datatype;
      output.shape = {static_cast<int64_t>(block.size_bytes)};
      output.block = block;
      output.is_handed_back = is_handed_back;
    }
    TRITONBACKEND_Response* handle = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNew(&handle, request_.handle())));
    Response response(ResponseHandle(handle), nullptr);
    Status status = FillResponse(packed, response);
    packed.Release();
    if (status.ok()) status = std::move(response).SendRaw(0, {});
    return status;
  }
  std::string Sent(const std::string& output) {
    return request_.responses.back().outputs[output].bytes;
  }
  void GiveBackFirst() {
    request_.loans.front()();
    request_.loans.erase(request_.loans.begin());
  }

  fake::Request request_;
  std::list<std::string> names_;
  std::unique_ptr<SharedRegion> region_ = *SharedRegion::Create("test", 4096, 1 << 20);
  std::shared_ptr<Loans> loans_ = std::make_shared<Loans>(0);
};

TEST_F(LoansTest, ABlockIsInUseUntilTheClientGivesItBack) {
  const Block block = BlockOf(kBytes, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_EQ(Sent("OUT0"), std::string(kBytes, 'x'));
  EXPECT_TRUE(block.is_in_use());
  GiveBackFirst();
  EXPECT_FALSE(block.is_in_use());
}

TEST_F(LoansTest, ABlockIsTheClientsWhenTheWorkerIsGone) {
  ASSERT_TRUE(Send({BlockOf(kBytes, 'x')}).ok());
  region_.reset();
  loans_.reset();
  GiveBackFirst();  // into memory that only the loan has kept
  EXPECT_TRUE(request_.loans.empty());
}

TEST_F(LoansTest, CopiesWhatIsShort) {
  const Block block = BlockOf(kBytes - 1, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_FALSE(block.is_in_use());
  EXPECT_EQ(Sent("OUT0"), std::string(kBytes - 1, 'x'));
}

TEST_F(LoansTest, CopiesTexts) {
  const Block block = BlockOf(kBytes, 'x');
  ASSERT_TRUE(Send({block}, false, DataType::kBytes).ok());
  EXPECT_FALSE(block.is_in_use());
}

TEST_F(LoansTest, CopiesForAClientThatTakesNoLoans) {
  request_.takes_lent_outputs = false;
  const Block block = BlockOf(kBytes, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_FALSE(block.is_in_use());
  EXPECT_EQ(Sent("OUT0"), std::string(kBytes, 'x'));
  request_.takes_lent_outputs = true;  // and what was not taken does not count
  for (int i = 0; i < Loans::kMaxBlocks; ++i) ASSERT_TRUE(Send({BlockOf(kBytes, 'y')}).ok());
  EXPECT_EQ(request_.loans.size(), static_cast<size_t>(Loans::kMaxBlocks));
}

TEST_F(LoansTest, LendsSoManyBlocksAndCopiesTheRest) {
  for (int i = 0; i < Loans::kMaxBlocks; ++i) ASSERT_TRUE(Send({BlockOf(kBytes, 'x')}).ok());
  const Block copied = BlockOf(kBytes, 'y');
  ASSERT_TRUE(Send({copied}).ok());
  EXPECT_FALSE(copied.is_in_use());
  GiveBackFirst();
  const Block lent = BlockOf(kBytes, 'z');
  ASSERT_TRUE(Send({lent}).ok());
  EXPECT_TRUE(lent.is_in_use());
}

TEST_F(LoansTest, LendsAQuarterOfTheMemoryThatAWorkerMayHave) {
  loans_ = std::make_shared<Loans>(8 * kBytes);
  const Block first = BlockOf(kBytes, 'x'), second = BlockOf(kBytes, 'x');
  const Block third = BlockOf(kBytes, 'x');
  ASSERT_TRUE(Send({first, second, third}).ok());
  EXPECT_TRUE(first.is_in_use() && second.is_in_use());
  EXPECT_FALSE(third.is_in_use());
}

TEST_F(LoansTest, AResponseThatFailsGivesItsBlocksBack) {
  request_.refused_output = "OUT1";
  const Block lent = BlockOf(kBytes, 'x'), refused = BlockOf(100, 'x');
  EXPECT_EQ(Send({lent, refused}).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(lent.is_in_use() || refused.is_in_use());
  EXPECT_TRUE(request_.loans.empty());
}

TEST_F(LoansTest, WhatTheWorkerHandsBackWaitsForTheClientToo) {
  const Block block = BlockOf(kBytes, 'x');
  ASSERT_TRUE(Send({block}, /*is_handed_back=*/true).ok());
  block.Release();  // the worker, at its next request
  EXPECT_NE(region_->Allocate(kBytes)->offset, block.offset);
  GiveBackFirst();
  EXPECT_EQ(region_->Allocate(kBytes)->offset, block.offset);
}

}  // namespace
}  // namespace nereid::scripted
