// A server, used through the C API, with a repository that the test writes, and a blocking
// inference call.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "nereid/server.h"
#include "tests/support/test_folder.h"

namespace nereid::core {

inline constexpr char kIdentity[] =
    "backend: 'identity_c'\n"
    "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n";

class ServerTest : public testing::Test {
 protected:
  ServerTest() { std::filesystem::create_directories(root_ / "repo"); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / "repo" / path).parent_path());
    std::ofstream(root_ / "repo" / path) << text;
  }
  void AddModel(const std::string& name, const std::string& config = kIdentity) const {
    Write(name + "/config.pbtxt", config);
    std::filesystem::create_directories(root_ / "repo" / name / "1");
  }

  ServerOptions Options() const {
    ServerOptions options = std::move(ServerOptions::Create()).value();
    EXPECT_TRUE(options.AddModelRepository((root_ / "repo").string()).ok());
    EXPECT_TRUE(options.SetBackendDirectory(NEREID_TEST_BACKENDS).ok());
    return options;
  }
  ServerOptions Explicit() const {
    ServerOptions options = Options();
    EXPECT_TRUE(options.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_EXPLICIT).ok());
    return options;
  }
  Status Start(const ServerOptions& options) {
    auto server = Server::Start(options);
    if (!server.ok()) return server.status();
    server_.emplace(std::move(server).value());
    return Status::Ok();
  }

  std::string Text(Result<Message> message) const {
    if (!message.ok()) return message.status().message();
    const auto json = message->Json();
    return json.ok() ? std::string(*json) : json.status().message();
  }

  // Executes the model with `data` and returns its output or error. The default shape has one
  // dimension.
  template <typename OutputPolicy = HeapOutputPolicy>
  Result<std::vector<float>> Infer(const std::string& model, const std::vector<float>& data,
                                   std::vector<int64_t> shape = {}) const;

  const TestFolder folder_;
  const std::filesystem::path root_ = folder_.path();
  std::optional<Server> server_;
};

namespace internal {

class Waiter final : public InferObserver {
 public:
  void OnResponse(InferResponse response, bool) noexcept override {
    response_.set_value(std::move(response));
  }
  void OnRelease(InferRequest) noexcept override { released_.set_value(); }
  InferResponse Wait() {
    released_.get_future().wait();
    return response_.get_future().get();
  }

 private:
  std::promise<InferResponse> response_;
  std::promise<void> released_;
};

}  // namespace internal

template <typename OutputPolicy>
Result<std::vector<float>> ServerTest::Infer(const std::string& model,
                                             const std::vector<float>& data,
                                             std::vector<int64_t> shape) const {
  NEREID_ASSIGN_OR_RETURN(auto allocator, ResponseAllocator::Create<OutputPolicy>());
  NEREID_ASSIGN_OR_RETURN(auto request, server_->NewRequest(model.c_str()));
  if (shape.empty()) shape = {static_cast<int64_t>(data.size())};
  NEREID_RETURN_IF_ERROR(request.AddInput("INPUT0", TRITONSERVER_TYPE_FP32, shape));
  NEREID_RETURN_IF_ERROR(
      request.AppendInputData("INPUT0", data.data(), data.size() * sizeof(float)));
  internal::Waiter waiter;
  NEREID_RETURN_IF_ERROR(request.SetCallbacks(&waiter, allocator, nullptr));
  NEREID_RETURN_IF_ERROR(server_->InferAsync(std::move(request)));
  InferResponse response = waiter.Wait();
  NEREID_RETURN_IF_ERROR(response.Error());
  NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(0));
  const auto* begin = static_cast<const float*>(output.base);
  return std::vector<float>(begin, begin + output.size_bytes / sizeof(float));
}

}  // namespace nereid::core
