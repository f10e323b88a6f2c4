#include "backends/python_like_scripted/model.h"

#include <dlfcn.h>

#include <system_error>

#include "backends/python_like_scripted/stub_interpreter.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;

// The folder of this shared library; the worker's files are installed in it.
fs::path LibraryFolder() {
  static const char kHere = 0;
  Dl_info info;
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  return fs::canonical(info.dli_fname, error).parent_path();
}

Result<std::string> BackendName(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend = nullptr;
  const char* name = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelBackend(model, &backend)));
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_BackendName(backend, &name)));
  return std::string(name);
}

// The interpreter of a model without an environment: that of the version which a stub in its folder
// is linked to, else the one of the settings.
std::string ChooseInterpreter(const ModelContext& context, const Settings& settings) {
  std::error_code error;
  const std::string& configured = settings.interpreter;
  const fs::path stub = context.directory() / "triton_python_backend_stub";
  if (!fs::exists(stub, error)) return configured;
  const std::string version = StubPythonVersion(stub);
  const std::string chosen =
      version.empty()
          ? configured
          : InterpreterForVersion(version, configured, settings.is_interpreter_configured);
  const std::string text =
      StrCat("model '", context.name(), "': '", stub.string(), "' is linked to ",
             version.empty() ? "no Python" : "Python " + version, ": '", chosen,
             "' runs the model in its place");
  if (!version.empty() && chosen == configured && VersionInName(chosen).empty()) {
    LogWarning(StrCat(text, ", whose name does not say of which version it is"));
  } else {
    LogInfo(text);
  }
  return chosen;
}

Status CheckForceCpuOnly(const std::string& value) {
  if (value == "yes" || value == "no") return {};
  return InvalidArgError("FORCE_CPU_ONLY_INPUT_TENSORS: expected yes or no, got '", value, "'");
}

}  // namespace

Status PythonModel::Prepare() {
  if (is_prepared_) return {};
  NEREID_ASSIGN_OR_RETURN(settings_, Settings::Parse(context().backend_config()));
  for (const std::string& key : settings_.unknown_keys) {
    LogWarning(StrCat("model '", name(), "': --backend-config=python,", key,
                      " is ignored: expected one of ", Settings::KnownKeys()));
  }
  NEREID_ASSIGN_OR_RETURN(const std::string backend, BackendName(context().handle()));
  const std::string& configured = config().json()["default_model_filename"].AsString();
  is_backend_file_ = backend != "python";
  file_ = is_backend_file_
              ? context().backend_directory() / "model.py"
              : context().version_directory() / (configured.empty() ? "model.py" : configured);
  std::error_code error;
  if (!fs::is_regular_file(file_, error)) {
    return NotFoundError("model '", name(), "': expected its Python code in '", file_.string(),
                         "', found no such file");
  }
  if (const std::string* path = parameters().Find("EXECUTION_ENV_PATH")) {
    Result<std::shared_ptr<const ExecutionEnv>> env =
        ExecutionEnv::Open(*path, context().directory());
    if (!env.ok()) return std::move(env).status().WithContext(StrCat("model '", name(), "'"));
    env_ = std::move(*env);
  }
  if (const std::string* value = parameters().Find("FORCE_CPU_ONLY_INPUT_TENSORS")) {
    if (Status status = CheckForceCpuOnly(*value); !status.ok()) {
      return std::move(status).WithContext(StrCat("model '", name(), "'"));
    }
    keeps_gpu_inputs_ = *value == "no";
  }
  if (env_ == nullptr) interpreter_ = ChooseInterpreter(context(), settings_);
  is_prepared_ = true;
  return {};
}

Status PythonModel::AutoComplete(ConfigDraft& draft) {
  NEREID_RETURN_IF_ERROR(Prepare());
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, StartWorker());
  MarshalWriter command;
  command.Tuple(2);
  command.Int(static_cast<int64_t>(WorkerCommand::kComplete));
  command.Text(draft.json().Dump());
  NEREID_ASSIGN_OR_RETURN(
      const std::string answer,
      worker->RunCommand(command.Take(), settings_.load_timeout, "finish auto_complete_config"));
  MarshalReader reader(answer);
  reader.TupleOf(2);
  (void)reader.Int();
  if (!reader.TakeNone()) {
    const std::string_view text = reader.Text();
    NEREID_RETURN_IF_ERROR(reader.Finish());
    NEREID_ASSIGN_OR_RETURN(draft.mutable_json(), Json::Parse(text));
  }
  std::lock_guard lock(mutex_);
  spare_ = std::move(worker);
  return {};
}

Status PythonModel::Initialize() {
  return Prepare();
}

Result<std::unique_ptr<Worker>> PythonModel::NewWorker() {
  {
    std::lock_guard lock(mutex_);
    if (spare_ != nullptr && !spare_->has_exited()) return std::move(spare_);
  }
  return StartWorker();
}

Result<ProcessCommand> PythonModel::InterpreterCommand() const {
  const fs::path worker = LibraryFolder() / "nereid_python_worker.py";
  ProcessCommand command;
  if (env_ == nullptr) {
    command.arguments = {interpreter_, worker.string()};
  } else {
    command.arguments = env_->Command({worker.string()});
  }
  command.environment = EnvironmentWith({});
  return command;
}

Result<std::unique_ptr<Worker>> PythonModel::StartWorker() const {
  WorkerOptions options;
  options.label = StrCat("model '", name(), "'");
  options.name = name();
  NEREID_ASSIGN_OR_RETURN(options.command, InterpreterCommand());
  options.region_bytes = settings_.region_bytes;
  options.region_growth_bytes = settings_.region_growth_bytes;
  options.region_max_bytes = settings_.region_max_bytes;
  options.region_prefix = settings_.region_prefix;
  options.keeps_gpu_inputs = keeps_gpu_inputs_;
  options.start_timeout = settings_.start_timeout;
  options.stop_timeout = settings_.start_timeout;
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::Start(options));

  MarshalWriter command;
  command.Tuple(4);
  command.Int(static_cast<int64_t>(WorkerCommand::kLoad));
  command.Text(file_.string());
  command.Text(is_backend_file_ ? "" : std::to_string(context().version()));
  command.Text(context().version_directory().string());
  NEREID_RETURN_IF_ERROR(
      worker->RunCommand(command.Take(), settings_.load_timeout, "read the model's file").status());
  return worker;
}

}  // namespace nereid::python
