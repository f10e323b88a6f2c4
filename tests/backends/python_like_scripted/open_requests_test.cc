#include "backends/python_like_scripted/open_requests.h"

#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid::python {
namespace {

using Finish = void (*)(OpenRequests& open, uint64_t key);

class OpenRequestsTest : public BackendTest {
 protected:
  // The number of live handles when the request that `finish` ends is released, with or without a
  // response that was held until then.
  int NumLiveAtRelease(Finish finish, bool has_held_response) {
    requests_.clear();
    fake::Request& request = AddRequest({1});
    Execute([&](Batch& batch) -> Status {
      OpenRequests open;
      const uint64_t key = open.Add(std::move(batch.Take().front()));
      PackedResponse held;
      if (has_held_response) open.Respond(key, &held, /*is_final=*/false);
      EXPECT_TRUE(open.IsOpen(key) && request.events.empty());
      finish(open, key);
      EXPECT_FALSE(open.IsOpen(key));
      return {};
    });
    EXPECT_EQ(request.events.back(), "release");
    return request.num_live_handles_at_release;
  }
};

TEST_F(OpenRequestsTest, DeletesAHeldResponseBeforeItsRequest) {
  Load(/*max_batch_size=*/0);
  const Finish kFinishes[] = {
      [](OpenRequests& open, uint64_t key) { open.Fail(key, InternalError("raised")); },
      [](OpenRequests& open, uint64_t) { open.FailAll(UnavailableError("the worker died")); },
      [](OpenRequests& open, uint64_t key) { open.Reschedule(key); },
      [](OpenRequests& open, uint64_t key) {
        PackedResponse error;
        error.error = InternalError("answered");
        open.Respond(key, &error, /*is_final=*/true);
      },
  };
  for (const Finish& finish : kFinishes) {
    EXPECT_EQ(NumLiveAtRelease(finish, true), NumLiveAtRelease(finish, false))
        << "finish " << &finish - kFinishes;
  }
}

TEST_F(OpenRequestsTest, FailAllSkipsAwaitedRequests) {
  Load(/*max_batch_size=*/0);
  fake::Request& first = AddRequest({1});
  fake::Request& second = AddRequest({1});
  Execute([&](Batch& batch) -> Status {
    OpenRequests open;
    std::vector<uint64_t> keys;
    for (Request& request : batch.Take()) keys.push_back(open.Add(std::move(request), true));
    open.ClearAwaited(keys[0]);
    open.FailAll(UnavailableError("the worker died"));
    EXPECT_FALSE(open.IsOpen(keys[0]));
    EXPECT_TRUE(open.IsOpen(keys[1]));
    EXPECT_EQ(first.events.back(), "release");
    EXPECT_TRUE(second.events.empty());
    open.ClearAwaited(keys[1]);
    open.FailAll(UnavailableError("the worker died"));
    EXPECT_FALSE(open.IsOpen(keys[1]));
    return {};
  });
}

}  // namespace
}  // namespace nereid::python
