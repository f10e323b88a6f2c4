// Shared-memory regions of clients: names, bounds, and memory that its owner truncates.
#include "host/frontend/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace nereid {
namespace {

// A POSIX shared memory object used only by this test.
class Object {
 public:
  explicit Object(size_t size_bytes) : key_("/nereid_test_" + std::to_string(getpid())) {
    fd_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(fd_, 0);
    Resize(size_bytes);
  }
  ~Object() {
    close(fd_);
    shm_unlink(key_.c_str());
  }
  const std::string& key() const { return key_; }
  void Resize(size_t size_bytes) { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_bytes)), 0); }
  void Write(off_t offset, const char* text) {
    EXPECT_EQ(pwrite(fd_, text, std::strlen(text), offset),
              static_cast<ssize_t>(std::strlen(text)));
  }

 private:
  const std::string key_;
  int fd_;
};

TEST(SharedMemoryTest, ReadsARegionInPlace) {
  Object object(8192);
  object.Write(5000, "hello");
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 4990, 100).ok());
  const Result<MappedRange> range = memory.Find({"r", 10, 5});
  ASSERT_TRUE(range.ok()) << range.status().message();
  EXPECT_EQ(std::string(range->base, range->size_bytes), "hello");
}

TEST(SharedMemoryTest, AMappedRangeOutlivesItsRegistration) {
  Object object(64);
  object.Write(0, "kept");
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
  Result<MappedRange> range = memory.Find({"r", 0, 4});
  ASSERT_TRUE(range.ok());
  range->use_count.reset();
  memory.Unregister(SharedMemoryKind::kSystem, "");
  EXPECT_EQ(memory.Find({"r", 0, 4}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(std::string(range->base, 4), "kept");
}

TEST(SharedMemoryTest, UnregistersARegionInUseWhenTheLastRequestEnds) {
  Object object(64);
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("idle", object.key(), 0, 64).ok());
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
  Result<MappedRange> range = memory.Find({"r", 0, 4});
  ASSERT_TRUE(range.ok());
  memory.Unregister(SharedMemoryKind::kSystem, "");
  EXPECT_FALSE(memory.Find({"idle", 0, 4}).ok());
  EXPECT_EQ(memory.Describe(SharedMemoryKind::kSystem, "")->size(), 1U);
  EXPECT_EQ(memory.RegisterSystem("r", object.key(), 0, 64).code(), StatusCode::kAlreadyExists);
  Result<MappedRange> second = memory.Find({"r", 0, 4});
  ASSERT_TRUE(second.ok()) << "as in Triton, it is available until no request uses it";
  range->use_count.reset();
  EXPECT_TRUE(memory.Describe(SharedMemoryKind::kSystem, "r").ok());
  second->use_count.reset();
  EXPECT_FALSE(memory.Describe(SharedMemoryKind::kSystem, "r").ok());
  EXPECT_TRUE(memory.Describe(SharedMemoryKind::kSystem, "")->empty());
  EXPECT_FALSE(memory.Find({"r", 0, 4}).ok());
  EXPECT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
}

TEST(SharedMemoryTest, KeepsNoDescriptorOfARegion) {
  Object object(64);
  SharedMemoryManager memory(true);
  const int before = dup(0);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
  EXPECT_FALSE(memory.RegisterSystem("s", object.key(), 0, 65).ok());
  const int after = dup(0);
  EXPECT_EQ(after, before + 1) << "the lowest free descriptors";
  close(before);
  close(after);
}

TEST(SharedMemoryTest, LimitsTheNumberOfRegions) {
  Object object(64);
  SharedMemoryManager memory(true, {.max_regions = 2, .max_bytes = 1000});
  ASSERT_TRUE(memory.RegisterSystem("a", object.key(), 0, 64).ok());
  ASSERT_TRUE(memory.RegisterSystem("b", object.key(), 0, 64).ok());
  const Status status = memory.RegisterSystem("c", object.key(), 0, 64);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "shared memory region 'c': 2 regions are registered, at most 2 may be "
            "(--client-shm-max-regions)");
  memory.Unregister(SharedMemoryKind::kSystem, "a");
  EXPECT_TRUE(memory.RegisterSystem("c", object.key(), 0, 64).ok());
}

TEST(SharedMemoryTest, LimitsTheSumOfTheRegionsSizes) {
  Object object(64);
  SharedMemoryManager memory(true, {.max_regions = 9, .max_bytes = 100});
  ASSERT_TRUE(memory.RegisterSystem("a", object.key(), 0, 64).ok());
  EXPECT_EQ(memory.RegisterSystem("b", object.key(), 0, 37).message(),
            "shared memory region 'b' has 37 bytes, the registered regions have 64, at most 100 "
            "may be registered (--client-shm-max-bytes)");
  EXPECT_TRUE(memory.RegisterSystem("b", object.key(), 0, 36).ok());
}

