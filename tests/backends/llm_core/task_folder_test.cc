// The folder of lora_prefetch_dir: arrays of NumPy, and which tasks are in the cache afterwards.
#include "backends/llm_core/lora/task_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "backends/llm_core/lora/npy_array.h"
#include "tests/backends/llm_core/small_llama.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string NpyBytes(const std::string& header, const std::string& body) {
  std::string text = header;
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(text.size() & 255);
  file += static_cast<char>(text.size() >> 8);
  return file + text + body;
}

std::string Header(const std::string& type, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
}

std::string ErrorOf(const std::string& contents) {
  const auto array = ParseNpy(contents, "x.npy");
  return array.ok() ? "" : array.status().message();
}

TEST(NpyArrayTest, HasTypeShapeAndBytes) {
  const std::string file = NpyBytes(Header("<f2", "1, 2, 3"), std::string(12, 'x'));
  const auto array = ParseNpy(file, "x.npy");
  ASSERT_TRUE(array.ok()) << array.status().message();
  EXPECT_EQ(array->type, "<f2");
  EXPECT_THAT(array->shape, ElementsAre(1, 2, 3));
  EXPECT_EQ(array->bytes, std::string(12, 'x'));
  EXPECT_TRUE(ParseNpy(NpyBytes(Header("<i4", ""), "abcd"), "x").ok());  // one number
  EXPECT_TRUE(ParseNpy(NpyBytes(Header("<i4", "0,"), ""), "x").ok());
}

TEST(NpyArrayTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf("PK"), HasSubstr("'x.npy': not an array of NumPy"));
  EXPECT_THAT(ErrorOf(NpyBytes("{'descr': '<f2'}", "")), HasSubstr("not an array"));
  EXPECT_THAT(ErrorOf(NpyBytes(Header("<f2", "2, 3"), "short")),
              HasSubstr("has 5 bytes of numbers, expected those of 2 dims with 2 bytes each"));
  EXPECT_THAT(ErrorOf(NpyBytes(Header("<f2", "9223372036854775807, 9223372036854775807"), "ab")),
              HasSubstr("has 2 bytes"));
  EXPECT_THAT(ErrorOf(NpyBytes(Header("|O", "1,"), "abcdefgh")), HasSubstr("type '|O'"));
  EXPECT_THAT(ErrorOf(NpyBytes("{'descr': '<f2', 'fortran_order': True, 'shape': (1, 1), }", "ab")),
              HasSubstr("in Fortran order"));
}

class TaskFolderTest : public ::testing::Test {
 protected:
  TaskFolderTest() {
    folder_.Write("config.json", testing::kConfig);
    const auto checkpoint = Checkpoint::OpenConfig(folder_.path());
    const auto model = ReadDecoderSpec(*checkpoint);
    targets_ = LoraTargets::Of(model->map, model->spec.num_layers());
  }

  // One row for attn_q of layer 0 with rank 2: A [2, 4] and B [4, 2].
  void WriteTask(const std::string& name, const std::string& rows = "1, 1, 16") {
    const std::filesystem::path task = folder_.path() / "tasks" / name;
    std::filesystem::create_directories(task);
    std::string half;
    for (int i = 0; i < 16; ++i) half += std::string("\x00\x3c", 2);  // 1.0
    const int32_t place[] = {1, 0, 2};
    std::ofstream(task / "model.lora_weights.npy", std::ios::binary)
        << NpyBytes(Header("<f2", rows), half);
    std::ofstream(task / "model.lora_config.npy", std::ios::binary) << NpyBytes(
        Header("<i4", "1, 1, 3"), std::string(reinterpret_cast<const char*>(place), 12));
  }
  std::vector<std::string> Prefetch(TaskAdapters& tasks, const std::string& name = "/tasks") {
    std::vector<std::string> warnings;
    PrefetchTasks(folder_.path().string() + name, tasks,
                  [&](const Status& error) { warnings.emplace_back(error.message()); });
    return warnings;
  }

  TestFolder folder_;
  LoraTargets targets_;
};

TEST_F(TaskFolderTest, TasksAreInTheCacheByTheirNumbers) {
  WriteTask("3");
  WriteTask("18446744073709551615");
  WriteTask("later");
  TaskAdapters tasks(targets_, 8, 1 << 20);
  EXPECT_THAT(Prefetch(tasks), ElementsAre(HasSubstr("later' is no LoRA task: expected a number")));
  ASSERT_NE(tasks.Find(3), nullptr);
  EXPECT_NE(tasks.Find(UINT64_MAX), nullptr);
  const LoraDelta* const delta = tasks.Find(3)->Find(0, WeightKind::kQ);
  ASSERT_NE(delta, nullptr);
  EXPECT_EQ(delta->a.At(0), 1.0f);
}

