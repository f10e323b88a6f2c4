// Sequences that follow a beam search.
#include "backends/llm_core/engine/beam_group.h"

#include <utility>

namespace nereid::llm {

void BeamGroup::Join(Sequence& first) {
  const std::shared_ptr<BeamGroup> group(new BeamGroup(*first.request));
  first.beams = group;
  group->beams_.push_back(&first);
  group->rows_ = first.rows.get();
  for (const auto& companion : first.companions) {
    companion->beams = group;
    group->resting_.push_back(companion.get());
  }
}

int64_t BeamGroup::Apply(Sequence& beam, std::vector<SampledToken> candidates,
                         Scheduler& scheduler) {
  beam.candidates = std::move(candidates);
  if (++num_ready_ < static_cast<int32_t>(beams_.size())) return 0;
  num_ready_ = 0;
  std::vector<BeamView> views;
  for (const Sequence* each : beams_) {
    BeamView& view = views.emplace_back();
    view.output_ids = each->output_ids();
    view.log_probs = each->log_probs;
    view.cum_log_prob = each->cum_log_prob;
    view.candidates = each->candidates;
    if (each->rows == nullptr) continue;
    view.logits = each->rows->beam_logits;
    view.step_logits = each->rows->step_logits;
  }
  const std::vector<BeamContinuation> next = search_.Advance(views);
  if (!next.empty()) {
    Move(next, scheduler);
    return static_cast<int64_t>(next.size());
  }
  is_over_ = true;
  PutOut();
  for (const std::vector<Sequence*>* list : {&beams_, &resting_}) {
    for (Sequence* sequence : *list) sequence->finish = FinishReason::kStop;
  }
  return 0;
}

void BeamGroup::ListAll(std::vector<const Sequence*>& sequences) const {
  sequences.insert(sequences.end(), beams_.begin(), beams_.end());
  sequences.insert(sequences.end(), resting_.begin(), resting_.end());
}

// The first continuation of a beam is the beam itself; the others fork from it while it is as it
// was. Beams that nothing follows give their blocks back before anybody needs new ones.
void BeamGroup::Move(std::span<const BeamContinuation> next, Scheduler& scheduler) {
  std::vector<const BeamContinuation*> first_of(beams_.size(), nullptr);
  for (const BeamContinuation& continuation : next) {
    const BeamContinuation*& first = first_of[continuation.parent];
    if (first == nullptr) first = &continuation;
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (first_of[i] != nullptr) continue;
    scheduler.Rest(*beams_[i]);
    resting_.push_back(beams_[i]);
  }
  const auto follow = [](const Sequence& parent, const BeamContinuation& continuation,
                         Sequence& beam) {
    beam.log_probs.push_back(continuation.token.log_prob);
    beam.cum_log_prob = continuation.cum_log_prob;
    if (parent.rows != nullptr && parent.rows->step_logits != nullptr) {
      beam.rows->beam_logits.push_back(parent.rows->step_logits);
    }
  };
  std::vector<Sequence*> beams;
  for (const BeamContinuation& continuation : next) {
    Sequence* beam = beams_[continuation.parent];
    if (first_of[continuation.parent] != &continuation) {
      const Sequence& parent = *beam;
      beam = resting_.back();
      resting_.pop_back();
      scheduler.Fork(parent, continuation.token.id, *beam);
      beam->log_probs = parent.log_probs;
      if (parent.rows != nullptr && beam->rows != nullptr) {
        beam->rows->beam_logits = parent.rows->beam_logits;
      }
      follow(parent, continuation, *beam);
    }
    beams.push_back(beam);
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (first_of[i] == nullptr) continue;
    beams_[i]->token_ids.push_back(first_of[i]->token.id);
    follow(*beams_[i], *first_of[i], *beams_[i]);
  }
  beams_ = std::move(beams);
}

void BeamGroup::PutOut() const {
  const Sequence& any = *beams_[0];
  const GenerationRequest& request = *any.request;
  const std::vector<BeamHypothesis>& finished = search_.finished();
  BeamHypothesis none;
  none.finish = FinishReason::kStop;
  for (int32_t i = 0; i < request.num_sequences; ++i) {
    const bool is_there = static_cast<size_t>(i) < finished.size();
    const BeamHypothesis& hypothesis = is_there ? finished[i] : none;
    Output output;
    output.ids = hypothesis.ids;
    if (request.sampling.want_log_probs) {
      output.log_probs = hypothesis.log_probs;
      output.cum_log_prob = hypothesis.cum_log_prob;
    }
    output.finish = hypothesis.finish;
    output.sequence_index = i;
    output.num_reused_blocks = any.num_reused_blocks;
    output.num_new_blocks = any.num_new_blocks;
    if (i == 0 && rows_ != nullptr) {
      output.prompt_log_probs = rows_->prompt_log_probs;
      output.context_logits = rows_->context_logits;
    }
    std::vector<float> logits;
    for (const LogitsRow& row : hypothesis.logits) {
      logits.insert(logits.end(), row->begin(), row->end());
    }
    output.generation_logits = logits;
    request.sink->OnOutput(output);
  }
}

}  // namespace nereid::llm
