// Overlapping steps.
#include "backends/llm_core/engine/step_flights.h"

#include <utility>

#include "backends/llm_core/engine/executor.h"

namespace nereid::llm {

void StepFlights::Add(const Batch& batch, const std::vector<Sequence*>& sequences, bool overlaps,
                      std::chrono::steady_clock::time_point began) {
  Flight& flight = flights_.emplace_back();
  flight.began = began;
  flight.sequences = sequences;
  flight.may_overlap = overlaps;
  flight.is_decode = batch.token_ids.size() == sequences.size();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    ++sequence.num_in_flight;
    flight.samples.push_back(batch.sequences[i].samples);
    // Beams and kept rows are planned by their results, some rules read every token.
    flight.may_overlap &=
        !sequence.is_special && !(flight.samples[i] && sequence.sampling().reads_output());
  }
}

void StepFlights::ExpectTokens() {
  const Flight& flight = flights_.back();
  for (size_t i = 0; i < flight.sequences.size(); ++i) {
    if (!flight.samples[i]) continue;
    Sequence& sequence = *flight.sequences[i];
    sequence.token_ids.push_back(PendingTokenId(sequence.slot));
    ++sequence.num_pending;
  }
}

Flight StepFlights::Land() {
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  for (Sequence* sequence : flight.sequences) --sequence->num_in_flight;
  return flight;
}

void StepFlights::Retire(std::vector<std::unique_ptr<Sequence>> removed) {
  for (std::unique_ptr<Sequence>& sequence : removed) {
    if (sequence->num_in_flight == 0) continue;
    sequence->request.reset();
    retired_.push_back(std::move(sequence));
  }
}

void StepFlights::Sweep() {
  std::erase_if(retired_, [](const auto& sequence) { return sequence->num_in_flight == 0; });
}

void StepFlights::Clear() {
  flights_.clear();
  retired_.clear();
}

}  // namespace nereid::llm
