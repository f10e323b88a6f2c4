// Members that are not known are skipped.
#include "host/frontend/cloud/sagemaker_request.h"

#include <algorithm>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/transport/status_text.h"
#include "host/frontend/zero_byte.h"

namespace nereid::http {

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
    NEREID_RETURN_IF_ERROR(RefuseZeroByte(key, text));
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
