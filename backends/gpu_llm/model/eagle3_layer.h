// Runs an EAGLE-3 head on the GPU of its model: one layer of a Decoder, with KV blocks of its own.
// Whole chains of drafts are drawn on the device; the model's hidden states stay there. [engine
// thread]
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/model/decoder.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/speculation/draft_chains.h"
#include "backends/llm_core/speculation/draft_head.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct Eagle3LayerOptions {
  int32_t device = 0;
  KernelForm form = KernelForm::kNative;  // that the device runs
  int32_t num_blocks = 0;                 // KV blocks
  int32_t max_num_entries = 64;           // of one launch; more are run one after the other
  int32_t max_positions = 0;              // 0: the head's own limit
  // The target's, for a head that has none. Borrowed from its executor, which outlives every call.
  const __nv_bfloat16* token_embedding = nullptr;
  float embedding_scale = 1.0f;  // of that embedding
  // For chains: the target's decoder, which keeps the hidden states, and its stream. Borrowed from
  // its executor, too.
  const Decoder* target = nullptr;
  cudaStream_t stream = nullptr;  // null: a stream of its own
  // Tokens whose hidden states wait until the head runs them.
  int32_t num_kept_rows = 0;
};

// A chain needs no round trip to the host between its drafts: the token that was drawn and the
// head's own hidden state stay on the device. The host reads the drafts of a row, and the likeliest
// tokens beside them for a tree, while the next row runs, and launches no more rows once all chains
// have ended.
class Eagle3Layer : public llm::DraftHead, public llm::DraftChains {
 public:
  // Rows that one launch computes.
  static constexpr int32_t kMaxRows = 2048;
  // Rows of drafts whose plans are uploaded together.
  static constexpr int32_t kRowsTogether = 8;
  // Logits that rules change in a draft of all chains; a chain with more is drawn without rules.
  static constexpr int32_t kMaxEdits = 1 << 14;

  // The checkpoint that head.model.weights points into is not needed afterwards. UNSUPPORTED names
  // what this backend does not have.
  static Result<std::unique_ptr<Eagle3Layer>> Create(llm::Eagle3Head head,
                                                     const Eagle3LayerOptions& options);
  ~Eagle3Layer() override;

  // Bytes of a KV block of the head.
  static int64_t BlockBytes(const llm::Eagle3Head& head);

  int32_t feature_size() const override { return weights_.feature_projection.depth; }
  int32_t hidden_size() const override { return spec_.hidden_size; }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t max_positions() const override { return spec_.max_positions; }
  std::span<const int32_t> target_ids() const override { return target_ids_; }
  std::unique_ptr<llm::HeadCache> MakeCache() const override;
  // One draft of each entry, with hidden states and logits in host memory. Chains are faster.
  Status Run(std::span<llm::HeadEntry> entries) override;

