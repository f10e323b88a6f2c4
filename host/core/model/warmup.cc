#include "model/warmup.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "base/error.h"
#include "request/infer_request.h"
#include "request/infer_response.h"

namespace nereid {
namespace {

using Bytes = std::vector<char>;

// Counts the answers and releases of one sample's requests.
class Rendezvous {
 public:
  explicit Rendezvous(size_t num_requests) : num_open_(2 * num_requests) {}

  void OnResponse(TRITONSERVER_InferenceResponse* handle, uint32_t flags) {
    std::unique_ptr<InferResponse> response(handle == nullptr ? nullptr : FromHandle(handle));
    std::lock_guard lock(mutex_);
    if (response != nullptr && !response->error().ok() && error_.ok()) error_ = response->error();
    if ((flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0) Close();
  }
  void OnRelease() {
    std::lock_guard lock(mutex_);
    Close();
  }
  Status Wait() {
    std::unique_lock lock(mutex_);
    closed_.wait(lock, [this] { return num_open_ == 0; });
    return error_;
  }

 private:
  void Close() {
    if (--num_open_ == 0) closed_.notify_all();
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable closed_;
  size_t num_open_;
  Status error_;
};

TRITONSERVER_Error* Allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* memory_type,
                             int64_t* memory_type_id) {
  *buffer = std::malloc(std::max<size_t>(byte_size, 1));
  *buffer_userp = nullptr;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  if (*buffer != nullptr) return nullptr;
  return ToError(UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory"));
}

TRITONSERVER_Error* Free(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                         TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

const ResponseAllocator kAllocator = {&Allocate, &Free, nullptr, nullptr, nullptr};

Result<Bytes> MakeData(const WarmupInput& input, int64_t num_elements, const std::string& folder) {
  if (input.source == WarmupInput::Source::kFile) {
    const std::string path = StrCat(folder, "/", input.file);
    std::ifstream file(path, std::ios::binary);
    if (!file) return NotFoundError("cannot open '", path, "'");
    return Bytes(std::istreambuf_iterator<char>(file), {});
  }
  // An empty string is four zero bytes.
  const uint64_t element =
      input.data_type == DataType::kBytes ? 4 : DataTypeByteSize(input.data_type);
  Bytes data(num_elements * element, 0);
  if (input.source == WarmupInput::Source::kRandom && input.data_type != DataType::kBytes) {
    std::minstd_rand random(1);
    const int limit = input.data_type == DataType::kBool ? 2 : 256;
    for (char& byte : data) byte = static_cast<char>(random() % limit);
  }
  return data;
}

// The requests of one sample and the data that they refer to.
struct Sample {
  std::vector<std::unique_ptr<InferRequest>> requests;
  std::vector<Bytes> data;
};

Result<Sample> MakeSample(const Warmup& warmup, const ModelConfig& config,
                          const std::string& folder, const std::shared_ptr<RequestTarget>& target) {
  Sample sample;
  for (const auto& [name, input] : warmup.inputs) {
    NEREID_ASSIGN_OR_RETURN(const int64_t num_elements, ElementCount(input.dims));
    auto data = MakeData(input, num_elements, folder);
    if (!data.ok()) return std::move(data).status().WithContext(StrCat("input '", name, "'"));
    sample.data.push_back(std::move(data).value());
  }
  const uint32_t num_requests = std::max<uint32_t>(warmup.batch_size, 1);
  for (uint32_t i = 0; i < num_requests; ++i) {
    auto request = std::make_unique<InferRequest>(target, -1);
    request->set_id(StrCat("warmup ", warmup.name));
    size_t index = 0;
    for (const auto& [name, input] : warmup.inputs) {
      Shape shape;
      if (config.max_batch_size > 0) shape.push_back(1);
      shape.Append(input.dims);
      NEREID_RETURN_IF_ERROR(request->AddInput(name, input.data_type, shape.span()));
      BufferAttributes attributes;
      attributes.byte_size = sample.data[index].size();
      NEREID_RETURN_IF_ERROR(request->AppendInputData(name, sample.data[index].data(), attributes));
      ++index;
    }
    sample.requests.push_back(std::move(request));
  }
  return sample;
}

Status RunSample(const Sample& sample, Instance* instance) {
  Rendezvous rendezvous(sample.requests.size());
  ResponseCallbacks callbacks;
  callbacks.allocator = &kAllocator;
  callbacks.response_fn = [](TRITONSERVER_InferenceResponse* response, uint32_t flags, void* self) {
    static_cast<Rendezvous*>(self)->OnResponse(response, flags);
  };
  callbacks.response_userp = &rendezvous;
  std::vector<InferRequest*> batch;
  for (const auto& request : sample.requests) {
    request->set_response_callbacks(callbacks);
    request->set_release_callback([](TRITONSERVER_InferenceRequest*, uint32_t,
                                     void* self) { static_cast<Rendezvous*>(self)->OnRelease(); },
                                  &rendezvous);
    batch.push_back(request.get());
  }
  for (InferRequest* request : batch) {
    // Alike: either the first is refused or none is.
    NEREID_RETURN_IF_ERROR(request->Prepare());
    request->target()->OnTaken();
    request->queue_start_ns = request->request_start_ns;
  }
  instance->Execute(batch);
  return rendezvous.Wait();
}

}  // namespace

Status RunWarmups(const ModelConfig& config, const std::string& model_dir, RequestTarget* target,
                  Instance* instance) {
  // Not counted: warm-up is over before the model could end.
  const std::shared_ptr<RequestTarget> uncounted(std::shared_ptr<void>(), target);
  for (const Warmup& warmup : config.warmups) {
    const auto run = [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(const Sample sample,
                              MakeSample(warmup, config, StrCat(model_dir, "/warmup"), uncounted));
      for (uint32_t i = 0; i < std::max<uint32_t>(warmup.count, 1); ++i) {
        NEREID_RETURN_IF_ERROR(RunSample(sample, instance));
      }
      return Status::Ok();
    };
    Status status = run();
    if (!status.ok()) {
      return std::move(status).WithContext(StrCat("failed to run warmup sample '", warmup.name,
                                                  "' on instance '", instance->spec().name, "'"));
    }
  }
  return Status::Ok();
}

}  // namespace nereid
