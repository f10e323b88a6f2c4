// The standard service grpc.health.v1.Health: reports whether the server or a model is ready.
//
// Service names: "" and "inference.GRPCInferenceService" mean the server; any other name is a
// model. A name that is in no repository is unknown.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "health.pb.h"
#include "host/frontend/access_control.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/drainable_calls.h"
#include "nereid/server.h"

namespace nereid {

class HealthWatch;

// [loop threads; its own thread polls for changes while there are Watch calls]
class HealthService {
 public:
  // All references outlive the service.
  HealthService(const Server& server, DrainableCalls& drainable_calls, const AccessControl& access);
  ~HealthService();

  // Adds the methods to `table`. The service must outlive the last call.
  void AddTo(MethodTable& table);

 private:
  using ServingStatus = ::grpc::health::v1::HealthCheckResponse::ServingStatus;

  // SERVICE_UNKNOWN if no model has that name.
  ServingStatus StatusOf(const std::string& service) const;
  // Parses the request of a call and checks that the call is permitted. Returns false after it has
  // finished the call.
  bool Admit(Call& call, const Slice& bytes, ::grpc::health::v1::HealthCheckRequest& request) const;
  CallHandler* Check(Call& call, const Slice& bytes) const;
  CallHandler* Watch(Call& call, const Slice& bytes);
  void PollForWatches();

  const Server& server_;
  DrainableCalls& drainable_calls_;
  const AccessControl& access_;
  std::mutex mutex_;  // guards the two below
  std::vector<std::weak_ptr<HealthWatch>> watches_;
  bool is_stopping_ = false;
  std::condition_variable changed_;
  std::thread poller_;
};

}  // namespace nereid
