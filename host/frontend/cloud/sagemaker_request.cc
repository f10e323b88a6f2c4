// See sagemaker_request.h. Unknown JSON members are skipped. The model search checks only names and
// the line `platform: "ensemble"`; the core reads the rest of the configuration.
#include "host/frontend/cloud/sagemaker_request.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file_content.h"
#include "host/frontend/client_input.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/transport/http_status.h"

namespace nereid::http {
namespace {

namespace fs = std::filesystem;

// True if config.pbtxt contains platform: "ensemble", ignoring spaces and tabs.
bool IsEnsemble(const fs::path& model) {
  constexpr size_t kMaxConfigBytes = size_t{8} << 20;  // the core reads no longer ones
  const Result<std::string> content = ReadFile((model / "config.pbtxt").string(), kMaxConfigBytes);
  if (!content.ok()) return false;
  std::string dense;
  for (const char c : *content) {
    if (c != ' ' && c != '\t') dense += c;
  }
  return dense.find("platform:\"ensemble\"") != std::string::npos;
}

// True for folders of the operating system that cannot contain a model.
bool IsSystemFolder(const std::string& path) {
  for (const char* prefix : {"/dev/", "/proc/", "/sys/"}) {
    if (path.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

Result<ModelFolder> FindModelFolder(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(path, error);
  if (error || path.empty() || IsSystemFolder(folder.string() + "/") ||
      !fs::is_directory(folder, error)) {
    return InvalidArgError("'url': expected a folder of a model, got '", path, "'");
  }
  if (fs::exists(folder / "config.pbtxt", error)) {
    return ModelFolder{folder.parent_path().string(), folder.filename().string()};
  }
  std::vector<std::string> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    const std::string name = entry.path().filename().string();
    if (IsEnsemble(entry.path())) return ModelFolder{folder.string(), name};
    models.push_back(name);
  }
  if (models.size() == 1) return ModelFolder{folder.string(), models.front()};
  return InvalidArgError("'url': expected one model, or an ensemble beside its models, in '", path,
                         "', got ", models.size(), " models");
}

ModelsPath ReadModelsPath(std::string_view path) {
  std::string_view rest = path.substr(std::string_view("/models").size());
  if (rest.starts_with('/')) rest.remove_prefix(1);
  const size_t slash = rest.find('/');
  return {rest.substr(0, slash),
          slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1)};
}

Result<SageMakerLoad> ReadSageMakerLoad(std::string_view body, size_t max_depth) {
  SageMakerLoad load;
  JsonReader reader(body, max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "model_name" && key != "url") return reader.SkipValue();
    std::string& target = key == "url" ? load.url : load.name;
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    NEREID_RETURN_IF_ERROR(RejectZeroByte(key, text));
    target = text;
    return Status::Ok();
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  if (load.name.empty()) return InvalidArgError("load request has no 'model_name'");
  if (load.url.empty()) return InvalidArgError("load request has no 'url'");
  return load;
}

int SageMakerStatusOf(const Status& status) {
  if (status.code() == StatusCode::kAlreadyExists) return 409;
  std::string text = status.message();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  for (const char* sign : {"out of memory", "out_of_memory", "outofmemory", "memoryerror",
                           "failed to allocate", "no space left on device"}) {
    if (text.find(sign) != std::string::npos) return 507;
  }
  return ToHttpStatus(status.code());
}

}  // namespace nereid::http
