// Tests late responses, responses from other threads, and streams.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid {
namespace {

using fake::BytesOf;

class ResponseSenderTest : public BackendTest {
 protected:
  // Executes one request and takes it out of the batch, as an asynchronous backend does.
  ResponseSender TakeSender() {
    std::optional<ResponseSender> sender;
    Execute([&](Batch& batch) -> Status {
      std::vector<Request> requests = batch.Take();
      EXPECT_EQ(requests.size(), 1u);
      sender.emplace(std::move(requests[0]).IntoSender());
      return {};
    });
    return std::move(*sender);
  }
};

Status SendNumber(ResponseSender& sender, float number, bool is_final = false) {
  NEREID_ASSIGN_OR_RETURN(Response response, sender.NewResponse());
  NEREID_RETURN_IF_ERROR(response.SetOutput<float>("OUT", {1}, std::span(&number, 1)));
  return sender.Send(std::move(response), is_final);
}

TEST_F(ResponseSenderTest, AnswersAfterExecuteFromAnotherThread) {
  Load(/*max_batch_size=*/0);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_TRUE(request.events.empty()) << "Execute has returned, the request has not";
  EXPECT_TRUE(instance_.batch_sizes.empty());
  std::thread([&] { EXPECT_TRUE(SendNumber(sender, 7, /*is_final=*/true).ok()); }).join();
  EXPECT_EQ(request.events, (Events{"statistics ok", "response", "release"}));
  EXPECT_EQ(request.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({7}));
  EXPECT_EQ(instance_.batch_sizes, (std::vector<uint64_t>{1}))
      << "the batch is reported with its last request";
}

TEST_F(ResponseSenderTest, StreamsResponsesOfADecoupledModel) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_TRUE(SendNumber(sender, 1).ok());
  EXPECT_TRUE(sender.SendError(InternalError("hiccup")).ok());
  EXPECT_TRUE(SendNumber(sender, 2).ok());
  EXPECT_TRUE(sender.Finish().ok());
  EXPECT_EQ(request.events,
            (Events{"response", "error", "response", "statistics ok", "end", "release"}));
  EXPECT_EQ(request.response_statistics, (Events{"ok", "failed", "ok", "empty"}));
  EXPECT_FALSE(request.responses[0].is_final);
  EXPECT_TRUE(request.responses[3].is_final);
  EXPECT_FALSE(sender.is_open());
}

TEST_F(ResponseSenderTest, TheLastResponseMayBeFinal) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_TRUE(SendNumber(sender, 1, /*is_final=*/true).ok());
  EXPECT_EQ(request.events, (Events{"statistics ok", "response", "release"}));
  EXPECT_TRUE(request.responses.at(0).is_final);
}

TEST_F(ResponseSenderTest, NothingFollowsTheEnd) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_TRUE(sender.Finish().ok());
  const Events events = request.events;
  EXPECT_FALSE(SendNumber(sender, 1).ok());
  EXPECT_FALSE(sender.Finish().ok());
  EXPECT_FALSE(sender.Fail(InternalError("late")).ok());
  EXPECT_FALSE(sender.ReleaseRequest().ok());
  EXPECT_EQ(request.events, events);
}

TEST_F(ResponseSenderTest, AModelThatIsNotDecoupledSendsOneResponse) {
  Load(/*max_batch_size=*/0);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_EQ(SendNumber(sender, 1).code(), StatusCode::kUnsupported);
  EXPECT_EQ(sender.Finish().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(request.responses.empty());
  EXPECT_TRUE(SendNumber(sender, 1, /*is_final=*/true).ok());
  EXPECT_TRUE(request.response_statistics.empty());
}

TEST_F(ResponseSenderTest, ADroppedSenderAnswersWithAnError) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  { const ResponseSender sender = TakeSender(); }
  ASSERT_EQ(request.responses.size(), 1u);
  EXPECT_EQ(request.responses[0].error,
            (fake::Error{TRITONSERVER_ERROR_INTERNAL,
                         "model 'model': the backend dropped the request without an answer"}));
  EXPECT_EQ(request.events, (Events{"statistics failed", "error", "release"}));
}

TEST_F(ResponseSenderTest, AMovedFromSenderAnswersNothing) {
  Load(/*max_batch_size=*/0);
  fake::Request& request = AddRequest({1});
  ResponseSender first = TakeSender();
  ResponseSender second = std::move(first);
  EXPECT_FALSE(first.is_open());  // NOLINT: what is moved from is closed
  EXPECT_TRUE(request.events.empty());
  EXPECT_TRUE(SendNumber(second, 1, /*is_final=*/true).ok());
  EXPECT_EQ(request.responses.size(), 1u);
}

TEST_F(ResponseSenderTest, TheRequestMayGoBackBeforeTheResponses) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  request.requested_outputs = {"TEXT"};
  ResponseSender sender = TakeSender();
  EXPECT_TRUE(sender.ReleaseRequest().ok());
  EXPECT_EQ(request.events, (Events{"statistics ok", "release"}));
  request.requested_outputs.clear();  // pointers that were read from the request are invalid now
  EXPECT_TRUE(SendNumber(sender, 1).ok());
  EXPECT_TRUE(sender.Finish().ok());
  EXPECT_EQ(request.events, (Events{"statistics ok", "release", "response", "end"}));
  EXPECT_TRUE(request.responses.at(0).outputs.empty()) << "OUT was not asked for";
}

TEST_F(ResponseSenderTest, SeesThatTheClientGaveUp) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  fake::Request& request = AddRequest({1});
  ResponseSender sender = TakeSender();
  EXPECT_FALSE(sender.IsCancelled());
  request.is_cancelled = true;
  EXPECT_TRUE(sender.IsCancelled());
  EXPECT_TRUE(sender.ReleaseRequest().ok());
  EXPECT_TRUE(sender.IsCancelled()) << "also after the request's release";
  EXPECT_TRUE(sender.Fail(CancelledError("gave up")).ok());
  EXPECT_EQ(request.response_statistics, (Events{"cancelled"}));
}

TEST_F(ResponseSenderTest, AResponseThatIsNotSentIsDeleted) {
  Load(/*max_batch_size=*/0, /*is_decoupled=*/true);
  AddRequest({1});
  ResponseSender sender = TakeSender();
  { const Result<Response> dropped = sender.NewResponse(); }
  EXPECT_TRUE(sender.Finish().ok());  // the fixture counts handles
}

TEST_F(ResponseSenderTest, TheBatchIsReportedOnceWhenItsRequestsEndOnTwoThreads) {
  Load(/*max_batch_size=*/8);
  for (int i = 0; i < 8; ++i) AddRequest({1});
  std::vector<Request> taken;
  Execute([&](Batch& batch) -> Status {
    taken = batch.Take();
    return {};
  });
  const auto finish = [&](size_t begin) {
    for (size_t i = begin; i < taken.size(); i += 2) {
      EXPECT_TRUE(taken[i].SetOutput<float>("OUT", {1, 1}, std::vector<float>{1}).ok());
      EXPECT_TRUE(taken[i].Finish().ok());
    }
  };
  std::thread other([&] { finish(0); });
  finish(1);
  other.join();
  EXPECT_EQ(instance_.batch_sizes, (std::vector<uint64_t>{8}));
}

}  // namespace
}  // namespace nereid
