// Chains of drafts of an EAGLE-3 head, drawn on the device, and the tokens beside them. [engine
// thread]
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/hidden_states.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/model/algorithm_trial.h"
#include "backends/gpu_llm/model/eagle3_cache.h"
#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/gpu_llm/plan_upload.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::gpu {
namespace {

// Rows that are launched before the drafts of the first of them are read.
constexpr int32_t kRowsAhead = 2;
// Of so few chains, the further rows are planned before the first one is launched: that takes less
// time than another upload between the rows.
constexpr size_t kFewChains = 8;

// Whether what further rows read may still be computed when they begin (num_unsettled).
bool MayPlanTogether(std::span<const llm::DraftChain> chains) {
  return chains.size() <= kFewChains &&
         std::all_of(chains.begin(), chains.end(), [](const llm::DraftChain& chain) {
           return chain.tokens.size() <= llm::kMostUnseenOfStep;
         });
}

bool IsPlainlyGreedy(const llm::DraftChain& chain) {
  return chain.sampling->is_greedy() && !chain.sampling->changes_logits() &&
         chain.banned_ids.empty();
}

// The tokens that are ranked at each draft of a chain: as many as stand beside it, and the draft.
int32_t NumRanked(const llm::DraftChain& chain) {
  return chain.num_siblings > 0 && chain.max_drafts > 0 ? 1 + chain.num_siblings : 0;
}

}  // namespace

Status Eagle3Layer::FinishKeeping() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  return kept_.Finish(options_.target == nullptr ? nullptr : options_.target->captured(), stream());
}

Status Eagle3Layer::WarmUp() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(kept_.rows(), 0, kept_.size_bytes(), stream()));
  llm::SamplingParams sampling;
  sampling.returns_log_probs = true;
  const std::vector<int32_t> zeros(kMaxRows, 0);
  int32_t num_siblings = 0;
  const auto run = [&](int32_t num_chains, int32_t num_rows, int32_t max_drafts) -> Status {
    if (num_chains > max_entries_ || num_rows + max_drafts > spec_.max_positions) return {};
    std::vector<std::unique_ptr<llm::HeadCache>> caches;
    std::vector<llm::DraftChain> chains(static_cast<size_t>(num_chains));
    std::vector<std::vector<int32_t>> drafts(chains.size());
    llm::ChainSiblings siblings;
    for (llm::DraftChain& chain : chains) {
      caches.push_back(MakeCache());
      if (!caches.back()->Reserve(num_rows + max_drafts)) return {};  // the head has few KV blocks
      chain.tokens = chain.kept = chain.sequence =
          std::span(zeros).first(static_cast<size_t>(num_rows));
      chain.cache = caches.back().get();
      chain.max_drafts = max_drafts;
      chain.sampling = &sampling;
      chain.drafts = &drafts[caches.size() - 1];
      chain.num_siblings = num_siblings;
      chain.siblings = &siblings;
    }
    return RunChains(chains, 0.0f);
  };
  constexpr int32_t kFewChains = 64;  // of each number
  for (int32_t count = 1; count <= max_entries_; count = StepPlanner::PaddedBatch(count + 1)) {
    if (count <= kFewChains || (count & (count - 1)) == 0) NEREID_RETURN_IF_ERROR(run(count, 1, 3));
  }
  constexpr int32_t kChains = 8;
  for (int32_t rows = SharedRows(1); rows <= kMaxRows; rows = SharedRows(rows + 1))
    NEREID_RETURN_IF_ERROR(run(kChains, rows / kChains, 1));
  sampling.top_p = 0.9f;
  if (gives_siblings()) num_siblings = 1;
  NEREID_RETURN_IF_ERROR(run(1, 1, 2));
  return CudaStatus(cudaStreamSynchronize(stream()), "a draft head");
}

bool Eagle3Layer::gives_siblings() const {
  return spec_.vocab_size <= kMaxRankVocabulary;
}