TEST_F(TaskFolderTest, WhatCanNotBeReadIsLeftOutByName) {
  WriteTask("1", "1, 2, 8");
  WriteTask("2");
  std::filesystem::create_directories(folder_ / "tasks/7");
  TaskAdapters tasks(targets_, 8, 1 << 20);
  EXPECT_THAT(Prefetch(tasks),
              ElementsAre(HasSubstr("is [2, 8] and 'model.lora_config.npy' [1, 3]"),
                          HasSubstr("LoRA task 7")));
  EXPECT_EQ(tasks.Find(1), nullptr);
  EXPECT_NE(tasks.Find(2), nullptr);
  EXPECT_THAT(Prefetch(tasks, "/missing"), ElementsAre(HasSubstr("/missing': no such folder")));
}

TEST_F(TaskFolderTest, AFullCacheKeepsTheFirstOnes) {
  for (const char* name : {"1", "2", "3"}) WriteTask(name);
  TaskAdapters probe(targets_, 8, 1 << 20);
  WriteTask("1");
  Prefetch(probe);
  TaskAdapters tasks(targets_, 8, probe.size_bytes() / 3 * 2);
  EXPECT_THAT(Prefetch(tasks), ElementsAre(HasSubstr("(lora_cache_host_memory_bytes)")));
  EXPECT_NE(tasks.Find(1), nullptr);
  EXPECT_NE(tasks.Find(2), nullptr);
  EXPECT_EQ(tasks.Find(3), nullptr);
}

TEST_F(TaskFolderTest, AFusedMlpHasTheRowsOfTheGateBehindTheOthers) {
  const int64_t rows = targets_.FindMatrix(0, WeightKind::kUp)->rows;
  std::vector<uint16_t> halves(4, 0x3c00);        // A [1, 4]: 1.0
  halves.insert(halves.end(), rows, 0x4000);      // 2.0
  halves.insert(halves.end(), rows, 0x4200);      // 3.0
  const std::vector<int32_t> place = {18, 0, 1};  // mlp_gate_up, layer, rank
  const TaskWeights sent = {.weights = halves,
                            .num_rows = 1,
                            .width = static_cast<int64_t>(halves.size()),
                            .config = place};
  const auto adapter = ReadTaskAdapter(7, sent, targets_, 8);
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const LoraDelta* const up = (*adapter)->Find(0, WeightKind::kUp);
  const LoraDelta* const gate = (*adapter)->Find(0, WeightKind::kGate);
  ASSERT_TRUE(up != nullptr && gate != nullptr);
  EXPECT_EQ(up->b.rows, rows);
  EXPECT_EQ(up->b.At(rows - 1), 2.0f);
  EXPECT_EQ(gate->b.At(0), 3.0f);
  EXPECT_EQ(gate->a.At(3), 1.0f);
}

// More tasks than the cache has room for, in turn: each is sent again once it has left, and no
// state grows with the number of tasks.
TEST_F(TaskFolderTest, AThousandTasksPassThroughASmallCache) {
  const std::vector<uint16_t> halves(16, 0x3c00);
  const std::vector<int32_t> place = {1, 0, 2};
  const TaskWeights sent = {.weights = halves, .num_rows = 1, .width = 16, .config = place};
  TaskAdapters probe(targets_, 8, 1 << 20);
  ASSERT_TRUE(probe.Add(1, sent).ok());
  const int64_t one = probe.size_bytes();
  TaskAdapters tasks(targets_, 8, 100 * one);
  for (uint64_t round = 0; round < 2; ++round) {
    for (uint64_t id = 1; id <= 1000; ++id) {
      EXPECT_EQ(tasks.Find(id), nullptr);  // 900 others came since
      ASSERT_TRUE(tasks.Add(id, sent).ok());
      EXPECT_NE(tasks.Find(id), nullptr);
      EXPECT_LE(tasks.size_bytes(), 100 * one);
    }
  }
  EXPECT_NE(tasks.Find(901), nullptr);
  EXPECT_EQ(tasks.Find(900), nullptr);
}

}  // namespace
}  // namespace nereid::llm
