#include "host/core/cache/response_cache.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/blake2b.h"
#include "base/clock.h"
#include "host/core/backend/plugin.h"
#include "host/core/cache/response_codec.h"
#include "host/core/observe/log.h"
#include "host/core/request/infer_request.h"

namespace nereid::core {
namespace {

void AddNumber(Blake2b* hash, uint64_t number) {
  hash->Add(&number, sizeof(number));
}

// Hashes the length, too, so that different lists of strings never hash the same bytes.
void AddText(Blake2b* hash, const std::string& text) {
  AddNumber(hash, text.size());
  hash->Add(text);
}

bool AddContent(Blake2b* hash, const InputTensor& input) {
  AddNumber(hash, input.byte_size);
  for (const InputBuffer& buffer : input.buffers) {
    if (buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return false;
    hash->Add(buffer.base, buffer.attributes.byte_size);
  }
  return true;
}

// The hash of the model, its version, the name, type, shape and bytes of every input, and the names
// of the requested outputs. nullopt if an input is not in host memory. The order in which inputs
// were added does not matter; ID, parameters, priority and timeout are not part of the key.
std::optional<std::string> CacheKey(const InferRequest& request) {
  Blake2b hash;
  AddText(&hash, request.schema().model_namespace);
  AddText(&hash, request.schema().model_name);
  AddNumber(&hash, static_cast<uint64_t>(request.schema().model_version));
  std::vector<const InputTensor*> inputs;
  for (size_t i = 0; i < request.num_inputs(); ++i) {
    if (!request.input(i).policy_buffers.empty()) return std::nullopt;
    inputs.push_back(&request.input(i));
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const InputTensor* a, const InputTensor* b) { return a->name < b->name; });
  AddNumber(&hash, inputs.size());
  for (const InputTensor* input : inputs) {
    AddText(&hash, input->name);
    AddNumber(&hash, static_cast<uint64_t>(input->data_type));
    AddNumber(&hash, input->shape.size());
    hash.Add(input->shape.data(), input->shape.size() * sizeof(int64_t));
    if (!AddContent(&hash, *input)) return std::nullopt;
  }
  std::vector<std::string> outputs;
  for (size_t i = 0; i < request.num_outputs(); ++i) outputs.push_back(request.output_name(i));
  std::sort(outputs.begin(), outputs.end());
  AddNumber(&hash, outputs.size());
  for (const std::string& output : outputs) AddText(&hash, output);
  return hash.HexDigest();
}

// Decodes the single buffer of a cache entry into a new response.
class EntryToResponse final : public CacheAllocator {
 public:
  explicit EntryToResponse(ResponseSink* sink) : sink_(sink) {}

  Status Copy(const CacheEntry& entry) override {
    if (entry.buffers.size() != 1) {
      return InvalidArgError("cached response: expected 1 buffer, got ", entry.buffers.size());
    }
    const CacheEntry::Buffer& buffer = entry.buffers.front();
    if (buffer.base == nullptr || buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) {
      return InvalidArgError("cached response: expected a buffer in host memory");
    }
    NEREID_ASSIGN_OR_RETURN(auto response, InferResponse::New(sink_));
    NEREID_RETURN_IF_ERROR(DecodeResponse(
        {static_cast<const std::byte*>(buffer.base), buffer.attributes.byte_size}, response.get()));
    response_ = std::move(response);
    return Status::Ok();
  }
  std::unique_ptr<InferResponse> TakeResponse() { return std::move(response_); }

 private:
  ResponseSink* const sink_;
  std::unique_ptr<InferResponse> response_;
};

// Encodes a response into the single buffer that the cache allocated.
class ResponseToEntry final : public CacheAllocator {
 public:
  explicit ResponseToEntry(const InferResponse& response)
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
    return EncodeResponse(response_, {static_cast<std::byte*>(buffer->base), size_});
  }

 private:
  const InferResponse& response_;
  const size_t size_;
};

// Inserts the response of a backend into the cache after a miss.
class CacheInsertObserver final : public ResponseObserver {
 public:
  CacheInsertObserver(std::shared_ptr<CachePlugin> plugin, std::string key, uint64_t lookup_ns)
      : plugin_(std::move(plugin)), key_(std::move(key)), lookup_ns_(lookup_ns) {}

  void OnResponse(const InferResponse& response) override {
    if (std::exchange(has_response_, true)) return;
    const uint64_t start_ns = SteadyNowNs();
    if (IsCacheable(response)) Insert(response);
    response.sink()->target()->statistics().host().RecordCacheMiss(lookup_ns_ + SteadyNowNs() -
                                                                   start_ns);
  }

 private:
  void Insert(const InferResponse& response) {
    ResponseToEntry copier(response);
    CacheEntry entry = copier.MakeEntry();
    const Status status = plugin_->Insert(key_, &entry, &copier);
    if (status.ok() || status.code() == StatusCode::kAlreadyExists) return;
    NEREID_LOG_ERROR("Failed to insert key [", key_, "] into response cache '", plugin_->name(),
                     "': response of model '", response.schema().model_name,
                     "': ", status.message());
  }

  const std::shared_ptr<CachePlugin> plugin_;
  const std::string key_;
  const uint64_t lookup_ns_;
  bool has_response_ = false;
};

}  // namespace

Result<std::unique_ptr<ResponseCache>> ResponseCache::Create(const std::string& name,
                                                             const std::string& config_json,
                                                             const std::vector<std::string>& dirs) {
  NEREID_ASSIGN_OR_RETURN(auto plugin, CachePlugin::Load(name, config_json, dirs));
  return std::unique_ptr<ResponseCache>(new ResponseCache(std::move(plugin)));
}

bool ResponseCache::Finalize(std::unique_ptr<ResponseCache> cache, uint64_t timeout_ns) {
  const std::string name = cache->name();
  const std::future<void> ended = RunDetached([owned = cache.release()] { delete owned; });
  const auto deadline = SteadyDeadline(AddNs(SteadyNowNs(), timeout_ns));
  if (ended.wait_until(deadline) == std::future_status::ready) return true;
  NEREID_LOG_ERROR("cache '", name, "' has not ended: CacheFinalize did not return within ",
                   timeout_ns / 1'000'000'000, " s");
  return false;
}

bool ResponseCache::AnswerFromCache(InferRequest* request) {
  const uint64_t start_ns = SteadyNowNs();
  auto key = CacheKey(*request);
  if (!key.has_value()) return false;
  EntryToResponse copier(request->sink());
  CacheEntry entry;
  const Status status = plugin_->Lookup(*key, &entry, &copier);
  auto response = copier.TakeResponse();
  const uint64_t end_ns = SteadyNowNs();
  if (!status.ok() || response == nullptr) {
    if (status.code() != StatusCode::kNotFound) {
      NEREID_LOG_ERROR("cache '", plugin_->name(), "': look-up for model '",
                       request->schema().model_name,
                       "' failed: ", status.ok() ? "the cache copied nothing" : status.message());
    }
    request->sink()->set_observer(
        std::make_unique<CacheInsertObserver>(plugin_, *std::move(key), end_ns - start_ns));
    return false;
  }
  request->target()->statistics().host().RecordCacheHit(request->request_start_ns, start_ns,
                                                        end_ns);
  // This is the final response; a cancelled client receives it, too.
  (void)InferResponse::Send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
  request->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  return true;
}

}  // namespace nereid::core
