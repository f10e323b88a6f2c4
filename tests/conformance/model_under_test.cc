#include "tests/conformance/model_under_test.h"

#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "nereid/handles.h"
#include "nereid/json.h"

namespace nereid::conformance {
namespace {

namespace fs = std::filesystem;

// "libtriton_x.so" -> "x".
Result<std::string> BackendName(const fs::path& library) {
  const std::string file = library.filename().string();
  constexpr std::string_view kHead = "libtriton_", kTail = ".so";
  if (file.size() <= kHead.size() + kTail.size() || file.rfind(kHead, 0) != 0 ||
      library.extension() != kTail) {
    return InvalidArgError("'", library.string(), "': expected a file libtriton_<backend>.so");
  }
  return file.substr(kHead.size(), file.size() - kHead.size() - kTail.size());
}

std::vector<TensorInfo> ReadTensors(const Json& tensors) {
  std::vector<TensorInfo> result;
  for (const Json& tensor : tensors.elements()) {
    TensorInfo& info = result.emplace_back();
    info.name = tensor["name"].AsString();
    const std::string type = tensor["data_type"].AsString();  // TYPE_FP32, TYPE_STRING
    info.datatype = type == "TYPE_STRING"
                        ? TRITONSERVER_TYPE_BYTES
                        : TRITONSERVER_StringToDataType(type.substr(type.find('_') + 1).c_str());
    for (const Json& dim : tensor["dims"].elements()) info.dims.push_back(dim.AsInt());
  }
  return result;
}

// Zeros; each BYTES element is the string "0".
std::string Content(const TensorInfo& input, int64_t num_elements) {
  if (input.datatype != TRITONSERVER_TYPE_BYTES) {
    return std::string(num_elements * TRITONSERVER_DataTypeByteSize(input.datatype), '\0');
  }
  std::string content;
  for (int64_t i = 0; i < num_elements; ++i)
    content += std::string(
        "\x01\0\0\0"
        "0",
        5);
  return content;
}

}  // namespace

// One request in flight.
class ModelUnderTest::Call final : public InferObserver {
 public:
  void OnResponse(InferResponse response, bool is_final) noexcept override {
    std::shared_ptr<Call> last;  // destroyed after the lock
    std::lock_guard lock(mutex_);
    answer_.num_final += is_final ? 1 : 0;
    if (!response.empty()) Take(response);
    if (settled()) last = std::move(self);
    settled_.notify_all();
  }
  void OnRelease(InferRequest request) noexcept override {
    std::shared_ptr<Call> last;
    std::lock_guard lock(mutex_);
    released_ = true;
    request_.emplace(std::move(request));
    if (settled()) last = std::move(self);
    settled_.notify_all();
  }

  Answer Wait(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    answer_.complete = settled_.wait_for(lock, patience, [this] { return settled(); });
    return answer_;
  }

  std::vector<std::string> data;  // of the inputs
  // Set while the request is in flight: a backend may end it after the test has given up waiting.
  std::shared_ptr<Call> self;

