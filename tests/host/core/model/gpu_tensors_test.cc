// Tensors in GPU memory, which the CPU cannot access, and CPU instances on a machine with GPUs.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "host/core/handle/error.h"
#include "host/core/memory/owned_memory.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/sequence_states.h"
#include "tests/host/core/model/fake_backend.h"
#include "tests/support/cuda/fake_gpus.h"

namespace nereid::core {
namespace {

constexpr MemoryLocation kGpu{TRITONSERVER_MEMORY_GPU, 1};
constexpr size_t kBytes = 4 * sizeof(float);
using Values = std::vector<float>;

// A client whose allocator places outputs at `target` on the GPU. One request at a time.
class GpuClient {
 public:
  explicit GpuClient(char* target) : target_(target) {
    allocator_.alloc_fn = [](TRITONSERVER_ResponseAllocator*, const char*, size_t,
                             TRITONSERVER_MemoryType, int64_t, void* self, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* type,
                             int64_t* id) -> TRITONSERVER_Error* {
      *buffer = static_cast<GpuClient*>(self)->target_;
      *buffer_userp = nullptr;
      *type = kGpu.type;
      *id = kGpu.type_id;
      return nullptr;
    };
    allocator_.release_fn = [](TRITONSERVER_ResponseAllocator*, void*, void*, size_t,
                               TRITONSERVER_MemoryType type, int64_t) -> TRITONSERVER_Error* {
      EXPECT_EQ(type, kGpu.type);
      return nullptr;
    };
  }

  // Returns the error message of the request; empty on success.
  std::string Infer(Model* model, InferRequest* request) {
    is_released_ = false;
    ResponseCallbacks callbacks;
    callbacks.allocator = &allocator_;
    callbacks.allocator_userp = this;
    callbacks.response_userp = this;
    callbacks.response_fn = [](TRITONSERVER_InferenceResponse* handle, uint32_t, void* self) {
      const std::unique_ptr<InferResponse> response(FromHandle(handle));
      static_cast<GpuClient*>(self)->error_ = response->error().message();
      for (size_t i = 0; i < response->num_outputs(); ++i) {
        EXPECT_EQ(response->output(i)->attributes().memory_type, kGpu.type);
        EXPECT_EQ(response->output(i)->base(), static_cast<GpuClient*>(self)->target_);
      }
    };
    request->set_response_callbacks(callbacks);
    request->set_release_callback([](TRITONSERVER_InferenceRequest*, uint32_t,
                                     void* self) { static_cast<GpuClient*>(self)->OnRelease(); },
                                  this);
    EXPECT_TRUE(request->Prepare().ok());
    EXPECT_TRUE(model->Enqueue(request).ok());
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return is_released_; }));
    return error_;
  }

 private:
  void OnRelease() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }

  char* const target_;
  ResponseAllocator allocator_;
  std::string error_;
  std::mutex mutex_;  // guards is_over_
  std::condition_variable changed_;
  bool is_released_ = false;
};

class GpuTensorsTest : public testing::Test, public test::ModelFixture {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kHasFakeGpus);
    memory_ = OwnedMemory::Allocate(&services->memory, kGpu, 2 * kBytes).value();
    ASSERT_TRUE(memory_->location() == kGpu);
    const Values values = {1, 2, 3, 4};
    ASSERT_TRUE(CopyMemory(memory_->base(), kGpu, values.data(), {}, kBytes).ok());
  }
  void TearDown() override {
    model_.reset();
    WaitForEnds();
    memory_.reset();
  }
  Status Start(const std::string& kind) {
    NEREID_ASSIGN_OR_RETURN(
        model_, Load(StrCat(R"({"backend": "fake", "max_batch_size": 0,
      "instance_group": [{"kind": ")",
                            kind, R"(", "gpus": [)", kind == "KIND_GPU" ? "1" : "", R"(]}],
      "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
      "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]})")));
    return Status::Ok();
  }
  // A request whose input IN consists of two buffers on the GPU.
  std::unique_ptr<InferRequest> MakeRequest(int64_t device = kGpu.type_id) const {
    auto request = std::make_unique<InferRequest>(model_, -1);
    EXPECT_TRUE(request->AddInput("IN", DataType::kFp32, std::vector<int64_t>{4}).ok());
    for (size_t offset = 0; offset < kBytes; offset += kBytes / 2) {
      const BufferAttributes attributes{kBytes / 2, kGpu.type, device, nullptr};
      EXPECT_TRUE(request->AppendInputData("IN", memory_->base() + offset, attributes).ok());
    }
    return request;
  }
  char* target() const { return memory_->base() + kBytes; }
  Values Output() const {
    Values values(4);
    EXPECT_TRUE(CopyMemory(values.data(), {}, target(), kGpu, kBytes).ok());
    return values;
  }

  std::shared_ptr<OwnedMemory> memory_;  // the input, followed by the output
  std::shared_ptr<Model> model_;
};

