// Serial execution: models whose backend accepts several requests in one call.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

using Requests = std::vector<TRITONBACKEND_Request*>;

std::string SerialConfig(const std::string& more) {
  return StrCat(R"({"backend": "fake", "max_batch_size": 4,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}])",
                more, "}");
}

class ModelSerialExecutionTest : public test::ServingFixture {
 protected:
  // Returns the executions of five requests that arrive while the instance is busy with another
  // one.
  std::vector<std::string> ExecutionsOfFive(const std::string& config) {
    std::promise<void> entered, may_continue;
    backend.execute = [&, num_executions = 0](auto* instance, Requests requests) mutable {
      if (num_executions++ == 0) {
        entered.set_value();
        may_continue.get_future().wait();
      }
      for (auto* request : requests) test::AnswerIdentity(instance, request);
      return Status::Ok();
    };
    Start(SerialConfig(config));
    SendOne();
    entered.get_future().wait();
    for (int i = 0; i < 5; ++i) SendOne();
    may_continue.set_value();
    EXPECT_EQ(client_.WaitFor(6).size(), 6U);
    for (const auto& answer : client_.answers()) EXPECT_TRUE(answer.error.ok());
    End();
    std::vector<std::string> executions;
    for (const std::string& call : backend.Calls()) {
      if (call.starts_with("execute") || call.starts_with("serial")) executions.push_back(call);
    }
    return executions;
  }
};

TEST_F(ModelSerialExecutionTest, TakesQueuedRequestsUpToTheBackendsMaximum) {
  backend.max_serial_requests = 4;
  const std::vector<std::string> expected{"execute 1", "serial 4", "execute 1"};
  EXPECT_EQ(ExecutionsOfFive(""), expected);
}

TEST_F(ModelSerialExecutionTest, TakesOneRequestIfTheMaximumIsOne) {
  backend.max_serial_requests = 1;
  EXPECT_EQ(ExecutionsOfFive(""), std::vector<std::string>(6, "execute 1"));
}

TEST_F(ModelSerialExecutionTest, BatchesRemainOneExecution) {
  backend.max_serial_requests = 4;
  const std::vector<std::string> executions = ExecutionsOfFive(R"(, "dynamic_batching": {})");
  EXPECT_EQ(std::count(executions.begin(), executions.end(), "execute 4"), 1);
  for (const std::string& call : executions) EXPECT_TRUE(call.starts_with("execute")) << call;
}

}  // namespace
}  // namespace nereid::core
