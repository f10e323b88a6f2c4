// What a request is addressed to, as far as requests need to know it: a model implements it. Keeps
// the request folder below scheduling and model.
#pragma once

#include "host/core/observe/statistics.h"
#include "host/core/request/request_plan.h"
#include "nereid/status.h"

namespace nereid {

class InferRequest;

class RequestTarget {
 public:
  virtual ~RequestTarget() = default;

  virtual const RequestPlan& plan() const = 0;
  virtual ModelStatistics& statistics() = 0;

  // Takes a prepared request into the queue. On error it stays with the caller. [any thread]
  virtual Status Enqueue(InferRequest* request) = 0;
  // Of a stopping server: Ok for a request that goes on with a sequence, UNAVAILABLE else. [any
  // thread]
  virtual Status CheckGoesOn(const InferRequest& request) const = 0;
  // The flag of `request` was just raised: answers it soon if it still waits in the queue. [any
  // thread]
  virtual void OnCancelled(InferRequest* request) = 0;
  // A request entered the host, by Enqueue or otherwise. [any thread]
  virtual void OnTaken() = 0;
  // A request left the host: its client owns it again once this returns. [any thread]
  virtual void OnReleased() = 0;
};

}  // namespace nereid
