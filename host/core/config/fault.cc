#include "host/core/config/fault.h"

namespace nereid::config {

std::string Fault::ToString() const {
  std::string text = file;
  if (line > 0) {
    text += StrCat(text.empty() ? "line " : ":", line);
    if (column > 0) text += StrCat(":", column);
  }
  for (const std::string* part : {&key, &message}) {
    if (part->empty()) continue;
    if (!text.empty()) text += ": ";
    text += *part;
  }
  return text;
}

Status ToStatus(const Faults& faults) {
  if (faults.empty()) return Status::Ok();
  std::string text;
  for (const Fault& fault : faults) {
    if (!text.empty()) text += "; ";
    text += fault.ToString();
  }
  return {StatusCode::kInvalidArg, std::move(text)};
}

}  // namespace nereid::config
