// The executor on the CPU.
#include "backends/cpu_reference/cpu_executor.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "backends/cpu_reference/model/tree_attention.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::cpu {
namespace {

constexpr int32_t kNotSampled = -2;  // of a row; kNoToken is a result of sampling

int32_t UsableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max<int32_t>(1, static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
}

int64_t PhysicalMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

// The largest window of all layers; 0 if a layer has full attention.
int32_t AttentionWindow(const llm::DecoderSpec& spec) {
  int32_t window = 0;
  for (const llm::LayerSpec& layer : spec.layers) {
    if (layer.sliding_window == 0) return 0;
    window = std::max(window, layer.sliding_window);
  }
  return window;
}

Result<llm::ExecutorLimits> MakeLimits(const llm::DecoderSpec& spec,
                                       const CpuExecutorOptions& options) {
  llm::ExecutorLimits limits;
  limits.vocab_size = spec.vocab_size;
  limits.max_positions = spec.max_positions;
  limits.max_num_sequences = std::max(1, options.max_num_sequences);
  limits.max_num_tokens = std::max(options.max_num_tokens, limits.max_num_sequences);
  limits.block_size = kBlockSize;
  limits.attention_window = AttentionWindow(spec);
  limits.num_sink_tokens = spec.num_sink_tokens;
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) limits.long_rope_positions = rope.short_positions;
    if (rope.trained_positions > 0) limits.dynamic_rope_positions = rope.trained_positions;
  }
  const int64_t memory_blocks =
      PhysicalMemoryBytes() / 4 / KvCache::BlockBytes(spec, options.kv_format);
  const auto blocks_for = [](int64_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; };
  int64_t blocks = blocks_for(options.max_cache_tokens);
  if (options.max_cache_tokens == 0) {
    blocks = std::min(memory_blocks, limits.max_num_sequences * blocks_for(limits.max_positions));
  } else if (blocks > 4 * memory_blocks) {
    return InvalidArgError("max_tokens_in_paged_kv_cache ", options.max_cache_tokens, " needs ",
                           blocks, " blocks x ", KvCache::BlockBytes(spec, options.kv_format),
                           " bytes; this machine has ", PhysicalMemoryBytes(), " bytes of memory");
  }
  limits.num_blocks = static_cast<int32_t>(std::clamp<int64_t>(blocks, 1, INT32_MAX));
  return limits;
}

}  // namespace

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::Create(
    std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
    const CpuExecutorOptions& options) {
  llm::LimitPositions(model.spec, options.max_positions);
  NEREID_ASSIGN_OR_RETURN(const llm::ExecutorLimits limits, MakeLimits(model.spec, options));
  const int32_t num_threads = options.num_threads > 0 ? options.num_threads : UsableProcessors();
  NEREID_ASSIGN_OR_RETURN(CpuWeights weights, LoadCpuWeights(model, *checkpoint, num_threads));
  NEREID_ASSIGN_OR_RETURN(KvCache cache,
                          KvCache::Allocate(model.spec, limits.num_blocks, options.kv_format,
                                            num_threads * kMaxTailBlocks));
  const OpTable& ops = options.ops != nullptr ? *options.ops : BestOps();
  std::unique_ptr<CpuExecutor> executor(new CpuExecutor(std::move(checkpoint), std::move(model),
                                                        std::move(weights), std::move(cache),
                                                        limits, num_threads, ops));
  if (options.tiers.is_enabled()) {
    NEREID_RETURN_IF_ERROR(executor->OpenTiers(options, ops.isa));
  }
  return executor;
}

// The bytes of the same tokens also depend on the instructions that computed them.
Status CpuExecutor::OpenTiers(const CpuExecutorOptions& options, std::string_view isa) {
  std::unique_ptr<llm::BlockFile> file;
  if (!options.tiers.file_path.empty()) {
    const std::string format =
        StrCat("cpu ", isa, " kv ", static_cast<int>(options.kv_format), " threads ",
               pool_.num_threads(), " positions ", limits_.max_positions);
    NEREID_ASSIGN_OR_RETURN(
        file, llm::OpenBlockFile(options.tiers, limits_.block_size, cache_.block_bytes(),
                                 llm::CacheIdentity(*checkpoint_, model_.spec, format)));
  }
  NEREID_ASSIGN_OR_RETURN(storage_, llm::HostBlockStorage::Create(
                                        &cache_bytes_, options.tiers.host_bytes, std::move(file)));
  return {};
}

