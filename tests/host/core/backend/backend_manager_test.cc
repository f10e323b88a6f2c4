#include "host/core/backend/backend_manager.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "host/core/handle/error.h"

namespace nereid::core {
namespace {

TRITONSERVER_Error* Execute(TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request**, uint32_t) {
  return nullptr;
}

int g_num_finalized = 0;

BackendEntryPoints EntryPoints() {
  BackendEntryPoints entry;
  entry.instance_execute = &Execute;
  entry.finalize = [](TRITONBACKEND_Backend*) -> TRITONSERVER_Error* {
    ++g_num_finalized;
    return nullptr;
  };
  return entry;
}

TEST(BackendManagerTest, MergesSettingsUnderCmdline) {
  MemoryManager memory;
  BackendOptions options;
  options.backend_dirs = {"/given", "/own"};
  options.auto_complete_config = false;
  options.min_compute_capability = 6;
  options.settings[""] = {{"shared", "all"}, {"key", "all"}};
  options.settings["b"] = {{"key", "old"}, {"key", "own"}};
  options.settings["other"] = {{"key", "other"}};
  BackendManager manager(options, &memory);
  ASSERT_TRUE(manager.AddBuiltIn("b", EntryPoints()).ok());
  ModelConfig config;
  config.backend = "b";
  Backend* backend = *manager.Get(config, "", 1);
  EXPECT_EQ(nlohmann::json::parse(backend->config().json()), nlohmann::json::parse(R"({"cmdline": {
    "auto-complete-config": "false", "backend-directory": "/given", "default-max-batch-size": "4",
    "key": "own", "min-compute-capability": "6.000000", "shared": "all"}})"));
}

TEST(BackendManagerTest, FinalizesBackendsInItsDestructor) {
  g_num_finalized = 0;
  {
    MemoryManager memory;
    BackendManager manager({}, &memory);
    ASSERT_TRUE(manager.AddBuiltIn("b", EntryPoints()).ok());
    EXPECT_EQ(manager.List().size(), 1U);
    EXPECT_EQ(g_num_finalized, 0);
  }
  EXPECT_EQ(g_num_finalized, 1);
}

// A backend whose Finalize blocks until this object is destroyed.
class StuckBackend {
 public:
  StuckBackend() { current = this; }
  ~StuckBackend() {
    may_finalize_.set_value();
    has_finalized_.get_future().wait();
  }
  static BackendEntryPoints StuckEntryPoints() {
    BackendEntryPoints entry = EntryPoints();
    entry.finalize = [](TRITONBACKEND_Backend*) -> TRITONSERVER_Error* {
      current->may_finalize_.get_future().wait();
      current->has_finalized_.set_value();
      return nullptr;
    };
    return entry;
  }

