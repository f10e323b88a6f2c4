// A model with the fake backend, and a client that sends requests with the input "IN".
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/host/core/model/fake_backend.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core::test {

inline constexpr uint32_t kStart = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
inline constexpr uint32_t kEnd = TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;

class ServingFixture : public testing::Test, public ModelFixture {
 protected:
  void TearDown() override { End(); }

  void Start(const std::string& json) {
    auto model = Load(json);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
  }
  // The model is destroyed when this returns, unless a request is still in flight.
  void End() {
    requests_.clear();
    model_.reset();
    WaitForEnds();
  }

  InferRequest* Make(std::vector<int64_t> shape, const std::string& id = "r") {
    return &requests_.emplace_back(model_, &client_, id, std::move(shape)).request;
  }
  Status Send(InferRequest* request) {
    NEREID_RETURN_IF_ERROR(request->Prepare());
    Status status = model_->Enqueue(request);
    if (!status.ok()) request->Unprepare();
    return status;
  }
  // Sends a request with one element. Sequence 0 means no sequence.
  void SendOne(uint64_t sequence = 0, uint32_t flags = 0) {
    InferRequest* const request = Make({1, 1});
    if (sequence != 0) request->set_correlation_id(sequence);
    request->set_flags(flags);
    const Status status = Send(request);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  std::shared_ptr<Model> model_;
  TestClient client_;
  std::deque<TestRequest> requests_;
};

}  // namespace nereid::core::test
