#include "host/core/cache/response_cache.h"

#include <utility>

#include "base/clock.h"
#include "host/core/backend/run_apart.h"
#include "host/core/cache/cache_key.h"
#include "host/core/cache/response_codec.h"
#include "host/core/observe/log.h"

namespace nereid {
namespace {

// From an entry's one buffer into a new response.
class ToResponse final : public CacheAllocator {
 public:
  explicit ToResponse(ResponseSink* sink) : sink_(sink) {}

  Status Copy(const CacheEntry& entry) override {
    if (entry.buffers.size() != 1) {
      return InvalidArgError("cached response: expected 1 buffer, got ", entry.buffers.size());
    }
    const CacheEntry::Buffer& buffer = entry.buffers.front();
    if (buffer.base == nullptr || buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) {
      return InvalidArgError("cached response: expected a buffer in host memory");
    }
    NEREID_ASSIGN_OR_RETURN(auto response, InferResponse::New(sink_));
    NEREID_RETURN_IF_ERROR(Decode(
        {static_cast<const std::byte*>(buffer.base), buffer.attributes.byte_size}, response.get()));
    response_ = std::move(response);
    return Status::Ok();
  }
  std::unique_ptr<InferResponse> TakeResponse() { return std::move(response_); }

 private:
  ResponseSink* const sink_;
  std::unique_ptr<InferResponse> response_;
};

// From a response into the one buffer that the cache has made for it.
class FromResponse final : public CacheAllocator {
 public:
  explicit FromResponse(const InferResponse& response)
      : response_(response), size_(EncodedSize(response)) {}

  CacheEntry MakeEntry() const {
    CacheEntry entry;
    entry.buffers.emplace_back().attributes.byte_size = size_;
    return entry;
  }
  Status Copy(const CacheEntry& entry) override {
    const CacheEntry::Buffer* buffer = entry.buffers.size() == 1 ? &entry.buffers[0] : nullptr;
    if (buffer == nullptr || buffer->base == nullptr || buffer->attributes.byte_size < size_ ||
        buffer->attributes.memory_type == TRITONSERVER_MEMORY_GPU) {
      return InvalidArgError("expected one buffer of ", size_, " bytes in host memory");
    }
    return Encode(response_, {static_cast<std::byte*>(buffer->base), size_});
  }

 private:
  const InferResponse& response_;
  const size_t size_;
};

// Waits for the backend's answer to a request that the cache did not know.
class Keeper final : public ResponseTap {
 public:
  Keeper(std::shared_ptr<CachePlugin> plugin, std::string key, uint64_t lookup_ns)
      : plugin_(std::move(plugin)), key_(std::move(key)), lookup_ns_(lookup_ns) {}

  void OnResponse(const InferResponse& response) override {
    if (std::exchange(seen_, true)) return;
    const uint64_t start_ns = SteadyNowNs();
    if (IsCacheable(response)) Insert(response);
    response.sink()->target()->statistics().host().RecordCacheMiss(lookup_ns_ + SteadyNowNs() -
                                                                   start_ns);
  }

 private:
  void Insert(const InferResponse& response) {
    FromResponse copier(response);
    CacheEntry entry = copier.MakeEntry();
    const Status status = plugin_->Insert(key_, &entry, &copier);
    if (status.ok() || status.code() == StatusCode::kAlreadyExists) return;
    NEREID_LOG_ERROR("Failed to insert key [", key_, "] into response cache '", plugin_->name(),
                     "': response of model '", response.plan().model_name, "': ", status.message());
  }

  const std::shared_ptr<CachePlugin> plugin_;
  const std::string key_;
  const uint64_t lookup_ns_;
  bool seen_ = false;
};

}  // namespace

Result<std::unique_ptr<ResponseCache>> ResponseCache::Create(const std::string& name,
                                                             const std::string& config_json,
                                                             const std::vector<std::string>& dirs) {
  NEREID_ASSIGN_OR_RETURN(auto plugin, CachePlugin::Load(name, config_json, dirs));
  return std::unique_ptr<ResponseCache>(new ResponseCache(std::move(plugin)));
}

bool ResponseCache::End(std::unique_ptr<ResponseCache> cache, uint64_t timeout_ns) {
  const std::string name = cache->name();
  const std::future<void> ended = RunApart([owned = cache.release()] { delete owned; });
  const auto deadline = SteadyDeadline(AddNs(SteadyNowNs(), timeout_ns));
  if (ended.wait_until(deadline) == std::future_status::ready) return true;
  NEREID_LOG_ERROR("cache '", name, "' has not ended: CacheFinalize did not return within ",
                   timeout_ns / 1'000'000'000, " s");
  return false;
}

bool ResponseCache::Answer(InferRequest* request) {
  const uint64_t start_ns = SteadyNowNs();
  auto key = CacheKey(*request);
  if (!key.has_value()) return false;
  ToResponse copier(request->sink());
  CacheEntry entry;
  const Status status = plugin_->Lookup(*key, &entry, &copier);
  auto response = copier.TakeResponse();
  const uint64_t end_ns = SteadyNowNs();
  if (!status.ok() || response == nullptr) {
    if (status.code() != StatusCode::kNotFound) {
      NEREID_LOG_ERROR("cache '", plugin_->name(), "': look-up for model '",
                       request->plan().model_name,
                       "' failed: ", status.ok() ? "the cache copied nothing" : status.message());
    }
    request->sink()->set_tap(std::make_unique<Keeper>(plugin_, *std::move(key), end_ns - start_ns));
    return false;
  }
  request->target()->statistics().host().RecordCacheHit(request->request_start_ns, start_ns,
                                                        end_ns);
  // The final response is the backend's own affair no more: a cancelled client gets it as well.
  (void)InferResponse::Send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  request->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  return true;
}

}  // namespace nereid
