// Implements model_warmup: sample requests that every instance executes before its model serves.
// [instance thread]
#pragma once

#include <string>

#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "host/core/model/core_services.h"
#include "host/core/request/request_schema.h"
#include "nereid/status.h"

namespace nereid::core {

// Runs every sample of `config` on `instance` and waits for the responses. The data files of
// samples are in the directory `model_dir`/warmup. The error names the sample.
Status RunWarmups(const ModelConfig& config, const std::string& model_dir, CoreServices& services,
                  RequestTarget* target, Instance* instance);

}  // namespace nereid::core