CpuExecutor::CpuExecutor(std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
                         CpuWeights weights, KvCache cache, const llm::ExecutorLimits& limits,
                         int32_t num_threads, const OpTable& ops)
    : checkpoint_(std::move(checkpoint)),
      model_(std::move(model)),
      weights_(std::move(weights)),
      cache_(std::move(cache)),
      limits_(limits),
      pool_(num_threads),
      decoder_(model_.spec, weights_, cache_, ops, pool_),
      samplers_(pool_.num_threads()) {}

Status CpuExecutor::Submit(const llm::StepBatch& batch) {
  if (storage_ != nullptr) storage_->FinishReads();  // the step may overwrite what they read
  for (const llm::BlockCopy& copy : batch.block_copies) cache_.CopyBlock(copy.from, copy.to);
  pool_.BeginStep();
  logits_ = decoder_.Forward(batch);
  if (batch.has_token_masks) batch.wait_for_masks();
  Sample(batch);
  MoveAccepted(batch);
  CopyHiddenStates(batch);
  pool_.EndStep();
  return Status::Ok();
}

Result<llm::StepResult> CpuExecutor::Collect() {
  NEREID_RETURN_IF_ERROR(checkpoint_->CheckIntact());
  return std::move(result_);
}

Status CpuExecutor::CaptureHiddenStates(std::span<const int32_t> layers,
                                        llm::HiddenStatePlace place) {
  if (place != llm::HiddenStatePlace::kHost)
    return UnsupportedError("cpu_reference leaves hidden states in host memory only");
  for (const int32_t layer : layers) {
    if (layer >= 0 && layer <= model_.spec.num_layers()) continue;
    return InvalidArgError("hidden states of layer ", layer, ": the model has layers 0 to ",
                           model_.spec.num_layers() - 1, ", and ", model_.spec.num_layers(),
                           " means its output");
  }
  decoder_.Capture({layers.begin(), layers.end()});
  return {};
}

void CpuExecutor::CopyHiddenStates(const llm::StepBatch& batch) {
  const std::span<const float> all = decoder_.captured();
  const size_t row_size = decoder_.captured_size();
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& entry = batch.entries[i];
    if (!entry.returns_hidden_states) continue;
    result_.hidden_states.resize(batch.entries.size());
    const auto rows = all.subspan(entry.first_token * row_size, entry.num_tokens * row_size);
    result_.hidden_states[i].assign(rows.begin(), rows.end());
  }
}

void CpuExecutor::Sample(const llm::StepBatch& batch) {
  const size_t num_sequences = batch.entries.size();
  result_ = {};
  result_.tokens.resize(num_sequences);
  std::vector<int64_t> first_row(num_sequences);
  int64_t rows = 0;
  for (size_t i = 0; i < num_sequences; ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    first_row[i] = rows;
    rows += sequence.num_logits;
    if (sequence.num_candidates > 0) result_.candidates.resize(num_sequences);
    if (sequence.num_top_tokens > 0) result_.top_tokens.resize(num_sequences);
    if (sequence.num_draft_tokens > 0) result_.accepted.resize(num_sequences);
    if (!sequence.draft_parents.empty()) result_.accepted_drafts.resize(num_sequences);
    if (sequence.returns_row_tokens) result_.row_tokens.resize(num_sequences);
    if (sequence.returns_logits) result_.logits.resize(num_sequences);
    if (!sequence.next_ids.empty()) result_.prompt_log_probs.resize(num_sequences);
  }
  const int64_t vocab_size = model_.spec.vocab_size;
  pool_.ParallelFor(static_cast<int64_t>(num_sequences), [&](int64_t i, int thread) {
    SampleEntry(
        batch, static_cast<size_t>(i),
        logits_.subspan(first_row[i] * vocab_size, batch.entries[i].num_logits * vocab_size),
        samplers_[thread]);
  });
}

void CpuExecutor::SampleEntry(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                              llm::Sampler& sampler) {
  const llm::BatchEntry& sequence = batch.entries[index];
  const auto vocab_size = static_cast<size_t>(model_.spec.vocab_size);
  if (sequence.returns_logits) result_.logits[index].assign(logits.begin(), logits.end());
  for (size_t row = 0; row < sequence.next_ids.size(); ++row) {
    const auto row_logits = logits.subspan(row * vocab_size, vocab_size);
    result_.prompt_log_probs[index].push_back(llm::LogProb(row_logits, sequence.next_ids[row]));
  }
  if (!sequence.samples) return;
  if (sequence.num_draft_tokens > 0) return VerifyDrafts(batch, index, logits, sampler);
  const std::span<float> last = logits.last(vocab_size);
  if (sequence.num_top_tokens > 0)
    llm::FindTopTokens(last, sequence.num_top_tokens, result_.top_tokens[index]);
  if (sequence.num_candidates > 0) {
    result_.candidates[index] =
        sampler.Candidates(last, sequence.sampling, sequence.num_candidates);
  } else {
    llm::SamplingInput input = sequence.sampling;
    input.token_mask = sequence.token_masks;
    result_.tokens[index] = sampler.Sample(last, input);
  }
}

