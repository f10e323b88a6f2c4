#include "host/core/model/warmup.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "base/file_content.h"
#include "host/core/handle/error.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/response_allocator.h"
#include "host/core/request/sequence_states.h"
#include "host/core/scheduling/sequence_controls.h"

namespace nereid::core {
namespace {

using Bytes = std::vector<char>;

// Waits for the responses and releases of the requests of one sample, and collects requests that
// the backend of an iterative model reschedules.
class WarmupCompletion final : public ReleaseHook {
 public:
  explicit WarmupCompletion(size_t num_requests) : num_open_(2 * num_requests) {}

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
  void OnRelease(InferRequest* request, uint32_t release_flags) override {
    if (release_flags != TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) return;
    std::lock_guard lock(mutex_);
    rescheduled_.push_back(request);
    changed_.notify_all();
  }
  // Waits until all requests have completed or some must run again, which are returned in
  // `rescheduled`.
  Status Wait(std::vector<InferRequest*>* rescheduled) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_open_ == 0 || !rescheduled_.empty(); });
    *rescheduled = std::exchange(rescheduled_, {});
    return error_;
  }

 private:
  void Close() {
    if (--num_open_ == 0) changed_.notify_all();
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  size_t num_open_;
  std::vector<InferRequest*> rescheduled_;
  Status error_;
};

// Limits the size, so that a wrong shape is an error and does not exhaust the machine's memory.
constexpr uint64_t kMaxInputBytes = uint64_t{1} << 34;
constexpr size_t kMaxTextBytes = size_t{1} << 30;  // of a file with strings
constexpr uint32_t kMaxRequests = 4096;            // of one sample

// Reads the file of a sample in the model's folder. Of a longer file only the beginning is used,
// except for strings, whose size is not known.
Result<Bytes> ReadData(const WarmupInput& input, size_t byte_size, const std::string& model_dir) {
  NEREID_ASSIGN_OR_RETURN(const std::string path,
                          PathInside(model_dir, StrCat("warmup/", input.file)));
  const bool is_text = input.data_type == DataType::kBytes;
  NEREID_ASSIGN_OR_RETURN(const std::string content, is_text ? ReadFile(path, kMaxTextBytes)
                                                             : ReadFileBeginning(path, byte_size));
  if (content.size() >= byte_size) return Bytes(content.begin(), content.end());
  return InvalidArgError("warmup setting expects ", byte_size,
                         " bytes, but the data provided from ", input.file, " only has ",
                         content.size(), " bytes");
}

Result<Bytes> MakeData(const WarmupInput& input, int64_t num_elements,
                       const std::string& model_dir) {
  if (input.source == WarmupInput::Source::kFile && input.file.empty()) {
    return InvalidArgError("warmup setting expects input_data_type to be set");
  }
  // The encoding of an empty string is four zero bytes.
  const uint64_t element = input.data_type == DataType::kBytes ? 4 : ByteSize(input.data_type);
  if (element == 0) return InvalidArgError("has no data_type");
  if (static_cast<uint64_t>(num_elements) > kMaxInputBytes / element) {
    return InvalidArgError("has ", num_elements, " elements, which is more than the ",
                           kMaxInputBytes, " bytes that a warmup sample may have");
  }
  const size_t byte_size = num_elements * element;
  if (input.source == WarmupInput::Source::kFile) return ReadData(input, byte_size, model_dir);
  Bytes data(byte_size, 0);
  if (input.source == WarmupInput::Source::kRandom && input.data_type != DataType::kBytes) {
    std::minstd_rand random(1);
    const int limit = input.data_type == DataType::kBool ? 2 : 256;
    for (char& byte : data) byte = static_cast<char>(random() % limit);
  }
  return data;
}

