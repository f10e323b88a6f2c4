// Makes model configurations and request plans out of text, for tests of single classes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "host/core/config/config_loader.h"
#include "host/core/request/request_plan.h"

namespace nereid::test {

// `json` as the load parameter `config` would carry it, completed as for a load.
inline ModelConfig ConfigOf(const std::string& json) {
  auto config = config::ReadModelConfig({"m", "", "", json});
  EXPECT_TRUE(config.ok()) << config.status().message();
  auto with_instances = config::PrepareInstances(*config, {});
  EXPECT_TRUE(with_instances.ok()) << with_instances.status().message();
  auto finished = config::FinishConfig(*with_instances);
  EXPECT_TRUE(finished.ok()) << finished.status().message();
  return *finished;
}

inline RequestPlan PlanOf(const std::string& json) {
  auto plan = RequestPlan::Make(ConfigOf(json), 1, "");
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(*plan);
}

}  // namespace nereid::test
