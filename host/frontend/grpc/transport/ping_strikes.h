// Counts pings that arrive too soon after one another. The connection of a client with too many
// strikes is closed. [one thread]
#pragma once

#include <cstdint>
#include <optional>

#include "host/frontend/grpc/grpc_options.h"

namespace nereid::grpc {

class PingStrikes {
 public:
  explicit PingStrikes(const GrpcKeepaliveOptions& options) : options_(options) {}

  // Returns false if the client has exceeded the permitted number of strikes.
  [[nodiscard]] bool OnPing(int64_t now_ms, bool has_calls) {
    constexpr int64_t kIdleIntervalMs = 7'200'000;  // gRPC's minimum interval without calls
    const int64_t interval_ms = !has_calls && !options_.permit_without_calls
                                    ? kIdleIntervalMs
                                    : options_.min_recv_ping_interval_without_data_ms;
    const bool is_too_soon = last_ms_ && now_ms - *last_ms_ < interval_ms;
    last_ms_ = now_ms;
    if (is_too_soon) ++num_strikes_;
    return options_.max_ping_strikes == 0 || num_strikes_ <= options_.max_ping_strikes;
  }

  // Resets the count: after headers or data were sent, the client may ping.
  void OnDataSent() {
    last_ms_.reset();
    num_strikes_ = 0;
  }

 private:
  const GrpcKeepaliveOptions& options_;
  std::optional<int64_t> last_ms_;
  int num_strikes_ = 0;
};

}  // namespace nereid::grpc