Status Eagle3Layer::RunChains(std::span<llm::DraftChain> chains, float least_probability) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  for (size_t first = 0; first < chains.size();) {
    size_t end = first, num_rows = 0;
    for (; end < chains.size() && end - first < static_cast<size_t>(max_entries_); ++end) {
      const size_t rows = chains[end].tokens.size();
      if (rows > kMaxRows)
        return InternalError("a chain of a draft head has ", rows, " rows, at most ", kMaxRows);
      if (num_rows + rows > kMaxRows) break;
      num_rows += rows;
    }
    NEREID_RETURN_IF_ERROR(RunTogether(chains.subspan(first, end - first), least_probability));
    first = end;
  }
  return {};
}

Status Eagle3Layer::RunTogether(std::span<llm::DraftChain> chains, float least_probability) {
  // Rows of the last call may still run, behind drafts that were too unlikely.
  for (const Event& event : row_done_)
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(event.get()));
  int32_t longest = 0;
  for (const llm::DraftChain& chain : chains) longest = std::max(longest, chain.max_drafts);
  has_ended_.assign(chains.size(), 0);
  NEREID_ASSIGN_OR_RETURN(size_t end, PlanFirstRows(chains));
  starts_.clear();
  for (const llm::DraftChain& chain : chains) {
    Cache& cache = static_cast<Cache&>(*chain.cache);
    cache.Append(static_cast<int32_t>(chain.tokens.size()));
    starts_.push_back(cache.num_rows());
  }
  if (MayPlanTogether(chains)) end = PlanRows(chains, std::min(longest, 1 + kRowsTogether), end);
  NEREID_RETURN_IF_ERROR(Upload(0, end));
  NEREID_RETURN_IF_ERROR(LaunchRow(0, longest));
  int32_t num_launched = 1, num_read = 0;
  while (num_read < longest) {
    if (num_launched < longest && num_launched - num_read < kRowsAhead) {
      if (num_launched == static_cast<int32_t>(chain_rows_.size())) {
        const int32_t last = std::min(longest, num_launched + kRowsTogether);
        NEREID_RETURN_IF_ERROR(Upload(first_words_, PlanRows(chains, last, first_words_)));
      }
      NEREID_RETURN_IF_ERROR(LaunchRow(num_launched, longest));
      for (const int32_t i : chain_rows_[num_launched].chains)
        static_cast<Cache&>(*chains[i].cache).Append(1);
      ++num_launched;
    } else {
      NEREID_ASSIGN_OR_RETURN(longest, TakeDrafts(chains, num_read, least_probability));
      ++num_read;
    }
  }
  return {};
}

Result<size_t> Eagle3Layer::PlanFirstRows(std::span<const llm::DraftChain> chains) {
  batch_.Clear();
  uses_target_ids_ = false;
  for (const llm::DraftChain& chain : chains) {
    Cache& cache = static_cast<Cache&>(*chain.cache);
    const auto num_rows = static_cast<int32_t>(chain.tokens.size());
    if (!cache.Reserve(cache.num_rows() + num_rows + std::max(0, chain.max_drafts - 1))) {
      return InternalError("a draft head has no KV blocks left for ", num_rows, " rows and ",
                           chain.max_drafts, " drafts");
    }
    llm::BatchEntry& entry = batch_.entries.emplace_back();
    entry.slot = static_cast<int32_t>(batch_.entries.size()) - 1;
    entry.first_token = static_cast<int32_t>(batch_.token_ids.size());
    entry.num_tokens = num_rows;
    entry.num_cached = cache.num_rows();
    entry.block_table = cache.table();
    entry.num_logits = 1;
    entry.samples = true;
    entry.sampling.params = chain.sampling;
    entry.sampling.token_ids = chain.sequence;
    entry.sampling.num_prompt = chain.num_prompt;
    entry.sampling.banned_ids = chain.banned_ids;
    batch_.token_ids.insert(batch_.token_ids.end(), chain.tokens.begin(), chain.tokens.end());
    uses_target_ids_ |= !IsPlainlyGreedy(chain);
  }
  items_.clear();
  item_of_.assign(chains.size(), -1);
  if (uses_target_ids_) {
    draw_planner_.Plan(batch_);
    items_.assign(draw_planner_.items().begin(), draw_planner_.items().end());
    for (size_t i = 0; i < items_.size(); ++i) item_of_[items_[i].row] = static_cast<int32_t>(i);
    const auto edits = std::as_bytes(draw_planner_.edits());
    std::memcpy(host_edits_.as<char>(), edits.data(), edits.size());
    if (!edits.empty()) {
      NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(edits_.data(), host_edits_.as<char>(),
                                                  edits.size(), cudaMemcpyHostToDevice, stream()));
    }
  }
  if (MayFuseFirstRows()) {  // a fused step samples behind every row
    for (llm::BatchEntry& entry : batch_.entries) {
      entry.num_logits = entry.num_tokens;
      entry.num_draft_tokens = entry.num_tokens - 1;
    }
  }
  chain_rows_.clear();
  ChainRow& row = chain_rows_.emplace_back();
  for (size_t i = 0; i < chains.size(); ++i) {
    row.chains.push_back(static_cast<int32_t>(i));
    row.num_ranked = std::max(row.num_ranked, NumRanked(chains[i]));
  }
  size_t end = PackRow(row, 0, 0);
  kept_at_ = end;
  for (const llm::DraftChain& chain : chains) {
    if (end + chain.kept.size() > first_words_) break;
    std::copy(chain.kept.begin(), chain.kept.end(), host_words_.as<int32_t>() + end);
    end += chain.kept.size();
  }
  num_kept_ = static_cast<int32_t>(end - kept_at_);
  if (num_kept_ != static_cast<int32_t>(batch_.token_ids.size())) {
    return InternalError("a draft head's plan of ", batch_.token_ids.size(),
                         " rows does not fit into ", first_words_, " words");
  }
  return AlignWords(end);
}