void CpuExecutor::VerifyDrafts(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                               llm::Sampler& sampler) {
  const llm::BatchEntry& sequence = batch.entries[index];
  const auto vocab_size = static_cast<size_t>(model_.spec.vocab_size);
  const auto num_drafts = static_cast<size_t>(sequence.num_draft_tokens);
  const std::span<const int32_t> drafts = llm::DraftTokens(batch.token_ids, sequence);
  const std::span<const int32_t> parents = sequence.draft_parents;
  const std::span<const int32_t> known = sequence.sampling.token_ids;
  std::vector<int32_t> tokens(known.begin(), known.end());
  std::vector<int32_t> row_tokens(1 + num_drafts, kNotSampled);
  llm::SamplingInput input = sequence.sampling;
  const size_t mask_words = sequence.token_masks.size() / (1 + num_drafts);
  for (int32_t draft = llm::kTreeRoot;;) {
    const auto row = static_cast<size_t>(draft + 1);
    const std::span<float> row_logits = logits.subspan(row * vocab_size, vocab_size);
    if (sequence.num_top_tokens > 0) {
      std::vector<llm::SampledToken> top;
      llm::FindTopTokens(row_logits, sequence.num_top_tokens, top);
      std::vector<llm::SampledToken>& all = result_.top_tokens[index];
      all.insert(all.end(), top.begin(), top.end());
    }
    input.token_ids = tokens;
    input.token_mask = sequence.token_masks.subspan(row * mask_words, mask_words);
    const bool is_drawn = row < num_drafts && !sequence.draft_logits.empty();
    const llm::SampledToken token =
        is_drawn
            ? sampler.Verify(row_logits, input,
                             {.id = drafts[row],
                              .logits = sequence.draft_logits.subspan(row * vocab_size, vocab_size),
                              .threshold = sequence.draft_threshold})
            : sampler.Sample(row_logits, input);
    row_tokens[row] = token.id;
    draft = llm::FindChild(drafts, parents, draft, token.id);
    if (draft == llm::kNoChild) {
      result_.tokens[index] = token;
      break;
    }
    result_.accepted[index].push_back(token);
    if (!parents.empty()) result_.accepted_drafts[index].push_back(draft);
    tokens.push_back(token.id);
  }
  if (!sequence.returns_row_tokens) return;
  std::vector<int32_t> path;
  for (size_t row = 1; row <= num_drafts; ++row) {
    if (row_tokens[row] != kNotSampled) continue;
    llm::FindPath(parents, static_cast<int32_t>(row) - 1, path);
    tokens.resize(known.size());
    for (const int32_t draft : path) tokens.push_back(drafts[draft]);
    input.token_ids = tokens;
    input.token_mask = sequence.token_masks.subspan(row * mask_words, mask_words);
    row_tokens[row] = sampler.Sample(logits.subspan(row * vocab_size, vocab_size), input).id;
  }
  result_.row_tokens[index] = std::move(row_tokens);
}

// In ascending order, so that no key is overwritten before it is moved.
void CpuExecutor::MoveAccepted(const llm::StepBatch& batch) {
  for (size_t i = 0; i < result_.accepted_drafts.size(); ++i) {
    const llm::BatchEntry& entry = batch.entries[i];
    const std::vector<int32_t>& accepted = result_.accepted_drafts[i];
    for (size_t n = 0; n < accepted.size(); ++n) {
      const int32_t to = FirstDraftPlace(entry) + static_cast<int32_t>(n);
      const int32_t from = FirstDraftPlace(entry) + accepted[n];
      if (from == to) continue;
      cache_.CopyToken(entry.block_table[from / kBlockSize], from % kBlockSize,
                       entry.block_table[to / kBlockSize], to % kBlockSize);
    }
  }
}

int64_t CpuExecutor::weight_bytes_per_step() const {
  int64_t bytes = 0;
  const auto add = [&](const Linear& linear) { bytes += linear.weights.size_bytes(); };
  for (const LayerWeights& layer : weights_.layers) {
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attention_out,
                                 &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down, &layer.router}) {
      add(*linear);
    }
  }
  add(weights_.lm_head);
  return bytes;
}

}  // namespace nereid::cpu
