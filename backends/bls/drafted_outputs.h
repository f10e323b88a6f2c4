// The outputs of the calls of a target model, joined to those of one call. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/bls/drafted_text.h"
#include "backends/ensemble/graph.h"
#include "backends/ensemble/tensor.h"

namespace nereid::bls {

// Null if the step has no output of this name or the response lacks it.
ensemble::TensorRef OutputOf(const ensemble::Step& step,
                             std::span<const ensemble::TensorRef> response, std::string_view name);

class DraftedOutputs {
 public:
  // `step` of the target model outlives this object.
  explicit DraftedOutputs(const ensemble::Step& step) : step_(step) {}

  // Takes the response of a call that generated `num_generated` tokens behind the first
  // `num_before` of the output. What earlier calls said about later tokens is replaced.
  void Add(std::span<const ensemble::TensorRef> response, size_t num_before, size_t num_generated);
  // The outputs for the whole text, parallel to Step::outputs; null where no call had one.
  std::vector<ensemble::TensorRef> Whole(const DraftedText& text, bool excludes_prompt) const;

 private:
  // Values for each token of the output: log probabilities or logits.
  struct PerToken {
    std::vector<char> bytes;
    size_t bytes_per_token = 0;
  };
  ensemble::TensorRef WholeOutput(const std::string& name, const ensemble::TensorRef& last,
                                  const DraftedText& text, bool excludes_prompt) const;

  const ensemble::Step& step_;
  std::vector<ensemble::TensorRef> first_, last_;  // the responses of the first and the last call
  std::map<std::string, PerToken> per_token_;      // by output
  // Outputs that do not have a value for each token: releases before 0.14 send one zero in place
  // of logits that nobody asked for.
  std::set<std::string> not_per_token_;
};

}  // namespace nereid::bls
