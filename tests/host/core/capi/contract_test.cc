// A backend that tries every corner of the contract (tests/support/backends/contract): what the
// host made of each.
#include <cstring>
#include <optional>

#include "server_fixture.h"

namespace nereid {
namespace {

// Keeps the request until it is told to let go: the backend uses its handle after the release.
class Keeper final : public InferObserver {
 public:
  void OnResponse(InferResponse response, bool is_final) noexcept override {
    if (is_final) response_.set_value(std::move(response));
  }
  void OnRelease(InferRequest request) noexcept override { request_.emplace(std::move(request)); }
  InferResponse Wait() { return response_.get_future().get(); }

 private:
  std::promise<InferResponse> response_;
  std::optional<InferRequest> request_;
};

std::vector<std::string> Texts(const OutputView& output) {
  std::vector<std::string> texts;
  const char* at = static_cast<const char*>(output.base);
  const char* const end = at + output.size_bytes;
  while (at < end) {
    uint32_t length = 0;
    std::memcpy(&length, at, sizeof(length));
    texts.emplace_back(at + sizeof(length), length);
    at += sizeof(length) + length;
  }
  return texts;
}

TEST_F(ServerTest, EveryCornerOfTheContractIsAnsweredAndNoneCrashes) {
  AddModel("m",
           "backend: 'contract'\n"
           "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
           "output [ { name: 'REPORT' data_type: TYPE_STRING dims: [ -1 ] } ]\n"
           "instance_group [ { count: 1 kind: KIND_CPU } ]\n");
  ASSERT_TRUE(Start(Options()).ok());
  auto allocator = ResponseAllocator::Create<HeapOutputPolicy>();
  ASSERT_TRUE(allocator.ok());
  std::vector<std::string> report;
  for (int round = 0; round < 2; ++round) {  // the second has what came after the first's end
    Keeper keeper;
    auto request = server_->NewRequest("m");
    ASSERT_TRUE(request.ok()) << request.status().message();
    const int64_t shape[] = {1};
    const float value = 1;
    ASSERT_TRUE(request->AddInput("INPUT0", TRITONSERVER_TYPE_FP32, shape).ok());
    ASSERT_TRUE(request->AppendInputData("INPUT0", &value, sizeof(value)).ok());
    ASSERT_TRUE(request->SetCallbacks(&keeper, *allocator, nullptr).ok());
    ASSERT_TRUE(server_->InferAsync(std::move(*request)).ok());
    const InferResponse response = keeper.Wait();
    ASSERT_TRUE(response.Error().ok()) << response.Error().message();
    const auto output = response.Output(0);
    ASSERT_TRUE(output.ok());
    report = Texts(*output);
    for (const std::string& line : report) EXPECT_EQ(line.substr(0, 4), "ok: ") << line;
  }
  EXPECT_GT(report.size(), 45u);
  EXPECT_EQ(report.front(), "ok: an end after the end");
}

}  // namespace
}  // namespace nereid
