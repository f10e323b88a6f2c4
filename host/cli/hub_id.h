// Names of models on a hub: `organization/model` or `organization/model@revision`. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::cli {

struct HubId {
  std::string organization;
  std::string model;
  std::string revision = "main";  // a branch, a tag or a commit

  // "organization/model"
  std::string repository() const { return organization + "/" + model; }
};

// INVALID_ARG if `text` is no such name. Parts consist of letters, digits, '.', '_' and '-',
// neither begin nor end with '.' or '-', and contain no "..", so that they are safe as names of
// folders.
Result<HubId> ParseHubId(std::string_view text);

// Whether `text` is a commit: 40 hexadecimal digits in lower case.
bool IsCommit(std::string_view text);

// Whether a hub may name a file of a repository so: one name without folders, which does not begin
// with a dot and has no control characters.
bool IsPlainFileName(std::string_view name);

}  // namespace nereid::cli
