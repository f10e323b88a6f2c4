#include "backends/python_like_scripted/leased_outputs.h"

#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid::python {
namespace {

constexpr uint64_t kLeasedBytes = LeasedOutputs::kMinBlockBytes;

class LeasedOutputsTest : public BackendTest {
 protected:
  LeasedOutputsTest() { request_.accepts_leased_outputs = true; }
  ~LeasedOutputsTest() override {
    for (const auto& release_fn : request_.lease_releases) release_fn();
  }

  SharedBlock BlockOf(uint64_t size_bytes, char fill) {
    const SharedBlock block = *region_->Allocate(size_bytes);
    std::memset(block.data(), fill, size_bytes);
    return block;
  }

  // Sends a response with these blocks as outputs; blocks that were not leased are released.
  Status Send(const std::vector<SharedBlock>& blocks, bool is_host_block = false,
              DataType datatype = DataType::kUint8) {
    PackedResponse packed;
    packed.leased_outputs = leased_outputs_.get();
    for (const SharedBlock& block : blocks) {
      PackedTensor& output = packed.outputs.emplace_back();
      output.name = names_.emplace_back(StrCat("OUT", names_.size()));
      output.datatype = datatype;
      output.shape = {static_cast<int64_t>(block.size_bytes)};
      output.block = block;
      output.is_host_block = is_host_block;
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
  void ReleaseFirst() {
    request_.lease_releases.front()();
    request_.lease_releases.erase(request_.lease_releases.begin());
  }

  fake::Request request_;
  std::list<std::string> names_;
  std::unique_ptr<SharedRegion> region_ = *SharedRegion::Create("test", 4096, 1 << 20);
  std::shared_ptr<LeasedOutputs> leased_outputs_ = std::make_shared<LeasedOutputs>(0);
};

TEST_F(LeasedOutputsTest, ABlockIsInUseUntilItsLeaseEnds) {
  const SharedBlock block = BlockOf(kLeasedBytes, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_EQ(Sent("OUT0"), std::string(kLeasedBytes, 'x'));
  EXPECT_TRUE(block.is_in_use());
  ReleaseFirst();
  EXPECT_FALSE(block.is_in_use());
}

TEST_F(LeasedOutputsTest, ALeaseOutlivesTheWorker) {
  ASSERT_TRUE(Send({BlockOf(kLeasedBytes, 'x')}).ok());
  region_.reset();
  leased_outputs_.reset();
  ReleaseFirst();  // only the lease keeps that memory mapped
  EXPECT_TRUE(request_.lease_releases.empty());
}

TEST_F(LeasedOutputsTest, CopiesShortOutputs) {
  const SharedBlock block = BlockOf(kLeasedBytes - 1, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_FALSE(block.is_in_use());
  EXPECT_EQ(Sent("OUT0"), std::string(kLeasedBytes - 1, 'x'));
}

TEST_F(LeasedOutputsTest, CopiesBytesTensors) {
  const SharedBlock block = BlockOf(kLeasedBytes, 'x');
  ASSERT_TRUE(Send({block}, false, DataType::kBytes).ok());
  EXPECT_FALSE(block.is_in_use());
}

TEST_F(LeasedOutputsTest, CopiesIfTheClientDeclinesLeases) {
  request_.accepts_leased_outputs = false;
  const SharedBlock block = BlockOf(kLeasedBytes, 'x');
  ASSERT_TRUE(Send({block}).ok());
  EXPECT_FALSE(block.is_in_use());
  EXPECT_EQ(Sent("OUT0"), std::string(kLeasedBytes, 'x'));
  request_.accepts_leased_outputs = true;  // declined leases do not count
  for (int i = 0; i < LeasedOutputs::kMaxBlocks; ++i)
    ASSERT_TRUE(Send({BlockOf(kLeasedBytes, 'y')}).ok());
  EXPECT_EQ(request_.lease_releases.size(), static_cast<size_t>(LeasedOutputs::kMaxBlocks));
}

TEST_F(LeasedOutputsTest, LeasesALimitedNumberOfBlocksAndCopiesTheRest) {
  for (int i = 0; i < LeasedOutputs::kMaxBlocks; ++i)
    ASSERT_TRUE(Send({BlockOf(kLeasedBytes, 'x')}).ok());
  const SharedBlock copied = BlockOf(kLeasedBytes, 'y');
  ASSERT_TRUE(Send({copied}).ok());
  EXPECT_FALSE(copied.is_in_use());
  ReleaseFirst();
  const SharedBlock leased = BlockOf(kLeasedBytes, 'z');
  ASSERT_TRUE(Send({leased}).ok());
  EXPECT_TRUE(leased.is_in_use());
}

TEST_F(LeasedOutputsTest, LeasesAQuarterOfALimitedRegion) {
  leased_outputs_ = std::make_shared<LeasedOutputs>(8 * kLeasedBytes);
  const SharedBlock first = BlockOf(kLeasedBytes, 'x'), second = BlockOf(kLeasedBytes, 'x');
  const SharedBlock third = BlockOf(kLeasedBytes, 'x');
  ASSERT_TRUE(Send({first, second, third}).ok());
  EXPECT_TRUE(first.is_in_use() && second.is_in_use());
  EXPECT_FALSE(third.is_in_use());
}

TEST_F(LeasedOutputsTest, AFailedResponseReleasesItsBlocks) {
  request_.failing_output = "OUT1";
  const SharedBlock leased = BlockOf(kLeasedBytes, 'x'), refused = BlockOf(100, 'x');
  EXPECT_EQ(Send({leased, refused}).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(leased.is_in_use() || refused.is_in_use());
  EXPECT_TRUE(request_.lease_releases.empty());
}

TEST_F(LeasedOutputsTest, AHostBlockIsInUseUntilWorkerAndClientReleaseIt) {
  const SharedBlock block = BlockOf(kLeasedBytes, 'x');
  ASSERT_TRUE(Send({block}, /*is_host_block=*/true).ok());
  block.Release();  // as the worker does at its next request
  EXPECT_NE(region_->Allocate(kLeasedBytes)->offset, block.offset);
  ReleaseFirst();
  EXPECT_EQ(region_->Allocate(kLeasedBytes)->offset, block.offset);
}

}  // namespace
}  // namespace nereid::python