TEST_F(GpuTensorsTest, CpuInstanceSeesHostMemory) {
  ASSERT_TRUE(Start("KIND_CPU").ok());
  backend.execute = [&](auto* instance, std::vector<TRITONBACKEND_Request*> requests) {
    TRITONBACKEND_Input* input = nullptr;
    TRITONSERVER_BufferAttributes* attributes = nullptr;
    const void* base = nullptr;
    EXPECT_EQ(TRITONBACKEND_RequestInput(requests[0], "IN", &input), nullptr);
    EXPECT_EQ(TRITONBACKEND_InputBufferAttributes(input, 0, &base, &attributes), nullptr);
    EXPECT_EQ(FromHandle(attributes)->memory_type, TRITONSERVER_MEMORY_CPU_PINNED);
    EXPECT_EQ(services->memory.PinnedUse().used_bytes, 256U);
    test::AnswerIdentity(instance, requests[0]);  // reads and writes the host buffers
    return Status::Ok();
  };
  GpuClient client(target());
  const auto request = MakeRequest();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(client.Infer(model_.get(), request.get()), "");
    EXPECT_EQ(Output(), (Values{1, 2, 3, 4}));
    EXPECT_EQ(services->memory.PinnedUse().used_bytes, 0U) << "freed by the release";
    ASSERT_TRUE(CopyMemory(target(), kGpu, Values(4).data(), {}, kBytes).ok());
  }
}

TEST_F(GpuTensorsTest, FailedInputCopyIsReturnedAsError) {
  ASSERT_TRUE(Start("KIND_CPU").ok());
  backend.execute = [&](auto* instance, std::vector<TRITONBACKEND_Request*> requests) {
    TRITONBACKEND_Input* input = nullptr;
    const void* base = nullptr;
    uint64_t byte_size = 0;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    EXPECT_EQ(TRITONBACKEND_RequestInput(requests[0], "IN", &input), nullptr);
    NEREID_RETURN_IF_ERROR(
        TakeError(TRITONBACKEND_InputBuffer(input, 0, &base, &byte_size, &type, &id)));
    test::AnswerIdentity(instance, requests[0]);
    return Status::Ok();
  };
  GpuClient client(target());
  EXPECT_EQ(client.Infer(model_.get(), MakeRequest(7).get()),
            "input 'IN': GPU 7: this machine has 2 GPUs");
  EXPECT_EQ(client.Infer(model_.get(), MakeRequest().get()), "");
}

class RequestedGpuMemoryTest : public GpuTensorsTest,
                               public testing::WithParamInterface<const char*> {};

TEST_P(RequestedGpuMemoryTest, BackendGetsInputOnTheGpu) {
  ASSERT_TRUE(Start(GetParam()).ok());
  backend.execute = [&](auto*, std::vector<TRITONBACKEND_Request*> requests) {
    TRITONBACKEND_Input* input = nullptr;
    const void* base = nullptr;
    uint64_t byte_size = 0;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 0;
    EXPECT_EQ(TRITONBACKEND_RequestInput(requests[0], "IN", &input), nullptr);
    EXPECT_EQ(TRITONBACKEND_InputBuffer(input, 1, &base, &byte_size, &type, &id), nullptr);
    EXPECT_TRUE((MemoryLocation{type, id} == kGpu));
    EXPECT_EQ(base, memory_->base() + kBytes / 2);
    return InternalError("seen");
  };
  GpuClient client(target());
  EXPECT_EQ(client.Infer(model_.get(), MakeRequest().get()), "seen");
}