 private:
  static inline StuckBackend* current = nullptr;
  std::promise<void> may_finalize_, has_finalized_;
};

TEST(BackendManagerTest, AbandonsABackendThatDoesNotFinish) {
  g_num_finalized = 0;
  MemoryManager memory;
  BackendManager manager({}, &memory);
  const StuckBackend stuck;
  ASSERT_TRUE(manager.AddBuiltIn("a_stuck_one", stuck.StuckEntryPoints()).ok());
  ASSERT_TRUE(manager.AddBuiltIn("b", EntryPoints()).ok());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(manager.FinalizeAll(1'000'000'000));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("backend 'a_stuck_one' has not ended: Finalize did not return within 1 s"),
            std::string::npos)
      << log;
  EXPECT_EQ(log.find("'b'"), std::string::npos) << log;
  EXPECT_EQ(g_num_finalized, 1) << "the other backend was finalized";
  EXPECT_TRUE(manager.List().empty());
}

std::promise<void>* g_last_finalizes = nullptr;

TEST(BackendManagerTest, FinalizesBackendsConcurrentlyAfterTheDeadline) {
  MemoryManager memory;
  BackendManager manager({}, &memory);
  std::promise<void> last_finalizes;
  g_last_finalizes = &last_finalizes;
  const StuckBackend stuck;
  ASSERT_TRUE(manager.AddBuiltIn("a_stuck_one", stuck.StuckEntryPoints()).ok());
  BackendEntryPoints waits = EntryPoints();
  waits.finalize = [](TRITONBACKEND_Backend*) -> TRITONSERVER_Error* {
    g_last_finalizes->get_future().wait();
    return nullptr;
  };
  ASSERT_TRUE(manager.AddBuiltIn("b_waits_for_c", waits).ok());
  BackendEntryPoints last = EntryPoints();
  last.finalize = [](TRITONBACKEND_Backend*) -> TRITONSERVER_Error* {
    g_last_finalizes->set_value();
    return nullptr;
  };
  ASSERT_TRUE(manager.AddBuiltIn("c", last).ok());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(manager.FinalizeAll(1'000'000));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("'a_stuck_one' has not ended"), std::string::npos) << log;
  EXPECT_EQ(log.find("'b_waits_for_c'"), std::string::npos) << log;
}

TEST(BackendManagerTest, FinalizesOnTheCallingThreadIfNoThreadCanBeCreated) {
  g_num_finalized = 0;
  MemoryManager memory;
  BackendManager manager({}, &memory);
  ASSERT_TRUE(manager.AddBuiltIn("b", EntryPoints()).ok());
  pthread_attr_t default_attributes, huge_stack;
  ASSERT_EQ(pthread_getattr_default_np(&default_attributes), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge_stack), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge_stack, size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge_stack), 0);
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  EXPECT_TRUE(manager.FinalizeAll(1'000'000'000));
  EXPECT_EQ(pthread_setattr_default_np(&default_attributes), 0);
  EXPECT_EQ(g_num_finalized, 1);
}

TEST(BackendManagerTest, ReportsABackendThatFailsToInitialise) {
  MemoryManager memory;
  BackendManager manager({}, &memory);
  BackendEntryPoints entry = EntryPoints();
  entry.initialize = [](TRITONBACKEND_Backend*) { return ToError(UnavailableError("no licence")); };
  const Status status = manager.AddBuiltIn("b", entry);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "backend 'b' failed to initialise ('b'): no licence");
}

TEST(BackendManagerTest, SurvivesABackendThatThrows) {
  MemoryManager memory;
  BackendManager manager({}, &memory);
  BackendEntryPoints entry = EntryPoints();
  entry.initialize = [](TRITONBACKEND_Backend*) -> TRITONSERVER_Error* {
    throw std::runtime_error("boom");
  };
  const Status status = manager.AddBuiltIn("b", entry);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("boom"), std::string::npos);
}

TEST(BackendManagerTest, ReadsAttributesAndIgnoresTheirErrors) {
  MemoryManager memory;
  BackendEntryPoints entry = EntryPoints();
  entry.get_attribute = [](TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute* attributes) {
    EXPECT_EQ(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
                  attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 2, nullptr, 0),
              nullptr);
    EXPECT_EQ(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true),
              nullptr);
    return static_cast<TRITONSERVER_Error*>(nullptr);
  };
  auto backend = Backend::FromEntryPoints({"b", "", ""}, entry, "{}", &memory);
  ASSERT_TRUE(backend.ok());
  ASSERT_EQ((*backend)->attributes().preferred_groups.size(), 1U);
  EXPECT_EQ((*backend)->attributes().preferred_groups[0].count, 2);
  EXPECT_TRUE((*backend)->attributes().parallel_instance_loading);

  entry.get_attribute = [](TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute*) {
    return ToError(UnsupportedError("none"));
  };
  backend = Backend::FromEntryPoints({"b", "", ""}, entry, "{}", &memory);
  ASSERT_TRUE(backend.ok());
  EXPECT_FALSE((*backend)->attributes().parallel_instance_loading);
}

TEST(MemoryManagerTest, AllocatesOnlyCpuMemoryWithoutAGpu) {
  MemoryManager memory;
  for (const uint64_t size : {uint64_t{0}, uint64_t{100}}) {
    const auto buffer = memory.Allocate(TRITONSERVER_MEMORY_CPU, 0, size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_NE(*buffer, nullptr);
    EXPECT_TRUE(memory.Free(*buffer, TRITONSERVER_MEMORY_CPU, 0).ok());
  }
  EXPECT_EQ(memory.Allocate(TRITONSERVER_MEMORY_GPU, 0, 8).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(memory.Allocate(TRITONSERVER_MEMORY_CPU_PINNED, 0, 8).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(memory.Allocate(TRITONSERVER_MEMORY_CPU, 0, uint64_t{1} << 62).status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace nereid::core