// The inputs that the scheduler of a sequence model adds to each request. A sample is a whole
// sequence. For an iterative model only the backend knows where the sequence ends.
class SequenceInputs {
 public:
  static Result<std::unique_ptr<SequenceInputs>> Make(const ModelConfig& config,
                                                      const std::string& model_dir,
                                                      CoreServices& services) {
    std::unique_ptr<SequenceInputs> made(new SequenceInputs(config));
    NEREID_ASSIGN_OR_RETURN(made->states_, MakeStateSpecs(config, model_dir, &services.memory,
                                                          services.options.state_growth_limits));
    return made;
  }
  // True if the scheduler provides the input `name`. A sample may override its value.
  bool ProvidesInput(const std::string& name) const {
    const std::unique_ptr<HostInputs> inputs = MakeInputs(true, NewStates());
    return std::any_of(inputs->tensors.begin(), inputs->tensors.end(),
                       [&](const InputTensor& tensor) { return tensor.name == name; });
  }
  // The states of one request; null if the model has none.
  std::shared_ptr<SequenceStates> NewStates() const {
    return states_.empty() ? nullptr : std::make_shared<SequenceStates>(states_);
  }
  std::unique_ptr<HostInputs> MakeInputs(bool first, std::shared_ptr<SequenceStates> states) const {
    auto inputs = std::make_unique<HostInputs>();
    controls_.AddInputs({first, true, !iterative_, uint64_t{1}}, inputs.get());
    if (states == nullptr) return inputs;
    states->AddInputs(inputs.get());
    inputs->states = std::move(states);
    return inputs;
  }

 private:
  explicit SequenceInputs(const ModelConfig& config)
      : controls_(*config.sequence_batching, config.max_batch_size > 0),
        iterative_(config.sequence_batching->iterative_sequence) {}

  const SequenceControls controls_;
  const bool iterative_;
  std::vector<StateSpec> states_;
};

// The value of a sample for an input that the scheduler provides.
struct ControlOverride {
  std::string name;
  DataType data_type;
  Shape shape;
  const Bytes* data;
};

// The requests of one sample, and the data that they refer to.
struct WarmupSample {
  std::vector<std::unique_ptr<InferRequest>> requests;
  std::list<Bytes> data;
  std::unique_ptr<SequenceInputs> sequence;  // null: not a sequence model
  std::vector<ControlOverride> overrides;
};

std::unique_ptr<HostInputs> MakeHostInputs(const WarmupSample& sample, bool first,
                                           std::shared_ptr<SequenceStates> states) {
  auto inputs = sample.sequence->MakeInputs(first, std::move(states));
  for (const ControlOverride& given : sample.overrides) {
    for (InputTensor& tensor : inputs->tensors) {
      if (tensor.name != given.name) continue;
      tensor.data_type = given.data_type;
      tensor.client_shape = given.shape;
      tensor.shape = given.shape;
      tensor.byte_size = given.data->size();
      BufferAttributes attributes;
      attributes.byte_size = given.data->size();
      tensor.buffers.clear();
      tensor.buffers.push_back({given.data->data(), attributes});
    }
  }
  return inputs;
}

// Shapes in samples lack the batch dimension, also those of controls and states.
Shape ShapeOf(const WarmupInput& input, bool batched) {
  Shape shape;
  if (batched) shape.push_back(1);
  shape.Append(input.dims);
  return shape;
}

Result<WarmupSample> MakeSample(const Warmup& warmup, const ModelConfig& config,
                                const std::string& model_dir, CoreServices& services,
                                const std::shared_ptr<RequestTarget>& target) {
  WarmupSample sample;
  if (config.sequence_batching) {
    NEREID_ASSIGN_OR_RETURN(sample.sequence, SequenceInputs::Make(config, model_dir, services));
  }
  const uint32_t num_requests = warmup.batch_size;
  if (config.max_batch_size > 0 && num_requests > static_cast<uint32_t>(config.max_batch_size)) {
    return InvalidArgError("batch size ", num_requests, ", max allowed is ", config.max_batch_size);
  }
  if (num_requests > kMaxRequests) {
    return InvalidArgError("batch size ", num_requests, ", max allowed is ", kMaxRequests);
  }
  for (uint32_t i = 0; i < num_requests; ++i) {
    sample.requests.push_back(std::make_unique<InferRequest>(target, -1));
    sample.requests.back()->set_id(StrCat("warmup ", warmup.name));
  }
  const bool batched = config.max_batch_size > 0;
  for (const auto& [name, input] : warmup.inputs) {
    if (std::any_of(input.dims.begin(), input.dims.end(), [](int64_t dim) { return dim < 0; })) {
      return InvalidArgError(
          "warmup setting expects all variable-size dimensions are specified for input '", name,
          "'");
    }
    NEREID_ASSIGN_OR_RETURN(const int64_t num_elements, ElementCount(input.dims));
    auto data = MakeData(input, num_elements, model_dir);
    if (!data.ok()) return std::move(data).status().WithContext(StrCat("input '", name, "'"));
    const Bytes& bytes = sample.data.emplace_back(std::move(data).value());
    if (sample.sequence != nullptr && sample.sequence->ProvidesInput(name)) {
      sample.overrides.push_back({name, input.data_type, ShapeOf(input, batched), &bytes});
      continue;
    }
    BufferAttributes attributes;
    attributes.byte_size = bytes.size();
    for (const auto& request : sample.requests) {
      NEREID_RETURN_IF_ERROR(
          request->AddInput(name, input.data_type, ShapeOf(input, batched).span()));
      NEREID_RETURN_IF_ERROR(request->AppendInputData(name, bytes.data(), attributes));
    }
  }
  return sample;
}

