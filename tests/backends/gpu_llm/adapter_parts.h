// Made-up LoRA adapters, and steps of an executor with sequences that have them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "backends/llm_core/model/architecture.h"
#include "tests/backends/llm_core/adapter_files.h"
#include "tests/support/test_folder.h"

namespace nereid::gpu::testing {

using AdapterPointer = std::shared_ptr<const llm::LoraAdapter>;

// An adapter of all modules that the GPU adapts.
inline AdapterPointer MakeAdapter(const llm::DecoderModel& model, int64_t rank, bool has_rslora,
                                  uint32_t seed) {
  const auto targets = llm::LoraTargets::Of(model.map, model.spec.num_layers());
  llm::testing::FloatTensors tensors;
  using enum llm::WeightKind;
  for (const auto& [key, source] : model.map.sources) {
    const bool is_adapted = key.kind == kQ || key.kind == kK || key.kind == kV ||
                            key.kind == kAttentionOut || key.kind == kGate || key.kind == kUp ||
                            key.kind == kDown || key.kind == kLmHead;
    if (!is_adapted || key.expert != llm::kNoExpert) continue;
    const std::string path = source.tensor.substr(0, source.tensor.rfind('.'));
    if (tensors.contains("base_model.model." + path + ".lora_A.weight")) continue;  // fused
    const auto module = targets.Find(path);
    EXPECT_TRUE(module.ok()) << path;
    if (!module.ok()) continue;
    llm::testing::AddModule(path, (*module)->rows, (*module)->columns, rank, ++seed, tensors);
  }
  EXPECT_GE(tensors.size(), 8u);
  const TestFolder folder;
  llm::testing::WriteAdapter(
      folder / "a",
      "{\"r\":" + std::to_string(rank) +
          ",\"lora_alpha\":3,\"use_rslora\":" + (has_rslora ? "true}" : "false}"),
      tensors);
  auto read = llm::ReadPeftAdapter("a" + std::to_string(seed), folder / "a", targets, 64);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return read.ok() ? *read : nullptr;
}

struct Part {
  std::vector<int32_t> tokens;
  AdapterPointer adapter;
  int32_t num_cached = 0;
};

// The logits of the last `num_logits` tokens of each part (0: of all), computed in one step.
template <typename AnyExecutor>
std::vector<std::vector<float>> LogitsOf(AnyExecutor& executor, const std::vector<Part>& parts,
                                         int32_t num_logits = 0) {
  constexpr int32_t kTokens = 256;  // of a sequence
  const int32_t num_blocks = kTokens / executor.limits().block_size;
  std::vector<std::vector<int32_t>> tables(parts.size());
  llm::StepBatch batch;
  const llm::SamplingParams greedy;
  for (size_t i = 0; i < parts.size(); ++i) {
    tables[i].resize(num_blocks);
    std::iota(tables[i].begin(), tables[i].end(), static_cast<int32_t>(i) * num_blocks);
    llm::BatchEntry& entry = batch.entries.emplace_back();
    entry.slot = static_cast<int32_t>(i);
    entry.first_token = static_cast<int32_t>(batch.token_ids.size());
    entry.num_tokens = static_cast<int32_t>(parts[i].tokens.size());
    entry.num_logits = num_logits == 0 ? entry.num_tokens : num_logits;
    entry.num_cached = parts[i].num_cached;
    entry.block_table = tables[i];
    entry.returns_logits = true;
    if (num_logits == 1) {
      entry.samples = true;
      entry.sampling = {&greedy, parts[i].tokens, 0, {}};
    }
    batch.token_ids.insert(batch.token_ids.end(), parts[i].tokens.begin(), parts[i].tokens.end());
    if (parts[i].adapter == nullptr) continue;
    const auto found = std::find(batch.adapters.begin(), batch.adapters.end(), parts[i].adapter);
    entry.adapter = static_cast<int32_t>(found - batch.adapters.begin());
    if (found == batch.adapters.end()) batch.adapters.push_back(parts[i].adapter);
  }
  const Status submitted = executor.Submit(batch);
  EXPECT_TRUE(submitted.ok()) << submitted.message();
  if (!submitted.ok()) return std::vector<std::vector<float>>(parts.size());
  auto collected = executor.Collect();
  EXPECT_TRUE(collected.ok()) << collected.status().message();
  if (!collected.ok()) return std::vector<std::vector<float>>(parts.size());
  return collected->logits;
}

}  // namespace nereid::gpu::testing