bool Eagle3Layer::MayFuseFirstRows() const {
  const auto num_rows = StepPlanner::PaddedBatch(static_cast<int32_t>(batch_.token_ids.size()));
  return num_rows <= std::min(decoder_->fused_steps().max_rows, max_entries_);
}

size_t Eagle3Layer::PlanRows(std::span<const llm::DraftChain> chains, int32_t end, size_t at) {
  for (auto index = static_cast<int32_t>(chain_rows_.size()); index < end; ++index) {
    batch_.Clear();
    ChainRow row;
    for (size_t i = 0; i < chains.size(); ++i) {
      if (chains[i].max_drafts <= index || has_ended_[i] != 0) continue;
      llm::BatchEntry& entry = batch_.entries.emplace_back();
      entry.slot = static_cast<int32_t>(i);
      entry.first_token = static_cast<int32_t>(batch_.token_ids.size());
      entry.num_tokens = entry.num_logits = 1;
      entry.num_cached = starts_[i] + index - 1;
      entry.block_table = static_cast<const Cache&>(*chains[i].cache).table();
      entry.samples = true;
      batch_.token_ids.push_back(llm::PendingTokenId(entry.slot));
      row.chains.push_back(static_cast<int32_t>(i));
      row.num_ranked = std::max(row.num_ranked, NumRanked(chains[i]));
    }
    const bool follows_single_rows = index > 1 || num_kept_ == static_cast<int32_t>(chains.size());
    row.reads_residual = follows_single_rows && row.chains == chain_rows_.back().chains;
    at = PackRow(row, at, index);
    chain_rows_.push_back(std::move(row));
  }
  return at;
}

size_t Eagle3Layer::PackRow(ChainRow& row, size_t at, int32_t index) {
  planner_.Plan(batch_);
  row.shape = planner_.shape();
  row.words_at = at;
  int32_t* const to = host_words_.as<int32_t>();
  const std::span<const int32_t> words = planner_.words();
  std::copy(words.begin(), words.end(), to + at);
  const StepLayout layout(row.shape);
  for (size_t i = 0; i < batch_.entries.size(); ++i) {
    const llm::BatchEntry& entry = batch_.entries[i];  // of a decode step, all rows are sampled
    row.sampled.push_back(planner_.is_decode() ? entry.first_token + entry.num_tokens - 1
                                               : static_cast<int32_t>(i));
    to[at + static_cast<size_t>(layout.logit_slots + row.sampled.back())] = entry.slot;
  }
  row.items_at = at + AlignWords(words.size());
  auto* const items = reinterpret_cast<DrawItem*>(to + row.items_at);
  for (size_t i = 0; i < row.chains.size(); ++i) {
    const int32_t item = item_of_[row.chains[i]];
    if (item < 0) continue;
    items[row.num_items] = items_[item];
    items[row.num_items].row = row.sampled[i];
    items[row.num_items].position += static_cast<uint32_t>(index);
    ++row.num_items;
  }
  return row.items_at + AlignWords(row.num_items * sizeof(DrawItem) / 4);
}

