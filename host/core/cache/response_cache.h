// The server's response cache around a model: answers what was answered before, keeps what a
// backend answers. A cache that fails costs its own benefit alone: the failure is logged and the
// model asked. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/core/cache/cache_plugin.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid {

class ResponseCache {
 public:
  // The arguments of CachePlugin::Load.
  static Result<std::unique_ptr<ResponseCache>> Create(const std::string& name,
                                                       const std::string& config_json,
                                                       const std::vector<std::string>& dirs);

  // Finalises `cache`, which nobody uses any more. False where that did not end in time: it is
  // named in the log and runs on.
  static bool End(std::unique_ptr<ResponseCache> cache, uint64_t timeout_ns);

  // True: the request was answered and released. False: it is to be executed, and its first
  // response will be kept unless it is an error. For models of one response a request. [client
  // thread, before the request is queued]
  bool Answer(InferRequest* request);

  const std::string& name() const { return plugin_->name(); }

 private:
  explicit ResponseCache(std::shared_ptr<CachePlugin> plugin) : plugin_(std::move(plugin)) {}

  const std::shared_ptr<CachePlugin> plugin_;  // also held by requests in flight
};

}  // namespace nereid
