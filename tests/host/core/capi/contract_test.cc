// Runs a backend that tests edge cases of the backend API (tests/support/backends/contract) and
// checks its report.
#include <cstring>
#include <optional>

#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

// The backend uses the request's handle after the release. The client may still own the request
// then, or have deleted it in the callback.
class Client final : public InferObserver {
 public:
  explicit Client(bool keeps_request) : keeps_request_(keeps_request) {}
  void OnResponse(InferResponse response, bool is_final) noexcept override {
    if (is_final) response_.set_value(std::move(response));
  }
  void OnRelease(InferRequest request) noexcept override {
    if (keeps_request_) request_.emplace(std::move(request));
  }
  InferResponse Wait() { return response_.get_future().get(); }

 private:
  const bool keeps_request_;
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

TEST_F(ServerTest, HandlesEveryEdgeCaseOfTheBackendApi) {
  AddModel("m",
           "backend: 'contract'\n"
           "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
           "output [ { name: 'REPORT' data_type: TYPE_STRING dims: [ -1 ] } ]\n"
           "instance_group [ { count: 1 kind: KIND_CPU } ]\n");
  ASSERT_TRUE(Start(Options()).ok());
  auto allocator = ResponseAllocator::Create<HeapOutputPolicy>();
  ASSERT_TRUE(allocator.ok());
  std::vector<std::string> report;
  // Kept alive, because the backend uses them after they were sent.
  std::vector<InferResponse> responses;
  for (int round = 0; round < 4;
       ++round) {  // each report includes the checks after the end of the previous request
    Client client(round % 2 == 0);
    auto request = server_->NewRequest("m");
    ASSERT_TRUE(request.ok()) << request.status().message();
    const int64_t shape[] = {1};
    const float value = 1;
    ASSERT_TRUE(request->AddInput("INPUT0", TRITONSERVER_TYPE_FP32, shape).ok());
    ASSERT_TRUE(request->AppendInputData("INPUT0", &value, sizeof(value)).ok());
    ASSERT_TRUE(request->SetCallbacks(&client, *allocator, nullptr).ok());
    ASSERT_TRUE(server_->InferAsync(std::move(*request)).ok());
    const InferResponse& response = responses.emplace_back(client.Wait());
    ASSERT_TRUE(response.Error().ok()) << response.Error().message();
    const auto output = response.Output(0);
    ASSERT_TRUE(output.ok());
    report = Texts(*output);
    for (const std::string& line : report) EXPECT_EQ(line.substr(0, 4), "ok: ") << line;
  }
  EXPECT_GT(report.size(), 45u);
  EXPECT_EQ(report.front(), "ok: a response that is sent again");
}

TEST_F(ServerTest, UseOfADeletedRequestIsAnError) {
  AddModel("m");
  ASSERT_TRUE(Start(Options()).ok());
  TRITONSERVER_InferenceRequest* request = nullptr;
  ASSERT_TRUE(ToStatus(TRITONSERVER_InferenceRequestNew(&request, server_->get(), "m", -1)).ok());
  ASSERT_TRUE(ToStatus(TRITONSERVER_InferenceRequestDelete(request)).ok());
  for (const Status& status :
       {ToStatus(TRITONSERVER_InferenceRequestDelete(request)),
        ToStatus(TRITONSERVER_InferenceRequestSetId(request, "x")),
        ToStatus(TRITONSERVER_ServerInferAsync(server_->get(), request, nullptr))}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
    EXPECT_NE(status.message().find("was deleted before"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace nereid::core
