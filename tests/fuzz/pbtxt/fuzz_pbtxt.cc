// Any bytes as config.pbtxt and as a JSON configuration: a verdict, never a crash. What is accepted
// must survive the way through its own JSON form.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/core/config/config_loader.h"
#include "host/core/config/parse.h"
#include "host/core/config/schema.h"
#include "nlohmann/json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  const std::string text(reinterpret_cast<const char*>(data), size);
  config::Faults faults;
  const auto index = config::IndexKeys(text, config::Schema::Get().model_config());
  const config::Json json = config::ParsePbtxt(text, "config.pbtxt", index, &faults);
  std::string as_json = text;
  if (faults.empty()) as_json = json.dump(-1, ' ', false, config::Json::error_handler_t::replace);

  const auto read = config::ReadModelConfig({"m", "", "", as_json});
  if (!read.ok()) return 0;
  const auto prepared = config::PrepareInstances(*read, {});
  if (!prepared.ok()) return 0;
  const auto finished = config::FinishConfig(*prepared);
  if (!finished.ok()) return 0;
  const auto again = config::FinishConfig(*finished);
  if (!again.ok() || config::JsonText(*again) != config::JsonText(*finished)) std::abort();
  (void)config::MergeBackendConfig(*finished, text);
  return 0;
}