INSTANTIATE_TEST_SUITE_P(Kinds, RequestedGpuMemoryTest, testing::Values("KIND_CPU", "KIND_GPU"));

TEST_F(GpuTensorsTest, RefusesToLoadOnAGpuAboveItsMemoryLimit) {
  CoreOptions options;
  options.gpu_load_limits = {{1, 0.2}};
  memory_.reset();
  services = std::make_unique<CoreServices>(nullptr, options);
  EXPECT_EQ(Start("KIND_GPU").message(),
            "model 'm' is not loaded: 0.25 of the memory of GPU 1 is in use, its limit is 0.2");
  EXPECT_EQ(Start("KIND_CPU").message(), "");
}

TEST_F(GpuTensorsTest, StatesMoveToTheRequestedMemoryWithTheirContent) {
  StateSpec spec;
  spec.data_type = DataType::kFp32;
  spec.dims.push_back(-1);
  spec.initial_shape.push_back(4);
  spec.initial_data.assign(kBytes, 0);
  spec.same_buffer = true;
  spec.memory = &services->memory;
  StateTensor state(&spec);
  const auto host = state.Buffer(kBytes);
  ASSERT_TRUE(host.ok());
  const Values values = {5, 6, 7, 8};
  std::memcpy(*host, values.data(), kBytes);
  ASSERT_TRUE(state.SetNextTypeAndShape(DataType::kFp32, std::vector<int64_t>{4}).ok());
  state.Update();
  const auto moved = state.Buffer(2 * kBytes, kGpu);
  ASSERT_TRUE(moved.ok()) << moved.status().message();
  EXPECT_EQ(state.attributes().memory_type, kGpu.type);
  EXPECT_EQ(state.attributes().memory_type_id, kGpu.type_id);
  EXPECT_EQ(*state.Buffer(2 * kBytes, kGpu), *moved) << "the buffer is reused";
  Values read(4);
  ASSERT_TRUE(CopyMemory(read.data(), {}, *moved, kGpu, kBytes).ok());
  EXPECT_EQ(read, values);
  EXPECT_EQ(*state.Buffer(2 * kBytes, {TRITONSERVER_MEMORY_GPU, 9}), *moved) << "no such GPU";
  HostInputs inputs;
  ASSERT_TRUE(state.SetNextTypeAndShape(DataType::kFp32, std::vector<int64_t>{8}).ok());
  state.Update();
  state.AddInput(&inputs);
  EXPECT_EQ(inputs.tensors.at(0).buffers[0].attributes.memory_type, kGpu.type);
}

TEST_F(GpuTensorsTest, GrowableStatesGrowInPlace) {
  constexpr size_t kMiB = size_t{1} << 20;
  StateSpec spec;
  spec.output_name = "SO";
  spec.data_type = DataType::kFp32;
  spec.dims.push_back(-1);
  spec.initial_shape.push_back(4);
  spec.initial_data.assign(kBytes, 0);
  spec.same_buffer = spec.growable = true;
  spec.limits = {{static_cast<int>(kGpu.type_id), 8 * kMiB}};
  StateTensor state(&spec);
  const Values values = {5, 6, 7, 8};
  std::memcpy(*state.Buffer(kBytes), values.data(), kBytes);
  ASSERT_TRUE(state.SetNextTypeAndShape(DataType::kFp32, std::vector<int64_t>{4}).ok());
  state.Update();
  const auto moved = state.Buffer(kBytes, kGpu);
  ASSERT_TRUE(moved.ok()) << moved.status().message();
  EXPECT_EQ(state.attributes().memory_type, kGpu.type);
  EXPECT_EQ(*state.Buffer(8 * kMiB, kGpu), *moved);
  Values read(4);
  ASSERT_TRUE(CopyMemory(read.data(), {}, *moved, kGpu, kBytes).ok());
  EXPECT_EQ(read, values);
  EXPECT_EQ(state.Buffer(8 * kMiB + 1, kGpu).status().message(),
            "state 'SO': memory cannot grow to 8388609 bytes: addresses are reserved for 8388608");
  EXPECT_EQ(*state.Buffer(kMiB, {TRITONSERVER_MEMORY_GPU, 9}), *moved) << "no such GPU";
}

}  // namespace
}  // namespace nereid::core
