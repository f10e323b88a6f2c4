// A target that replaces the model in tests, and a client that records the responses.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/core/request/infer_request.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/request_schema.h"
#include "tests/host/core/support/schema_of.h"

namespace nereid::core::test {

// Does not queue requests: the test passes prepared requests on itself.
class FakeTarget : public RequestTarget {
 public:
  explicit FakeTarget(const std::string& config_json) : schema_(SchemaOf(config_json)) {}

  const RequestSchema& schema() const override { return schema_; }
  ModelStatistics& statistics() override { return statistics_; }
  Status Enqueue(InferRequest*) override { return Status::Ok(); }
  Status CheckContinuesSequence(const InferRequest&) const override { return Status::Ok(); }
  void OnCancelled(InferRequest* request) override { cancelled.push_back(request); }
  void OnAccepted() override { ++num_taken; }
  void OnReleased() override { ++num_released; }

  std::vector<InferRequest*> cancelled;
  std::atomic<int> num_taken{0};
  std::atomic<int> num_released{0};

 private:
  const RequestSchema schema_;
  ModelStatistics statistics_;
};

// Receives the responses of any number of requests. [any thread]
class TestClient {
 public:
  struct Answer {
    std::string request_id;
    Status error;
    bool has_response = false;
    bool is_final = false;
    std::vector<std::string> outputs;  // raw bytes
  };

  TestClient() {
    allocator_.alloc_fn = &Allocate;
    allocator_.release_fn = &Free;
  }

  void Listen(InferRequest* request) {
    ResponseCallbacks callbacks;
    callbacks.allocator = &allocator_;
    callbacks.allocator_userp = this;
    callbacks.response_fn = [](TRITONSERVER_InferenceResponse* response, uint32_t flags,
                               void* self) {
      static_cast<TestClient*>(self)->OnResponse(response, flags);
    };
    callbacks.response_userp = this;
    request->set_response_callbacks(callbacks);
    request->set_release_callback([](TRITONSERVER_InferenceRequest*, uint32_t,
                                     void* self) { static_cast<TestClient*>(self)->OnRelease(); },
                                  this);
  }

  // Waits until `num_final` final responses and as many releases have arrived, for at most a
  // minute.
  std::vector<Answer> WaitFor(size_t num_final) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60),
                      [&] { return num_final_ >= num_final && num_released_ >= num_final; });
    return answers_;
  }
  std::vector<Answer> answers() {
    std::lock_guard lock(mutex_);
    return answers_;
  }
  size_t num_released() {
    std::lock_guard lock(mutex_);
    return num_released_;
  }
  ResponseAllocator& allocator() { return allocator_; }
  // Output buffers that were allocated and not yet released.
  std::atomic<int> num_buffers{0};

 private:
  static TRITONSERVER_Error* Allocate(TRITONSERVER_ResponseAllocator*, const char*,
                                      size_t byte_size, TRITONSERVER_MemoryType, int64_t,
                                      void* self, void** buffer, void** buffer_userp,
                                      TRITONSERVER_MemoryType* type, int64_t* id) {
    ++static_cast<TestClient*>(self)->num_buffers;
    *buffer = std::malloc(byte_size + 1);
    *buffer_userp = self;
    *type = TRITONSERVER_MEMORY_CPU;
    *id = 0;
    return nullptr;
  }
  static TRITONSERVER_Error* Free(TRITONSERVER_ResponseAllocator*, void* buffer, void* self, size_t,
                                  TRITONSERVER_MemoryType, int64_t) {
    --static_cast<TestClient*>(self)->num_buffers;
    std::free(buffer);
    return nullptr;
  }

  void OnResponse(TRITONSERVER_InferenceResponse* handle, uint32_t flags) {
    Answer answer;
    answer.is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
    answer.has_response = handle != nullptr;
    if (handle != nullptr) {
      const std::unique_ptr<InferResponse> response(FromHandle(handle));
      answer.request_id = response->request_id();
      answer.error = response->error();
      for (size_t i = 0; i < response->num_outputs(); ++i) {
        OutputTensor* output = response->output(i);
        answer.outputs.emplace_back(static_cast<const char*>(output->base()),
                                    output->attributes().byte_size);
      }
    }
    std::lock_guard lock(mutex_);
    num_final_ += answer.is_final;
    answers_.push_back(std::move(answer));
    changed_.notify_all();
  }
  void OnRelease() {
    std::lock_guard lock(mutex_);
    ++num_released_;
    changed_.notify_all();
  }

  ResponseAllocator allocator_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Answer> answers_;
  size_t num_final_ = 0;
  size_t num_released_ = 0;
};

// A request for a model with the FP32 input "IN". It owns the input data.
struct TestRequest {
  TestRequest(std::shared_ptr<RequestTarget> target, TestClient* client, std::string id,
              std::vector<int64_t> shape)
      : owned(std::make_unique<InferRequest>(std::move(target), -1)),
        request(*owned),
        data(ElementCount(shape).value(), 1.0F) {
    request.set_id(id);
    EXPECT_TRUE(request.AddInput("IN", DataType::kFp32, shape).ok());
    BufferAttributes attributes;
    attributes.byte_size = data.size() * sizeof(float);
    EXPECT_TRUE(request.AppendInputData("IN", data.data(), attributes).ok());
    client->Listen(&request);
  }

  const std::unique_ptr<InferRequest> owned;  // on the heap, because its handle is its address
  InferRequest& request;
  std::vector<float> data;
};

}  // namespace nereid::core::test