TEST(SharedMemoryTest, NamesOfTheOtherKindAreLeftAlone) {
  Object object(64);
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
  memory.Unregister(SharedMemoryKind::kCuda, "r");
  memory.Unregister(SharedMemoryKind::kCuda, "");
  EXPECT_TRUE(memory.Find({"r", 0, 4}).ok());
  EXPECT_EQ(memory.Describe(SharedMemoryKind::kCuda, "r").status().message(),
            "The region named 'r' is registered as system shared memory, not CUDA shared memory");
}

TEST(SharedMemoryTest, RejectsRangesBeyondTheRegion) {
  Object object(128);
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 100).ok());
  EXPECT_TRUE(memory.Find({"r", 0, 100}).ok());
  EXPECT_TRUE(memory.Find({"r", 99, 1}).ok());
  EXPECT_EQ(memory.Find({"r", 100, 1}).status().message(),
            "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(memory.Find({"r", 0, 0}).status().message(),
            "Invalid offset + byte size for shared memory region: 'r'");
  EXPECT_FALSE(memory.Find({"r", 1, 100}).ok());
  EXPECT_FALSE(memory.Find({"r", UINT64_MAX, 2}).ok());
  EXPECT_FALSE(memory.Find({"r", 2, UINT64_MAX}).ok());
}

TEST(SharedMemoryTest, RejectsATruncatedObject) {
  Object object(8192);
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 8192).ok());
  object.Resize(4096);
  EXPECT_EQ(memory.Find({"r", 0, 16}).status().message(),
            "shared memory region 'r': '" + object.key() +
                "' was truncated and lost pages: register it again");
}

TEST(SharedMemoryTest, RejectsARegionWithLostPagesUntilItIsRegisteredAgain) {
  Object object(8192);
  SharedMemoryManager memory(true);
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 8192).ok());
  Result<MappedRange> range = memory.Find({"r", 4096, 16});
  ASSERT_TRUE(range.ok());
  object.Resize(4096);
  EXPECT_TRUE(range->CheckIntact().ok()) << "the memory was not accessed yet";
  std::memcpy(range->base, "an output", 9);
  const std::string kLost = "shared memory region 'r': '" + object.key() +
                            "' was truncated and lost pages: register it again";
  EXPECT_EQ(range->CheckIntact().message(), kLost);
  object.Resize(8192);
  EXPECT_EQ(memory.Find({"r", 0, 16}).status().message(), kLost);
  range->use_count.reset();
  memory.Unregister(SharedMemoryKind::kSystem, "r");
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 8192).ok());
  object.Write(4096, "new");
  const Result<MappedRange> anew = memory.Find({"r", 4096, 16});
  ASSERT_TRUE(anew.ok());
  EXPECT_EQ(std::string(anew->base, 3), "new");
}

TEST(SharedMemoryTest, RejectsRegionsThatCannotBeMapped) {
  Object object(64);
  SharedMemoryManager memory(true);
  EXPECT_FALSE(memory.RegisterSystem("r", object.key(), 0, 65).ok());
  EXPECT_FALSE(memory.RegisterSystem("r", object.key(), 60, UINT64_MAX).ok());
  EXPECT_FALSE(memory.RegisterSystem("r", object.key(), 0, 0).ok());
  EXPECT_FALSE(memory.RegisterSystem("r", "/nereid_test_no_such_object", 0, 1).ok());
  EXPECT_FALSE(memory.RegisterSystem("", object.key(), 0, 64).ok());
  EXPECT_FALSE(memory.RegisterSystem("r", "triton_python_backend_shm_region_1", 0, 64).ok());
  ASSERT_TRUE(memory.RegisterSystem("r", object.key(), 0, 64).ok());
  EXPECT_EQ(memory.RegisterSystem("r", object.key(), 0, 64).code(), StatusCode::kAlreadyExists);
}

TEST(SharedMemoryTest, RejectsRegistrationIfClientsAreNotAllowed) {
  Object object(64);
  SharedMemoryManager memory(false);
  EXPECT_EQ(memory.RegisterSystem("r", object.key(), 0, 64).code(), StatusCode::kUnsupported);
}

TEST(SharedMemoryTest, RejectsACudaHandleOfTheWrongSize) {
  SharedMemoryManager memory(true);
  EXPECT_EQ(memory.RegisterCuda("c", "abc", 0, 64).message(),
            "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  EXPECT_FALSE(memory.RegisterCuda("c", std::string(64, 'x'), 0, 64).ok());
}

TEST(SharedMemoryTest, AnOutputThatDoesNotFitIsAnError) {
  char bytes[32];
  const std::vector<SharedOutput> outputs{{"Y", {nullptr, nullptr, bytes, sizeof(bytes)}}};
  EXPECT_EQ(AllocateShared(outputs, {"Z", 8, TRITONSERVER_MEMORY_CPU, 0})->base, nullptr);
  EXPECT_EQ(AllocateShared(outputs, {"Y", 32, TRITONSERVER_MEMORY_CPU, 0})->base, bytes);
  EXPECT_FALSE(AllocateShared(outputs, {"Y", 33, TRITONSERVER_MEMORY_CPU, 0}).ok());
}

}  // namespace
}  // namespace nereid
