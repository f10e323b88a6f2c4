// The response cache of a server: answers a request from the cache, or inserts the backend's
// response after a miss. An error of the cache only disables the cache for that request: it is
// logged and the model executes the request. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/core/cache/cache_plugin.h"
#include "host/core/request/infer_request.h"
#include "nereid/status.h"

namespace nereid::core {

class ResponseCache {
 public:
  // Same arguments as CachePlugin::Load.
  static Result<std::unique_ptr<ResponseCache>> Create(const std::string& name,
                                                       const std::string& config_json,
                                                       const std::vector<std::string>& dirs);

  // Finalizes `cache`, which must not be in use. Returns false if that takes longer than
  // `timeout_ns`: the cache is logged and keeps running on a detached thread.
  static bool Finalize(std::unique_ptr<ResponseCache> cache, uint64_t timeout_ns);

  // Returns true if the request was answered and released. Returns false if the request must be
  // executed: its first response will be inserted unless it is an error. Only for models that are
  // not decoupled. [client thread, before the request is queued]
  bool AnswerFromCache(InferRequest* request);

  const std::string& name() const { return plugin_->name(); }

 private:
  explicit ResponseCache(std::shared_ptr<CachePlugin> plugin) : plugin_(std::move(plugin)) {}

  const std::shared_ptr<CachePlugin> plugin_;  // shared with requests in flight
};

}  // namespace nereid::core