 private:
  bool settled() const { return released_ && answer_.num_final > 0; }
  void Take(const InferResponse& response) {
    ++answer_.num_responses;
    const Status error = response.Error();
    if (!error.ok() && answer_.error.ok()) answer_.error = error;
    const auto id = response.RequestId();
    if (id.ok()) answer_.request_id = *id;
    const auto count = response.OutputCount();
    for (uint32_t i = 0; error.ok() && count.ok() && i < *count; ++i) {
      const auto output = response.Output(i);
      if (!output.ok()) continue;
      answer_.outputs[output->name].append(static_cast<const char*>(output->base),
                                           output->base == nullptr ? 0 : output->size_bytes);
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable settled_;
  bool released_ = false;
  std::optional<InferRequest> request_;
  Answer answer_;
};

Result<std::unique_ptr<ModelUnderTest>> ModelUnderTest::Create(
    const ModelUnderTestOptions& options) {
  std::string root = (fs::temp_directory_path() / "nereid-check-XXXXXX").string();
  if (mkdtemp(root.data()) == nullptr) return InternalError("cannot make a temporary folder");
  std::unique_ptr<ModelUnderTest> model(new ModelUnderTest(root));
  model->patience_ = options.patience;
  NEREID_ASSIGN_OR_RETURN(model->backend_, BackendName(options.library));
  NEREID_RETURN_IF_ERROR(model->MakeRepository(options));
  NEREID_RETURN_IF_ERROR(model->StartServer(options));
  NEREID_ASSIGN_OR_RETURN(auto allocator, ResponseAllocator::Create<HeapOutputPolicy>());
  model->allocator_ = std::make_unique<ResponseAllocator>(std::move(allocator));
  return model;
}

Status ModelUnderTest::MakeRepository(const ModelUnderTestOptions& options) {
  std::error_code error;
  const fs::path library = fs::absolute(options.library);
  if (!fs::is_regular_file(library, error)) {
    return NotFoundError("'", options.library, "': no such file");
  }
  fs::create_directories(root_ / "backends");
  // Links the whole folder, because it may contain libraries that the backend needs.
  fs::create_directory_symlink(library.parent_path(), root_ / "backends" / backend_);
  fs::create_directories(root_ / "repository");
  if (!options.model_folder.empty()) {
    const fs::path folder = fs::canonical(options.model_folder, error);
    if (error) return NotFoundError("'", options.model_folder, "': no such folder");
    name_ = folder.filename().string();
    fs::create_directory_symlink(folder, root_ / "repository" / name_);
    return {};
  }
  name_ = "subject";
  fs::create_directories(root_ / "repository/subject/1");
  std::ofstream file(root_ / "repository/subject/config.pbtxt");
  file << options.config << '\n';
  if (options.config.find("backend") == std::string::npos) {
    file << "backend: \"" << backend_ << "\"\n";
  }
  return {};
}

Status ModelUnderTest::StartServer(const ModelUnderTestOptions& options) {
  NEREID_ASSIGN_OR_RETURN(ServerOptions server, ServerOptions::Create());
  NEREID_RETURN_IF_ERROR(server.AddModelRepository((root_ / "repository").string()));
  NEREID_RETURN_IF_ERROR(server.SetBackendDirectory((root_ / "backends").string()));
  NEREID_RETURN_IF_ERROR(server.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEREID_RETURN_IF_ERROR(server.Set(TRITONSERVER_ServerOptionsSetStrictModelConfig, false));
  NEREID_RETURN_IF_ERROR(server.Set(TRITONSERVER_ServerOptionsSetExitTimeout,
                                    static_cast<unsigned>(options.patience.count())));
  for (const auto& [key, value] : options.backend_settings) {
    NEREID_RETURN_IF_ERROR(server.SetBackendConfig(backend_, key, value));
  }
  NEREID_ASSIGN_OR_RETURN(Server started, Server::Start(server));
  server_ = std::make_unique<Server>(std::move(started));
  return {};
}

ModelUnderTest::~ModelUnderTest() {
  server_.reset();
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

Status ModelUnderTest::LoadInstances(int64_t count) const {
  NEREID_ASSIGN_OR_RETURN(const Message message, server_->ModelConfig(name_.c_str()));
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, message.Json());
  NEREID_ASSIGN_OR_RETURN(Json config, Json::Parse(text));
  std::vector<Json>& groups = config.Mutable("instance_group").mutable_elements();
  if (groups.empty()) return UnsupportedError("the model has no instances");
  groups.front().Set("count", count);
  const Parameter changed[] = {Parameter::String("config", config.Dump())};
  return server_->LoadModel(name_.c_str(), changed);
}

Status ModelUnderTest::Unload() const {
  NEREID_RETURN_IF_ERROR(server_->UnloadModel(name_.c_str()));
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (true) {
    NEREID_ASSIGN_OR_RETURN(const Message message, server_->ModelIndex(false));
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, message.Json());
    if (text.find("UNLOADING") == std::string_view::npos) return {};
    if (std::chrono::steady_clock::now() > deadline) {
      return UnavailableError("the model is still not gone after ", patience_.count(), " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Status ModelUnderTest::Describe() {
  NEREID_ASSIGN_OR_RETURN(const Message message, server_->ModelConfig(name_.c_str()));
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, message.Json());
  NEREID_ASSIGN_OR_RETURN(const Json config, Json::Parse(text));
  inputs_ = ReadTensors(config["input"]);
  outputs_ = ReadTensors(config["output"]);
  max_batch_size_ = config["max_batch_size"].AsInt();
  decoupled_ = config["model_transaction_policy"]["decoupled"].AsBool();
  return {};
}

Result<std::shared_ptr<ModelUnderTest::Call>> ModelUnderTest::Send(
    const RequestVariant& shape) const {
  NEREID_ASSIGN_OR_RETURN(InferRequest request, server_->NewRequest(name_.c_str()));
  auto call = std::make_shared<Call>();
  call->data.reserve(inputs_.size());  // the request points into the strings
  NEREID_RETURN_IF_ERROR(request.SetId(shape.id.c_str()));
  for (const TensorInfo& input : inputs_) {
    std::vector<int64_t> dims;
    if (max_batch_size_ > 0) dims.push_back(shape.rows);
    for (const int64_t dim : input.dims) dims.push_back(dim < 0 ? shape.free_dim : dim);
    int64_t num_elements = 1;
    for (const int64_t dim : dims) num_elements *= dim;
    const char* name = input.name.c_str();
    NEREID_RETURN_IF_ERROR(request.AddInput(name, input.datatype, dims));
    const std::string& bytes = call->data.emplace_back(Content(input, num_elements));
    const size_t chunk_bytes =
        std::max<size_t>(1, (bytes.size() + shape.num_buffers - 1) / shape.num_buffers);
    for (size_t at = 0; at < bytes.size(); at += chunk_bytes) {
      NEREID_RETURN_IF_ERROR(request.AppendInputData(name, bytes.data() + at,
                                                     std::min(chunk_bytes, bytes.size() - at)));
    }
  }
  for (const std::string& output : shape.outputs) {
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.c_str()));
  }
  call->self = call;
  Status status = request.SetCallbacks(call.get(), *allocator_, nullptr);
  TRITONSERVER_InferenceRequest* handle = request.get();
  if (status.ok()) status = server_->InferAsync(std::move(request));
  if (!status.ok()) {
    call->self.reset();
    return status;
  }
  if (shape.cancelled) (void)InferRequest::Cancel(handle);
  return call;
}

Result<Answer> ModelUnderTest::Ask(const RequestVariant& shape) const {
  NEREID_ASSIGN_OR_RETURN(const auto call, Send(shape));
  return call->Wait(patience_);
}

Result<std::vector<Answer>> ModelUnderTest::AskAtOnce(
    const std::vector<RequestVariant>& shapes) const {
  std::vector<std::shared_ptr<Call>> calls;
  for (const RequestVariant& shape : shapes) {
    NEREID_ASSIGN_OR_RETURN(auto call, Send(shape));
    calls.push_back(std::move(call));
  }
  std::vector<Answer> answers;
  for (const auto& call : calls) answers.push_back(call->Wait(patience_));
  return answers;
}

Result<uint64_t> ModelUnderTest::NumReported() const {
  NEREID_ASSIGN_OR_RETURN(const Message message, server_->ModelStatistics(name_.c_str()));
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, message.Json());
  NEREID_ASSIGN_OR_RETURN(const Json statistics, Json::Parse(text));
  uint64_t count = 0;
  for (const Json& version : statistics["model_stats"].elements()) {
    count += static_cast<uint64_t>(version["inference_stats"]["success"]["count"].AsInt());
  }
  return count;
}

}  // namespace nereid::conformance