  llm::HiddenStatePlace place() const override { return llm::HiddenStatePlace::kDevice; }
  void Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) override {
    kept_.Keep(rows, kept);
  }
  Status FinishKeeping() override;
  bool gives_siblings() const override;
  Status RunChains(std::span<llm::DraftChain> chains, float least_probability) override;

 private:
  static constexpr size_t kAlignWords = 4;  // parts of a plan start at multiples of 16 bytes
  static constexpr size_t AlignWords(size_t words) {
    return (words + kAlignWords - 1) / kAlignWords * kAlignWords;
  }
  class Cache;
  // Row `index` of chains: the first rows of all of them, then one row for each draft but the last.
  struct ChainRow {
    StepShape shape;
    size_t words_at = 0;  // in words_, in words
    size_t items_at = 0;  // DrawItems, likewise
    int32_t num_items = 0;
    bool reads_residual = false;   // its hidden states are those that the row before has left
    int32_t num_ranked = 0;        // tokens of each entry that are ranked; 0: only drafts are drawn
    std::vector<int32_t> chains;   // of its entries
    std::vector<int32_t> sampled;  // parallel to `chains`: the sampled position of the last token
  };

  Eagle3Layer(const llm::Eagle3Head& head, const Eagle3LayerOptions& options,
              int32_t num_processors);
  Status Initialize(const llm::Eagle3Head& head);
  Status AllocateBuffers(int64_t feature_size);
  // Runs chains of all sizes, so that no step of a request loads their kernels.
  Status WarmUp();
  cudaStream_t stream() const { return stream_ ? stream_.get() : options_.stream; }
  const __nv_bfloat16* token_embedding() const {
    return weights_.token_embedding != nullptr ? weights_.token_embedding
                                               : options_.token_embedding;
  }

  // --- eagle3_layer.cc: one draft, with the host ---
  // Runs these entries in one launch.
  Status Launch(std::span<llm::HeadEntry* const> entries);
  // Sets batch_ to the rows of the entries.
  void FillBatch(std::span<llm::HeadEntry* const> entries);
  // Converts the hidden states of the entries to the layout of staged_ and copies them. Those of
  // the target come first.
  Status UploadHidden(std::span<llm::HeadEntry* const> entries, Decoder::HeadInputs& inputs);
  Status ReadResults(std::span<llm::HeadEntry* const> entries, const StepShape& shape);

  // --- eagle3_chains.cc ---
  // Runs chains whose first rows fit into one launch.
  Status RunTogether(std::span<llm::DraftChain> chains, float least_probability);
  // Plans the first rows, and how drafts are drawn. Returns the end of the plan in host_words_.
  Result<size_t> PlanFirstRows(std::span<const llm::DraftChain> chains);
  // Whether the first rows, which are in batch_, are few enough for a fused step.
  bool MayFuseFirstRows() const;
  // Plans the rows before row `end` that are not planned yet, from word `at` of host_words_ on.
  // Returns the end of the plans.
  size_t PlanRows(std::span<const llm::DraftChain> chains, int32_t end, size_t at);
  // Appends the plan of batch_ to host_words_ at `at` (words). Returns where the next one begins.
  size_t PackRow(ChainRow& row, size_t at, int32_t index);
  Status Upload(size_t first_word, size_t end_word);
  // Launches a row of chains that have no row `end`.
  Status LaunchRow(int32_t index, int32_t end);
  Status DrawRow(const ChainRow& row, int32_t index);
  // Ranks the tokens of the head that are likeliest in each entry, for trees.
  Status RankRow(const ChainRow& row, int32_t index);
  // Waits for a row and appends its drafts to chains that have not ended. Returns the most drafts
  // of those that have not ended now; 0: all have.
  Result<int32_t> TakeDrafts(std::span<llm::DraftChain> chains, int32_t index,
                             float least_probability);
  // Sets likeliest_ to what RankRow() ranked for entry `i` of a row that has run.
  void ReadRanked(int32_t index, size_t i, int32_t num_ranked);
  // Where the ranked tokens of entry `i` of a row begin in ranked_, in tokens.
  size_t RankedAt(int32_t index, size_t i) const;

  const Eagle3LayerOptions options_;
  llm::DecoderSpec spec_;     // vocab_size: of the head's own LM head
  const int32_t vocab_size_;  // of the target
  const std::vector<int32_t> target_ids_;
  const bool norm_before_residual_;
  const int32_t num_processors_;
  int32_t max_entries_ = 0;
  StepPlanner planner_;
  Stream stream_;  // null: options_.stream
  GpuWeights weights_;
  std::optional<Decoder> decoder_;
  // Shared with the caches, which may live longer.
  std::shared_ptr<llm::BlockPool> blocks_;
  // A plan of first rows, then those of kRowsTogether other rows, each of row_words_.
  DeviceMemory words_;
  PinnedMemory host_words_;
  size_t first_words_ = 0, row_words_ = 0;
  DeviceMemory features_;  // of a launch, [rows, feature_size()]
  DeviceMemory own_;       // the head's own hidden states: [max_entries_, hidden_size], by slot
  llm::StepBatch batch_;   // scratch memory

  // Of Run; allocated by the first call. Results of a launch, and hidden states on their way.
  PinnedMemory staged_, host_hidden_, host_logits_;

  // Of chains.
  KeptHiddenStates kept_;  // [num_kept_rows, feature_size()]
  DeviceMemory device_target_ids_;
  DeviceMemory argmax_partials_, argmax_tickets_, log_sums_;
  DeviceMemory spread_logits_;  // [max_entries_, padded vocabulary of the target]
  DeviceMemory edits_;
  PinnedMemory host_edits_;
  PinnedMemory drawn_;  // [kMaxDraftTokens, max_entries_] ids, then as many log probabilities
  DeviceMemory rank_partials_, rank_tickets_;
  // [kMaxDraftTokens, max_entries_, kMaxRankedTokens] ids of the head, then as many log
  // probabilities.
  PinnedMemory ranked_;
  std::vector<llm::SampledToken> likeliest_;  // scratch memory
  DrawPlanner draw_planner_;
  bool uses_target_ids_ = false;      // drawn tokens are the target's ids
  std::vector<DrawItem> items_;       // of the first rows
  std::vector<int32_t> item_of_;      // of each chain; -1: none
  std::vector<int32_t> starts_;       // of each chain: the cache's rows behind its first rows
  std::vector<uint8_t> has_ended_;    // of each chain
  std::vector<ChainRow> chain_rows_;  // planned
  size_t kept_at_ = 0;                // in words_: the kept row of each of the first rows
  int32_t num_kept_ = 0;
  static constexpr int32_t kEvents = 4;  // more than rows in flight
  std::array<Event, kEvents> row_done_;
};

}  // namespace nereid::gpu
