// A step's plan and the embeddings of virtual tokens on the device.
#include "backends/gpu_llm/step_upload.h"

#include <numeric>

#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;

class StepUploadTest : public testing::GpuTest<::testing::Test> {};

template <typename T>
std::vector<T> Read(const T* device, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return values;
}

TEST_F(StepUploadTest, WordsDrawsAndEditsArriveWhateverTheNumberOfWords) {
  auto upload = StepUpload::Create(100, 4, 8);
  ASSERT_TRUE(upload.ok()) << upload.status().message();
  for (int32_t step = 0; step < 6; ++step) {
    std::vector<int32_t> words(95 + step);
    std::iota(words.begin(), words.end(), 1000 * step);
    std::vector<DrawItem> items(1 + step % 4);
    for (size_t i = 0; i < items.size(); ++i) items[i].row = static_cast<int32_t>(i) + step;
    std::vector<LogitEdit> edits(step);
    for (size_t i = 0; i < edits.size(); ++i)
      edits[i] = {step, static_cast<int32_t>(i), 0.5f, 0.0f};
    ASSERT_TRUE(upload->Start(words, items, edits, step % 2, nullptr).ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(Read(upload->words(), words.size()), words);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(upload->items()) % 16, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(upload->edits()) % 16, 0u);
    const auto got_items = Read(upload->items(), items.size());
    for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(got_items[i].row, items[i].row);
    const auto got_edits = Read<LogitEdit>(upload->edits(), edits.size());
    for (size_t i = 0; i < edits.size(); ++i) {
      EXPECT_EQ(got_edits[i].id, step);
      EXPECT_EQ(got_edits[i].count, static_cast<int32_t>(i));
    }
  }
}

TEST_F(StepUploadTest, ALargerPlanThanItsBufferIsAnError) {
  auto upload = StepUpload::Create(16, 0, 0);
  ASSERT_TRUE(upload.ok());
  const std::vector<int32_t> words(17);
  const Status status = upload->Start(words, {}, {}, 0, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("takes 68 bytes, but its buffer has 64"), std::string::npos)
      << status.message();
}

TEST_F(StepUploadTest, PromptRowsAreRoundedAndTheOtherBufferStays) {
  auto upload = StepUpload::Create(16, 0, 0);
  ASSERT_TRUE(upload.ok());
  const std::vector<float> first = {1.0f, -2.5f, 1.0f + 1.0f / 512, 3e38f}, second(400, 0.25f);
  const std::vector<std::span<const float>> rows = {first, first}, longer(9, second);
  auto none = upload->WritePromptRows({}, 4, 0, nullptr);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  const auto written = upload->WritePromptRows(rows, 4, 0, nullptr);
  ASSERT_TRUE(written.ok());
  ASSERT_TRUE(upload->WritePromptRows(longer, 400, 1, nullptr).ok());
  const auto* bits = reinterpret_cast<const uint16_t*>(*written);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(bits[i], Bf16Bits(first[i % 4]));
}

}  // namespace
}  // namespace nereid::gpu
