// Builds model configurations and request schemas from JSON text, for tests of single classes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "host/core/config/config_loader.h"
#include "host/core/request/request_schema.h"

namespace nereid::core::test {

// `json` has the form of the load parameter `config`. It is completed as in a load.
inline ModelConfig ConfigOf(const std::string& json) {
  auto config = config::ReadModelConfig({"m", "", "", json});
  EXPECT_TRUE(config.ok()) << config.status().message();
  auto with_instances = config::PrepareInstances(*config, {});
  EXPECT_TRUE(with_instances.ok()) << with_instances.status().message();
  auto finished = config::FinishConfig(*with_instances);
  EXPECT_TRUE(finished.ok()) << finished.status().message();
  return *finished;
}

inline RequestSchema SchemaOf(const std::string& json) {
  auto schema = RequestSchema::Make(ConfigOf(json), 1, "");
  EXPECT_TRUE(schema.ok()) << schema.status().message();
  return std::move(*schema);
}

}  // namespace nereid::core::test
