// An EAGLE-3 head of 0.85 GB with random weights for the model of the benchmarks of speculation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/llm_core/speculation/draft_chains.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "bench/gpu_llm/speculation_model.h"

namespace nereid::bench {

// The tensors of a head for the model, in bf16, with random values.
class RandomEagle3Head {
 public:
  RandomEagle3Head() {
    constexpr int64_t kHidden = 4096, kInner = 14336;
    Add("fc.weight", {kHidden, 3 * kHidden});
    Add("norm.weight", {kHidden});
    Add("lm_head.weight", {kDraftVocabulary, kHidden});
    for (const char* norm : {"hidden_norm", "input_layernorm", "post_attention_layernorm"})
      Add(StrCat("midlayer.", norm, ".weight"), {kHidden});
    Add("midlayer.self_attn.q_proj.weight", {kHidden, 2 * kHidden});
    Add("midlayer.self_attn.k_proj.weight", {1024, 2 * kHidden});
    Add("midlayer.self_attn.v_proj.weight", {1024, 2 * kHidden});
    Add("midlayer.self_attn.o_proj.weight", {kHidden, kHidden});
    Add("midlayer.mlp.gate_proj.weight", {kInner, kHidden});
    Add("midlayer.mlp.up_proj.weight", {kInner, kHidden});
    Add("midlayer.mlp.down_proj.weight", {kHidden, kInner});
    std::vector<uint8_t>& offsets = bytes_.emplace_back(8 * kDraftVocabulary);
    tensors_["d2t"] = {llm::CheckpointDataType::kI64, {kDraftVocabulary}, offsets};
  }
  llm::Checkpoint checkpoint() const {
    constexpr const char* kConfig = R"({"hidden_size":4096,"intermediate_size":14336,
      "num_attention_heads":32,"num_key_value_heads":8,"num_hidden_layers":1,"vocab_size":128256,
      "draft_vocab_size":32000,"max_position_embeddings":4096})";
    return llm::Checkpoint::FromParts("head", kConfig, "", tensors_);
  }

 private:
  static constexpr int64_t kDraftVocabulary = 32000;

  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<uint8_t>& bytes = bytes_.emplace_back(2 * count);
    if (shape.size() > 1) {
      FillRandom(bytes, random_);
    } else {  // a norm
      constexpr uint16_t kOne = 0x3f80;
      for (int64_t i = 0; i < count; ++i) std::memcpy(bytes.data() + 2 * i, &kOne, 2);
    }
    tensors_[name] = {llm::CheckpointDataType::kBF16, std::move(shape), bytes};
  }

  uint32_t random_ = 1;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::TensorMap tensors_;
};

// Makes the executor keep the hidden states that the head reads.
inline void KeepHiddenStates(const RandomEagle3Head& random, const LoadedModel& target) {
  const llm::Checkpoint checkpoint = random.checkpoint();
  const llm::Eagle3Head head = Checked(llm::ReadEagle3Head(checkpoint, target.first->spec()));
  CheckOk(target.executor->CaptureHiddenStates(head.aux_layers, llm::HiddenStatePlace::kDevice));
}

inline std::unique_ptr<gpu::Eagle3Layer> MakeHead(const RandomEagle3Head& random,
                                                  const gpu::GpuExecutor& executor) {
  const llm::Checkpoint checkpoint = random.checkpoint();
  gpu::Eagle3LayerOptions options;
  options.form = executor.form();
  options.num_blocks = executor.limits().num_blocks;
  options.max_num_entries = 256;
  options.token_embedding = executor.token_embedding();
  options.target = &executor.decoder();
  options.stream = executor.stream();
  options.num_kept_rows = 8192;
  return Checked(
      gpu::Eagle3Layer::Create(Checked(llm::ReadEagle3Head(checkpoint, executor.spec())), options));
}

// Calls of the head with one row and `num_drafts` drafts of each sequence, behind kContext others.
// `num_siblings`: tokens beside each draft.
inline double HeadMs(gpu::Eagle3Layer& head, int32_t batch, int32_t num_drafts,
                     int32_t num_siblings = 0) {
  const std::vector<int32_t> tokens(kContext, 5);
  llm::SamplingParams greedy;
  greedy.returns_log_probs = true;
  std::vector<std::unique_ptr<llm::HeadCache>> caches;
  std::vector<int32_t> kept;
  std::vector<std::vector<int32_t>> drafts(static_cast<size_t>(batch));
  std::vector<llm::ChainSiblings> siblings(drafts.size());
  head.pool()->Take(1, kept);
  head.Keep({.num_rows = 1}, kept);
  CheckOk(head.FinishKeeping());
  kept.resize(kContext, kept[0]);
  const auto chain_of = [&](size_t i, int32_t num_rows, int32_t max_drafts) {
    llm::HeadCache& cache = *caches[i];
    if (!cache.Reserve(cache.num_rows() + num_rows + num_drafts)) std::exit(1);
    llm::DraftChain chain;
    chain.tokens = std::span(tokens).first(num_rows);
    chain.kept = std::span(kept).first(num_rows);
    chain.cache = &cache;
    chain.max_drafts = max_drafts;
    chain.sampling = &greedy;
    chain.sequence = tokens;
    chain.drafts = &drafts[i];
    chain.num_siblings = num_siblings;
    chain.siblings = &siblings[i];
    return chain;
  };
  for (size_t i = 0; i < drafts.size(); ++i) {
    caches.push_back(head.MakeCache());
    llm::DraftChain chain = chain_of(i, kContext, 0);
    CheckOk(head.RunChains(std::span(&chain, 1), 0.0f));
  }
  std::vector<double> times;
  for (int round = 0; round < 40; ++round) {
    std::vector<llm::DraftChain> chains;
    for (size_t i = 0; i < caches.size(); ++i) {
      caches[i]->Truncate(kContext);
      drafts[i].clear();
      siblings[i] = {};
      chains.push_back(chain_of(i, 1, num_drafts));
    }
    const double took = MsOf([&] { CheckOk(head.RunChains(chains, 0.0f)); });
    if (round >= 20) times.push_back(took);
  }
  head.pool()->Release(std::span(kept).first(1));
  return Median(std::move(times));
}

}  // namespace nereid::bench
