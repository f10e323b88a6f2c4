/// \file
/// The interface between the EAGLE-3 drafter, which handles sequences, and what runs whole chains
/// of drafts: the head, its draws, and the store of hidden states that it has not run yet. [engine
/// thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampler.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/llm_core/speculation/draft_head.h"
#include "backends/llm_core/speculation/hidden_rows.h"
#include "nereid/status.h"

namespace nereid::llm {

/// The other tokens that may follow the drafts of a chain.
struct ChainSiblings {
  std::vector<float> log_probs;  ///< of each draft
  /// At the place of each draft, most likely first. If the chain ended before an unlikely token,
  /// one more list begins with that token.
  std::vector<std::vector<SampledToken>> tokens;
};

/// Consecutive rows of one sequence, and the drafts behind the last one. Everything is borrowed for
/// the call.
struct DraftChain {
  /// Adds what was drawn behind the rows and the drafts so far, with the tokens beside it.
  /// kNoToken: nothing was. `likeliest`: the head's num_siblings + 1 likeliest tokens at that
  /// place, or more, with the target's ids. A token of a lower probability than the least one is no
  /// draft. Returns whether the chain goes on.
  bool Extend(const SampledToken& drawn, std::span<const SampledToken> likeliest,
              float least_probability);

  std::span<const int32_t> tokens;  ///< of each row: the token behind that of the hidden state
  std::span<const int32_t> kept;    ///< parallel to `tokens`: rows of the store
  int32_t first_position = 0;       ///< of the first row
  HeadCache* cache = nullptr;       ///< has the rows before; gets those of the chain and its drafts
  int32_t max_drafts = 0;           ///< 0: the rows are run, and nothing is drawn
  /// How drafts are drawn. A device may ignore earlier drafts of the chain in rules that read the
  /// output, and rules that it cannot apply.
  const SamplingParams* sampling = nullptr;  ///< with log probabilities
  std::span<const int32_t> sequence;         ///< prompt and output
  int32_t num_prompt = 0;                    ///< of `sequence`
  std::span<const int32_t> banned_ids;       ///< as in SamplingInput
  std::vector<int32_t>* drafts = nullptr;    ///< out; the target's ids
  int32_t num_siblings = 0;                  ///< of each place; 0 without gives_siblings()
  /// With num_siblings: a token is no draft, either, if the product of the probabilities up to it
  /// is lower.
  float least_path = 0.0f;
  ChainSiblings* siblings = nullptr;  ///< out, with num_siblings; empty at first
};

class DraftChains : public HiddenStateStore {
 public:
  using HiddenStateStore::HiddenStateStore;
  virtual int32_t max_positions() const = 0;
  virtual std::unique_ptr<HeadCache> MakeCache() const = 0;
  /// Whether DraftChain::num_siblings may be greater than 0.
  virtual bool gives_siblings() const { return false; }
  /// Requires that each cache has reserved the rows, and one for each draft but the last. A chain
  /// ends before a token of a lower probability. After an error, nothing is called again.
  virtual Status RunChains(std::span<DraftChain> chains, float least_probability) = 0;
};

/// Runs the head one draft at a time and draws on the host.
std::unique_ptr<DraftChains> MakeHostChains(std::unique_ptr<DraftHead> head);

}  // namespace nereid::llm
