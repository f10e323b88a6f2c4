// Reading and checking of the index.
#include "backends/llm_core/checkpoint/tensor_index.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "backends/llm_core/checkpoint/fault_list.h"

namespace nereid::llm {

std::set<std::string> TensorIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  return names;
}

Result<TensorIndex> ParseTensorIndex(std::string_view text, std::string_view path) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgError("'", path, "': no object 'weight_map'");
  }
  TensorIndex index;
  FaultList misnamed("not in a file of this folder");
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos ||
        std::filesystem::path(name).filename() != name) {
      misnamed.Add(StrCat("'", tensor, "' is in ",
                          file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    }
    index.file_of[tensor] = name;
  }
  if (!misnamed.empty()) {
    return InvalidArgError("'", path, "' does not name files", misnamed.Text());
  }
  return index;
}

}  // namespace nereid::llm