Status RunSample(const WarmupSample& sample, Instance* instance) {
  WarmupCompletion completion(sample.requests.size());
  ResponseCallbacks callbacks;
  callbacks.allocator = &kHeapAllocator;
  callbacks.response_fn = [](TRITONSERVER_InferenceResponse* response, uint32_t flags, void* self) {
    static_cast<WarmupCompletion*>(self)->OnResponse(response, flags);
  };
  callbacks.response_userp = &completion;
  std::vector<InferRequest*> batch;
  std::map<InferRequest*, std::shared_ptr<SequenceStates>> states;
  for (const auto& request : sample.requests) {
    request->set_response_callbacks(callbacks);
    request->set_release_callback(
        [](TRITONSERVER_InferenceRequest*, uint32_t, void* self) {
          static_cast<WarmupCompletion*>(self)->OnRelease();
        },
        &completion);
    batch.push_back(request.get());
  }
  for (InferRequest* request : batch) {
    // The requests are alike: either the first one is rejected or none is.
    NEREID_RETURN_IF_ERROR(request->Prepare());
    if (sample.sequence != nullptr) {
      states[request] = sample.sequence->NewStates();
      request->SetHostInputs(MakeHostInputs(sample, true, states[request]));
    }
    request->AddReleaseHook(&completion);
    request->target()->OnAccepted();
    request->queue_start_ns = request->request_start_ns;
  }
  while (true) {
    instance->Execute(batch);
    Status status = completion.Wait(&batch);
    if (batch.empty()) return status;
    for (InferRequest* request : batch) {
      request->SetHostInputs(MakeHostInputs(sample, false, states[request]));
      request->AddReleaseHook(&completion);
    }
  }
}

}  // namespace

Status RunWarmups(const ModelConfig& config, const std::string& model_dir, CoreServices& services,
                  RequestTarget* target, Instance* instance) {
  // It needs no reference count, because the warm-up ends before the model can end.
  const std::shared_ptr<RequestTarget> uncounted(std::shared_ptr<void>(), target);
  for (const Warmup& warmup : config.warmups) {
    if (warmup.batch_size == 0) continue;  // as in Triton: a sample without requests
    const auto run = [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(const WarmupSample sample,
                              MakeSample(warmup, config, model_dir, services, uncounted));
      const uint32_t count = std::max<uint32_t>(warmup.count, 1);
      for (uint32_t i = 0; i < count; ++i) {
        NEREID_LOG_VERBOSE(1, "model '", instance->spec().name, "' is running warmup sample '",
                           warmup.name, "' for iteration ", i + 1);
        NEREID_RETURN_IF_ERROR(RunSample(sample, instance));
      }
      return Status::Ok();
    };
    Status status = run();
    if (!status.ok()) {
      return std::move(status).WithContext(StrCat("instance '", instance->spec().name,
                                                  "': failed to run warmup sample '", warmup.name,
                                                  "'"));
    }
  }
  return Status::Ok();
}

}  // namespace nereid::core
