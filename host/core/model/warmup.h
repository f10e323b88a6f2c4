// model_warmup: sample requests that every instance runs before its model serves. [instance thread]
#pragma once

#include <string>

#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "host/core/model/core_services.h"
#include "host/core/request/request_target.h"
#include "nereid/status.h"

namespace nereid {

// Runs every sample of `config` on `instance` and waits for the answers. `model_dir` holds the
// folder warmup/ with the samples' data files. The error names the sample.
Status RunWarmups(const ModelConfig& config, const std::string& model_dir, CoreServices& services,
                  RequestTarget* target, Instance* instance);

}  // namespace nereid
