// A backend for ONNX Runtime: `backend: "onnxruntime"` serves <version>/model.onnx on the CPU. It
// loads ONNX Runtime's shared library with the first model: libonnxruntime.so next to this library,
// or --backend-config=onnxruntime,library=PATH.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nereid/backend.h"
#include "tests/compat/onnxruntime/ort_api.h"

namespace {

// Indexed by ONNX Runtime's element types; types without a Triton data type are invalid.
using nereid::DataType;
constexpr std::array<DataType, 17> kTypes = {
    DataType::kInvalid, DataType::kFp32,   DataType::kUint8,
    DataType::kInt8,    DataType::kUint16, DataType::kInt16,
    DataType::kInt32,   DataType::kInt64,  DataType::kInvalid /* string */,
    DataType::kBool,    DataType::kFp16,   DataType::kFp64,
    DataType::kUint32,  DataType::kUint64, DataType::kInvalid,
    DataType::kInvalid, DataType::kBf16};

int OrtTypeOf(DataType type) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i] == type) return static_cast<int>(i);
  }
  return 0;
}

// The library is opened once per process and never closed, because its threads outlive the models.
const OrtApi* g_ort = nullptr;

nereid::Status ToStatus(OrtStatus* status) {
  if (status == nullptr) return {};
  const nereid::Status result =
      nereid::InternalError("ONNX Runtime: ", g_ort->GetErrorMessage(status));
  g_ort->ReleaseStatus(status);
  return result;
}

template <auto Release>
struct Releaser {
  template <typename T>
  void operator()(T* object) const {
    (g_ort->*Release)(object);
  }
};
using Env = std::unique_ptr<OrtEnv, Releaser<&OrtApi::ReleaseEnv>>;
using Session = std::unique_ptr<OrtSession, Releaser<&OrtApi::ReleaseSession>>;
using SessionOptions = std::unique_ptr<OrtSessionOptions, Releaser<&OrtApi::ReleaseSessionOptions>>;
using MemoryInfo = std::unique_ptr<OrtMemoryInfo, Releaser<&OrtApi::ReleaseMemoryInfo>>;
using TypeInfo = std::unique_ptr<OrtTypeInfo, Releaser<&OrtApi::ReleaseTypeInfo>>;
using TensorInfo =
    std::unique_ptr<OrtTensorTypeAndShapeInfo, Releaser<&OrtApi::ReleaseTensorTypeAndShapeInfo>>;
using Value = std::unique_ptr<OrtValue, Releaser<&OrtApi::ReleaseValue>>;

nereid::Status OpenLibrary(const std::filesystem::path& path) {
  static std::mutex mutex;  // models may load concurrently
  const std::lock_guard lock(mutex);
  if (g_ort != nullptr) return {};
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nereid::NotFoundError("ONNX Runtime's library: ", dlerror());
  const auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (base == nullptr) return nereid::InvalidArgError("'", path.string(), "' has no OrtGetApiBase");
  g_ort = base()->GetApi(kOrtApiVersion);
  if (g_ort == nullptr)
    return nereid::UnsupportedError("'", path.string(), "' does not have version ", kOrtApiVersion,
                                    " of the C API");
  nereid::LogInfo(nereid::StrCat("ONNX Runtime ", base()->GetVersionString()));
  return {};
}

// Reads type and shape of a tensor; an unknown dimension is -1.
nereid::Status Describe(const OrtTensorTypeAndShapeInfo* tensor, nereid::TensorSpec& spec) {
  int type = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(g_ort->GetTensorElementType(tensor, &type)));
  spec.datatype =
      type >= 0 && static_cast<size_t>(type) < kTypes.size() ? kTypes[type] : DataType::kInvalid;
  if (spec.datatype == DataType::kInvalid)
    return nereid::UnsupportedError("tensor '", spec.name, "': element type ", type,
                                    " of ONNX is not served");
  size_t num_dims = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(g_ort->GetDimensionsCount(tensor, &num_dims)));
  spec.dims.resize(num_dims);
  return ToStatus(g_ort->GetDimensions(tensor, spec.dims.data(), num_dims));
}

class OnnxModel : public nereid::Model {
 public:
  nereid::Status AutoComplete(nereid::ConfigDraft& draft) override {
    NEREID_RETURN_IF_ERROR(Open());
    const bool lacks_inputs =
        draft.json()["input"].elements().empty();  // a configured list is complete
    const bool lacks_outputs = draft.json()["output"].elements().empty();
    const std::set<std::string> of_sequences = SequenceTensors();
    for (const nereid::TensorSpec& spec : inputs_) {
      if (lacks_inputs && !of_sequences.contains(spec.name))
        NEREID_RETURN_IF_ERROR(draft.AddInput(WithoutBatch(spec)));
    }
    for (const nereid::TensorSpec& spec : outputs_) {
      if (lacks_outputs && !of_sequences.contains(spec.name))
        NEREID_RETURN_IF_ERROR(draft.AddOutput(WithoutBatch(spec)));
    }
    return {};
  }
  nereid::Status Initialize() override {
    for (const nereid::TensorSpec& spec : config().outputs()) answers_.insert(spec.name);
    for (const nereid::Json& state : config().json()["sequence_batching"]["state"].elements())
      states_.insert(state["output_name"].AsString());
    return Open();
  }

