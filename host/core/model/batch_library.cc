#include "host/core/model/batch_library.h"

#include <filesystem>
#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

constexpr char kParameter[] = "TRITON_BATCH_STRATEGY_PATH";

struct Functions {
  decltype(&TRITONBACKEND_ModelBatcherInitialize) batcher_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelBatcherFinalize) batcher_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelBatchInitialize) batch_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelBatchIncludeRequest) include = nullptr;
  decltype(&TRITONBACKEND_ModelBatchFinalize) batch_finalize = nullptr;
};

class BatchLibrary final : public BatchStrategy {
 public:
  BatchLibrary(std::string path, const Functions& functions)
      : path_(std::move(path)), functions_(functions) {}
  ~BatchLibrary() override {
    if (!initialized_) return;
    Log("ModelBatcherFinalize", [&] { return functions_.batcher_finalize(batcher_); });
  }

  Status Initialize(TRITONBACKEND_Model* model) {
    NEREID_RETURN_IF_ERROR(GuardedCall(path_, "ModelBatcherInitialize", [&] {
      return functions_.batcher_initialize(&batcher_, model);
    }));
    initialized_ = true;
    return Status::Ok();
  }

  void* BeginBatch() override {
    void* batch = nullptr;
    Log("ModelBatchInitialize", [&] { return functions_.batch_initialize(batcher_, &batch); });
    return batch;
  }
  bool Include(const InferRequest& request, void* batch) override {
    bool include = true;
    auto* handle = reinterpret_cast<TRITONBACKEND_Request*>(const_cast<InferRequest*>(&request));
    Log("ModelBatchIncludeRequest", [&] { return functions_.include(handle, batch, &include); });
    return include;
  }
  void EndBatch(void* batch) override {
    Log("ModelBatchFinalize", [&] { return functions_.batch_finalize(batch); });
  }

 private:
  // Errors of the library are logged and otherwise ignored.
  template <typename Call>
  void Log(const char* function, Call&& call) {
    const Status status = GuardedCall(path_, function, std::forward<Call>(call));
    if (!status.ok()) NEREID_LOG_ERROR(function, " of '", path_, "': ", status.message());
  }

  const std::string path_;
  const Functions functions_;
  TRITONBACKEND_Batcher* batcher_ = nullptr;
  bool initialized_ = false;
};

// Returns an empty path if the model has no library.
Result<std::string> FindLibrary(const ModelConfig& config, int64_t version,
                                const std::string& model_dir, const std::string& backend_dir) {
  std::error_code error;
  if (const auto it = config.parameters.find(kParameter); it != config.parameters.end()) {
    const std::string& given = it->second;
    for (const fs::path& path : {fs::path(given), fs::path(model_dir) / given}) {
      if (fs::is_regular_file(path, error)) return fs::absolute(path, error).string();
    }
    return NotFoundError("Batching library path not found: ", given, " (parameter ", kParameter,
                         ")");
  }
  for (const std::string& folder :
       {StrCat(model_dir, "/", version), std::string(model_dir), std::string(backend_dir)}) {
    const std::string path = folder + "/batchstrategy.so";
    if (!folder.empty() && fs::exists(path, error)) return path;
  }
  return std::string();
}

}  // namespace

Result<std::unique_ptr<BatchStrategy>> LoadBatchLibrary(const ModelConfig& config, int64_t version,
                                                        const std::string& model_dir,
                                                        const std::string& backend_dir,
                                                        TRITONBACKEND_Model* model) {
  NEREID_ASSIGN_OR_RETURN(const std::string path,
                          FindLibrary(config, version, model_dir, backend_dir));
  std::unique_ptr<BatchStrategy> none;
  if (path.empty()) return none;
  NEREID_LOG_INFO("Loading custom batching strategy library ", path, " for model ", config.name);
  NEREID_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(path));
  Functions functions;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    *function =
        library.Find<std::remove_pointer_t<std::remove_pointer_t<decltype(function)>>>(name);
    if (*function == nullptr && missing == nullptr) missing = name;
  };
  find("TRITONBACKEND_ModelBatcherInitialize", &functions.batcher_initialize);
  find("TRITONBACKEND_ModelBatcherFinalize", &functions.batcher_finalize);
  find("TRITONBACKEND_ModelBatchInitialize", &functions.batch_initialize);
  find("TRITONBACKEND_ModelBatchIncludeRequest", &functions.include);
  find("TRITONBACKEND_ModelBatchFinalize", &functions.batch_finalize);
  if (missing != nullptr) {
    return InvalidArgError("batching library '", path, "' does not export ", missing);
  }
  auto strategy = std::make_unique<BatchLibrary>(path, functions);
  NEREID_RETURN_IF_ERROR(strategy->Initialize(model));
  return std::unique_ptr<BatchStrategy>(std::move(strategy));
}

}  // namespace nereid::core
