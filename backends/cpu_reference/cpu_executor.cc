// Creates the executor and runs its steps.
#include "backends/cpu_reference/cpu_executor.h"

#include <algorithm>

#include "backends/cpu_reference/cpu_limits.h"
#include "backends/cpu_reference/draft_verification.h"
#include "backends/cpu_reference/model/tree_attention.h"

namespace nereid::cpu {

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::Create(
    std::shared_ptr<const llm::Checkpoint> checkpoint, llm::DecoderModel model,
    const CpuExecutorOptions& options) {
  llm::LimitPositions(model.spec, options.max_positions);
  NEREID_ASSIGN_OR_RETURN(const llm::ExecutorLimits limits, CpuLimits(model.spec, options));
  const int32_t num_threads = ChooseNumThreads(options.num_threads);
  NEREID_ASSIGN_OR_RETURN(CpuWeights weights, LoadCpuWeights(model, *checkpoint, num_threads));
  NEREID_ASSIGN_OR_RETURN(KvCache cache,
                          KvCache::Allocate(model.spec, limits.num_blocks, options.kv_format,
                                            num_threads * kMaxTailBlocks));
  const OpTable& ops = options.ops != nullptr ? *options.ops : BestOps();
  std::unique_ptr<CpuExecutor> executor(new CpuExecutor(std::move(checkpoint), std::move(model),
                                                        std::move(weights), std::move(cache),
                                                        limits, num_threads, ops));
  if (executor->pool_.num_threads() < num_threads && options.on_warning) {
    options.on_warning(StrCat("the system starts ", executor->pool_.num_threads(), " threads of ",
                              num_threads, " (cpu_threads); steps take longer"));
  }
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
  MoveAccepted(batch, result_, cache_);
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
  const std::span<const float> all = decoder_.captured().states();
  const size_t row_size = decoder_.captured().row_size();
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
  if (sequence.num_draft_tokens > 0) return VerifyDrafts(batch, index, logits, sampler, result_);
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

}  // namespace nereid::cpu
