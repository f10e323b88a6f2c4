#include "backends/bls/single_response_client.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereid::bls {
namespace {

// Writes down what reaches the client.
class RecordingClient : public ensemble::ClientRequest {
 public:
  bool IsCancelled() override { return false; }
  void Send(const ensemble::EnsembleResponse& response, bool is_final) override {
    events.push_back(std::to_string(response.outputs.size()) + (is_final ? " final" : ""));
  }
  void SendError(const Status& error) override { events.push_back(error.message()); }
  void SendFinal() override { events.push_back("end"); }
  void Release() override { events.push_back("released"); }

  std::vector<std::string> events;
};

ensemble::EnsembleResponse ResponseOf(size_t num_outputs) {
  ensemble::EnsembleResponse response;
  response.outputs.resize(num_outputs);
  return response;
}

class SingleResponseClientTest : public testing::Test {
 protected:
  RecordingClient recorder_;
  SingleResponseClient client_{recorder_, "m"};
};

TEST_F(SingleResponseClientTest, SendsTheResponseWithTheEnd) {
  client_.Send(ResponseOf(2), false);
  EXPECT_TRUE(recorder_.events.empty());
  client_.SendFinal();
  client_.Release();
  EXPECT_EQ(recorder_.events, (std::vector<std::string>{"2 final", "released"}));
}

TEST_F(SingleResponseClientTest, RefusesASecondResponse) {
  client_.Send(ResponseOf(1), false);
  client_.Send(ResponseOf(1), false);
  client_.Send(ResponseOf(1), true);
  client_.SendFinal();
  ASSERT_EQ(recorder_.events.size(), 1u);
  EXPECT_NE(recorder_.events[0].find("model 'm' sends one response"), std::string::npos);
}

TEST_F(SingleResponseClientTest, AnswersWhereNoResponseArrived) {
  client_.SendFinal();
  EXPECT_EQ(recorder_.events, std::vector<std::string>{"model 'm': no response arrived"});
}

}  // namespace
}  // namespace nereid::bls
