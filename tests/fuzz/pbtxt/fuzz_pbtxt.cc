// Fuzzes config.pbtxt and JSON model configurations. Arbitrary bytes must not crash. An accepted
// configuration survives the round trip through its JSON form.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "host/core/config/config_loader.h"
#include "host/core/config/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace config = nereid::core::config;
  const std::string text(reinterpret_cast<const char*>(data), size);
  config::ConfigErrors errors;
  const auto index = config::IndexKeys(text, config::ConfigSchema::Get().model_config());
  const config::Json json = config::ParsePbtxt(text, "config.pbtxt", index, &errors);
  std::string as_json = text;
  if (errors.empty()) as_json = json.dump(-1, ' ', false, config::Json::error_handler_t::replace);

  const auto read = config::ReadModelConfig({"m", "", "", as_json});
  if (!read.ok()) return 0;
  const auto prepared = config::PrepareInstances(*read, {});
  if (!prepared.ok()) return 0;
  const auto finished = config::FinishConfig(*prepared);
  if (!finished.ok()) return 0;
  const auto finished_again = config::FinishConfig(*finished);
  if (!finished_again.ok() || config::JsonText(*finished_again) != config::JsonText(*finished))
    std::abort();
  (void)config::MergeBackendConfig(*finished, text);
  return 0;
}
