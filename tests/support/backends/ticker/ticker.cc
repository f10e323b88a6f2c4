// A decoupled backend that sends the numbers 0 to COUNT-1, DELAY_MS apart, until its client
// cancels. For tests of streams, order and cancellation.
#include <chrono>
#include <thread>

#include "nereid/backend.h"

namespace {

class Ticker : public nereid::Model {
 public:
  nereid::Status Execute(nereid::Batch& batch) override {
    for (nereid::Request& request : batch) {
      NEREID_RETURN_IF_ERROR(Tick(request));
    }
    return {};
  }

 private:
  nereid::Status Tick(nereid::Request& request) {
    NEREID_ASSIGN_OR_RETURN(nereid::TensorView count_view, request.Input("COUNT"));
    NEREID_ASSIGN_OR_RETURN(nereid::TensorView delay_view, request.Input("DELAY_MS"));
    NEREID_ASSIGN_OR_RETURN(const int32_t count, count_view.Scalar<int32_t>());
    NEREID_ASSIGN_OR_RETURN(const int32_t delay_ms, delay_view.Scalar<int32_t>());
    nereid::ResponseSender& sender = request.sender();
    for (int32_t i = 0; i < count; ++i) {
      if (sender.IsCancelled()) return sender.Fail(nereid::CancelledError("ticker: cancelled"));
      NEREID_ASSIGN_OR_RETURN(nereid::Response response, sender.NewResponse());
      NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("TICK", {1}, std::span(&i, 1)));
      NEREID_RETURN_IF_ERROR(sender.Send(std::move(response)));
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    }
    return sender.Finish();
  }
};

}  // namespace

NEREID_BACKEND(Ticker);
