// grpc.health.v1.Health: whether the server, or one model, takes requests.
//
// Names: "" and "inference.GRPCInferenceService" are the server, ready or not; any other name is a
// model's. What no repository holds is unknown.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "health.pb.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/long_calls.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/restricted_apis.h"
#include "nereid/server.h"

namespace nereid {

class HealthWatch;

// [loop threads; one thread of its own looks for changes while anybody watches]
class HealthService {
 public:
  // All outlive the service.
  HealthService(const Server& server, LongCalls& long_calls, const RestrictedApis& restricted);
  ~HealthService();

  // Adds the calls to `table`; the service outlives their last use.
  void AddTo(MethodTable& table);

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;

  // SERVICE_UNKNOWN for a name that nobody has.
  ServingStatus StatusOf(const std::string& service) const;
  CallHandler* Check(Call& call, const Slice& bytes) const;
  CallHandler* Watch(Call& call, const Slice& bytes);
  void PollForWatches();

  const Server& server_;
  LongCalls& long_calls_;
  const RestrictedApis& restricted_;
  std::mutex mutex_;  // guards the two below
  std::vector<std::weak_ptr<HealthWatch>> watches_;
  bool is_stopping_ = false;
  std::condition_variable changed_;
  std::thread poller_;
};

}  // namespace nereid