Status Eagle3Layer::Upload(size_t first_word, size_t end_word) {
  if (4 * end_word + kPlanCopyUnit > words_.size_bytes()) {
    return InternalError("a draft head's plans take ", 4 * end_word,
                         " bytes, but their buffer has ", words_.size_bytes() - kPlanCopyUnit);
  }
  return UploadPlan(words_.as<int32_t>() + first_word, host_words_.as<int32_t>() + first_word,
                    4 * (end_word - first_word), stream());
}

Status Eagle3Layer::LaunchRow(int32_t index, int32_t end) {
  const ChainRow& row = chain_rows_[index];
  const int32_t* const words = words_.as<int32_t>() + row.words_at;
  const StepLayout layout(row.shape);
  Decoder::HeadInputs inputs;
  inputs.token_embedding = token_embedding();
  inputs.norm_before_residual = norm_before_residual_;
  if (!uses_target_ids_) inputs.target_ids = device_target_ids_.as<int32_t>();
  if (index == 0) {
    CopyRows({kept_.rows(), words_.as<int32_t>() + kept_at_, features_.as<__nv_bfloat16>(), nullptr,
              num_kept_, feature_size(), feature_size()},
             stream());
    inputs.features = features_.as<__nv_bfloat16>();
    inputs.num_features = num_kept_;
  } else {
    if (!row.reads_residual) {
      inputs.own = own_.as<__nv_bfloat16>();
      inputs.own_rows = words + layout.logit_slots;  // each row has a sampled position
    }
    inputs.may_time = true;  // as many rows as sequences
  }
  NEREID_RETURN_IF_ERROR(decoder_->ForwardHead(inputs, row.shape, words, stream()));
  NEREID_RETURN_IF_ERROR(decoder_->ComputeLogits(row.shape, words, 0, row.shape.num_sampled,
                                                 inputs.may_time, stream()));
  NEREID_RETURN_IF_ERROR(DrawRow(row, index));
  NEREID_RETURN_IF_ERROR(RankRow(row, index));
  const auto next = static_cast<size_t>(index) + 1;
  const bool is_in_place = next < chain_rows_.size() && chain_rows_[next].reads_residual;
  if (index + 1 < end && !is_in_place) {
    CopyRows(
        {decoder_->residual(), words + layout.logit_rows, own_.as<__nv_bfloat16>(),
         words + layout.logit_slots, row.shape.num_sampled, spec_.hidden_size, spec_.hidden_size},
        stream());
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  return CudaStatus(cudaEventRecord(row_done_[index % kEvents].get(), stream()), "a draft");
}

Status Eagle3Layer::DrawRow(const ChainRow& row, int32_t index) {
  const int32_t* const words = words_.as<int32_t>() + row.words_at;
  const StepLayout layout(row.shape);
  float* logits = decoder_->logits();
  int32_t stride = decoder_->logits_stride();
  if (uses_target_ids_) {
    const int32_t padded = PaddedVocabulary(vocab_size_);
    SpreadLogits({logits, device_target_ids_.as<int32_t>(), spread_logits_.as<float>(),
                  row.shape.num_sampled, static_cast<int>(target_ids_.size()), stride, padded},
                 stream());
    logits = spread_logits_.as<float>();
    stride = padded;
  }
  ArgMaxParams params = {};
  params.logits = logits;
  params.partials = argmax_partials_.as<PartialArgMax>();
  params.tickets = argmax_tickets_.as<int32_t>();
  params.log_sums = log_sums_.as<float>();
  params.target.buffer_index = words + layout.buffer_index;  // has 0
  params.target.ids = drawn_.as<int32_t>() + index * max_entries_;
  params.target.log_probs = drawn_.as<float>() + (llm::kMaxDraftTokens + index) * max_entries_;
  params.target.slots = words + layout.logit_slots;
  params.target.last_tokens = decoder_->last_tokens();
  params.target.max_num_rows = max_entries_;
  params.num_rows = row.shape.num_sampled;
  params.vocab_size = stride;
  ArgMax(params, stream());
  if (row.num_items > 0) {
    DrawParams draw = {};
    draw.logits = logits;
    draw.log_sums = params.log_sums;
    draw.items = reinterpret_cast<const DrawItem*>(words_.as<int32_t>() + row.items_at);
    draw.edits = edits_.as<LogitEdit>();
    draw.target = params.target;
    draw.num_items = row.num_items;
    draw.vocab_size = stride;
    DrawTokens(draw, stream());
  }
  return CudaStatus(cudaGetLastError(), "drawing a draft");
}

// The logits of the head itself: rules change a copy of them.
Status Eagle3Layer::RankRow(const ChainRow& row, int32_t index) {
  if (row.num_ranked == 0) return {};
  RankTokensParams params = {};
  params.logits = decoder_->logits();
  params.partials = rank_partials_.as<RankPartial>();
  params.tickets = rank_tickets_.as<int32_t>();
  params.ids = ranked_.as<int32_t>() + RankedAt(index, 0);
  params.log_probs = ranked_.as<float>() + ranked_.size_bytes() / 8 + RankedAt(index, 0);
  params.num_rows = row.shape.num_sampled;
  params.vocab_size = spec_.vocab_size;
  params.stride = decoder_->logits_stride();
  params.num_tokens = std::min({row.num_ranked, kMaxRankedTokens, spec_.vocab_size});
  RankTokens(params, stream());
  return CudaStatus(cudaGetLastError(), "ranking the tokens beside a draft");
}

size_t Eagle3Layer::RankedAt(int32_t index, size_t i) const {
  const auto max_entries = static_cast<size_t>(max_entries_);
  return (static_cast<size_t>(index) * max_entries + i) * kMaxRankedTokens;
}

void Eagle3Layer::ReadRanked(int32_t index, size_t i, int32_t num_ranked) {
  const size_t at = RankedAt(index, i);
  const int32_t* const ids = ranked_.as<int32_t>() + at;
  const float* const log_probs = ranked_.as<float>() + ranked_.size_bytes() / 8 + at;
  likeliest_.clear();
  for (int32_t k = 0; k < std::min({num_ranked, kMaxRankedTokens, spec_.vocab_size}); ++k)
    likeliest_.push_back({target_ids_[ids[k]], log_probs[k]});
}

Result<int32_t> Eagle3Layer::TakeDrafts(std::span<llm::DraftChain> chains, int32_t index,
                                        float least_probability) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(row_done_[index % kEvents].get()));
  const int32_t* const ids = drawn_.as<int32_t>() + index * max_entries_;
  const float* const log_probs = drawn_.as<float>() + (llm::kMaxDraftTokens + index) * max_entries_;
  const ChainRow& row = chain_rows_[index];
  int32_t longest = 0;
  for (size_t i = 0; i < row.chains.size(); ++i) {
    llm::DraftChain& chain = chains[row.chains[i]];
    uint8_t& has_ended = has_ended_[row.chains[i]];
    if (has_ended != 0 || chain.max_drafts <= index) continue;
    const auto at = static_cast<size_t>(row.sampled[i]);
    llm::SampledToken drawn = {ids[at], log_probs[at]};
    if (drawn.id != llm::kNoToken && !uses_target_ids_) drawn.id = target_ids_[drawn.id];
    ReadRanked(index, at, NumRanked(chain));
    has_ended = chain.Extend(drawn, likeliest_, least_probability) ? 0 : 1;
    if (has_ended == 0) longest = std::max(longest, chain.max_drafts);
  }
  return longest;
}

}  // namespace nereid::gpu