  // One run per request: the requests of a batch may have different shapes if the model allows it.
  nereid::Status Execute(nereid::Batch& batch) override {
    for (nereid::Request& request : batch) {
      const nereid::Status status = Run(request);
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }

 private:
  // Returns the tensors other than the configured inputs and outputs: the scheduler provides
  // control inputs and states, and stores states.
  std::set<std::string> SequenceTensors() const {
    std::set<std::string> names;
    const nereid::Json& sequences = config().json()["sequence_batching"];
    for (const nereid::Json& control : sequences["control_input"].elements())
      names.insert(control["name"].AsString());
    for (const nereid::Json& state : sequences["state"].elements()) {
      names.insert({state["input_name"].AsString(), state["output_name"].AsString()});
    }
    return names;
  }

  nereid::Status Open() {
    if (session_ != nullptr) return {};
    const nereid::Json& flags = context().backend_config()["cmdline"];
    const std::string library = flags["library"].AsString();
    NEREID_RETURN_IF_ERROR(OpenLibrary(library.empty()
                                           ? context().backend_directory() / "libonnxruntime.so"
                                           : std::filesystem::path(library)));
    OrtEnv* env = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->CreateEnv(kOrtLogWarning, name().c_str(), &env)));
    env_.reset(env);
    OrtMemoryInfo* memory = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(g_ort->CreateCpuMemoryInfo(kOrtArenaAllocator, kOrtMemTypeDefault, &memory)));
    memory_.reset(memory);
    NEREID_RETURN_IF_ERROR(OpenSession());
    NEREID_RETURN_IF_ERROR(ReadTensors(&OrtApi::SessionGetInputCount, &OrtApi::SessionGetInputName,
                                       &OrtApi::SessionGetInputTypeInfo, inputs_));
    return ReadTensors(&OrtApi::SessionGetOutputCount, &OrtApi::SessionGetOutputName,
                       &OrtApi::SessionGetOutputTypeInfo, outputs_);
  }

  nereid::Status OpenSession() {
    NEREID_ASSIGN_OR_RETURN(const int64_t num_threads,
                            parameters().Int("intra_op_thread_count", 0));
    OrtSessionOptions* handle = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->CreateSessionOptions(&handle)));
    const SessionOptions options(handle);
    NEREID_RETURN_IF_ERROR(
        ToStatus(g_ort->SetIntraOpNumThreads(handle, static_cast<int>(num_threads))));
    const std::string& given = config().json()["default_model_filename"].AsString();
    const std::filesystem::path file =
        context().version_directory() / (given.empty() ? "model.onnx" : given);
    OrtSession* session = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(g_ort->CreateSession(env_.get(), file.c_str(), handle, &session)));
    session_.reset(session);
    return {};
  }

  template <typename Count, typename NameOf, typename TypeOf>
  nereid::Status ReadTensors(Count count_of, NameOf name_of, TypeOf type_of,
                             std::vector<nereid::TensorSpec>& specs) {
    OrtAllocator* allocator = nullptr;  // owned by ONNX Runtime
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->GetAllocatorWithDefaultOptions(&allocator)));
    size_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus((g_ort->*count_of)(session_.get(), &count)));
    for (size_t i = 0; i < count; ++i) {
      nereid::TensorSpec& spec = specs.emplace_back();
      char* name = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus((g_ort->*name_of)(session_.get(), i, allocator, &name)));
      spec.name = name;
      NEREID_RETURN_IF_ERROR(ToStatus(g_ort->AllocatorFree(allocator, name)));
      OrtTypeInfo* handle = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus((g_ort->*type_of)(session_.get(), i, &handle)));
      const TypeInfo info(handle);
      const OrtTensorTypeAndShapeInfo* tensor = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(g_ort->CastTypeInfoToTensorInfo(handle, &tensor)));
      if (tensor == nullptr)
        return nereid::UnsupportedError("'", spec.name,
                                        "' is a map or a sequence; only tensors are served");
      NEREID_RETURN_IF_ERROR(Describe(tensor, spec));
    }
    return {};
  }

  // Returns the spec as config.pbtxt has it: without the batch dimension if the model batches.
  nereid::TensorSpec WithoutBatch(nereid::TensorSpec spec) const {
    if (config().max_batch_size() > 0 && !spec.dims.empty()) spec.dims.erase(spec.dims.begin());
    return spec;
  }

  nereid::Status Run(nereid::Request& request) {
    std::vector<nereid::TensorView> views;  // own the bytes of the input values
    std::vector<Value> inputs, outputs(outputs_.size());
    views.reserve(inputs_.size());
    for (const nereid::TensorSpec& spec : inputs_) {
      NEREID_ASSIGN_OR_RETURN(views.emplace_back(), request.Input(spec.name.c_str()));
      NEREID_ASSIGN_OR_RETURN(inputs.emplace_back(), ValueOf(views.back(), spec));
    }
    NEREID_RETURN_IF_ERROR(Compute(inputs, outputs));
    for (size_t i = 0; i < outputs.size(); ++i)
      NEREID_RETURN_IF_ERROR(Deliver(request, outputs_[i].name, *outputs[i]));
    return {};
  }

  nereid::Result<Value> ValueOf(nereid::TensorView& view, const nereid::TensorSpec& spec) {
    NEREID_RETURN_IF_ERROR(view.Expect(spec.datatype));
    NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                            view.Bytes(nereid::ByteSize(spec.datatype)));
    OrtValue* value = nullptr;  // the input is only read, although the parameter is not const
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->CreateTensorWithDataAsOrtValue(
        memory_.get(), const_cast<std::byte*>(bytes.data()), bytes.size(), view.shape().data(),
        view.shape().size(), OrtTypeOf(spec.datatype), &value)));
    return Value(value);
  }

  nereid::Status Compute(const std::vector<Value>& inputs, std::vector<Value>& outputs) {
    std::vector<const char*> input_names, output_names;
    std::vector<const OrtValue*> given;
    for (const nereid::TensorSpec& spec : inputs_) input_names.push_back(spec.name.c_str());
    for (const nereid::TensorSpec& spec : outputs_) output_names.push_back(spec.name.c_str());
    for (const Value& input : inputs) given.push_back(input.get());
    std::vector<OrtValue*> made(outputs.size());
    const nereid::Status status =
        ToStatus(g_ort->Run(session_.get(), nullptr, input_names.data(), given.data(), given.size(),
                            output_names.data(), output_names.size(), made.data()));
    for (size_t i = 0; i < made.size(); ++i) outputs[i].reset(made[i]);
    return status;
  }

  // An output of the session is an output of the model, a state of its sequence, or both.
  nereid::Status Deliver(nereid::Request& request, const std::string& name, OrtValue& value) const {
    OrtTensorTypeAndShapeInfo* handle = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->GetTensorTypeAndShape(&value, &handle)));
    const TensorInfo info(handle);
    nereid::TensorSpec spec;
    spec.name = name;
    NEREID_RETURN_IF_ERROR(Describe(handle, spec));
    void* data = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(g_ort->GetTensorMutableData(&value, &data)));
    NEREID_ASSIGN_OR_RETURN(const size_t count,
                            nereid::ElementCount(spec.dims, nereid::ByteSize(spec.datatype)));
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(data),
                                           count * nereid::ByteSize(spec.datatype));
    if (answers_.contains(name)) NEREID_RETURN_IF_ERROR(Answer(request, spec, bytes));
    return states_.contains(name) ? Keep(request, spec, bytes) : nereid::Status();
  }

  static nereid::Status Answer(nereid::Request& request, const nereid::TensorSpec& spec,
                               std::span<const std::byte> bytes) {
    NEREID_ASSIGN_OR_RETURN(nereid::Response * response, request.GetOrCreateResponse());
    NEREID_ASSIGN_OR_RETURN(
        const std::span<std::byte> target,
        response->OutputBytes(spec.name.c_str(), spec.datatype, spec.dims, bytes.size()));
    std::copy(bytes.begin(), bytes.end(), target.begin());
    return {};
  }

  // Stores a state for the next request of the sequence.
  static nereid::Status Keep(nereid::Request& request, const nereid::TensorSpec& spec,
                             std::span<const std::byte> bytes) {
    TRITONBACKEND_State* state = nullptr;
    NEREID_RETURN_IF_ERROR(nereid::ToStatus(TRITONBACKEND_StateNew(
        &state, request.handle(), spec.name.c_str(), nereid::ToC(spec.datatype), spec.dims.data(),
        static_cast<uint32_t>(spec.dims.size()))));
    void* base = nullptr;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_type_id = 0;
    NEREID_RETURN_IF_ERROR(nereid::ToStatus(
        TRITONBACKEND_StateBuffer(state, &base, bytes.size(), &memory_type, &memory_type_id)));
    if (memory_type == TRITONSERVER_MEMORY_GPU)
      return nereid::UnsupportedError("state '", spec.name, "' lies on a GPU");
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(base));
    return nereid::ToStatus(TRITONBACKEND_StateUpdate(state));
  }

  Env env_;
  MemoryInfo memory_;
  Session session_;  // may be run by any number of threads
  std::vector<nereid::TensorSpec> inputs_, outputs_;
  std::set<std::string> answers_, states_;  // names among outputs_
};

}  // namespace

NEREID_BACKEND(OnnxModel);
