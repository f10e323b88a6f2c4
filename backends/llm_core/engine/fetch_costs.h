// Decides whether blocks of a prompt are fetched from outside the KV cache, or computed again: from
// what both took lately. [engine thread]
#pragma once

#include <cstdint>

namespace nereid::llm {

class FetchCosts {
 public:
  // Records that a step computed `num_tokens` prompt tokens.
  void RecordComputed(int64_t num_tokens, double seconds);
  // Records that a fetch of `num_blocks` blocks, `num_of_file` of them from the file, took so long.
  void RecordFetched(int64_t num_blocks, int64_t num_of_file, double seconds);

  // Whether to fetch the blocks, which saves the computation of `num_tokens` tokens. True while
  // nothing is measured. After many refusals in a row it is true once, so that a slow moment does
  // not count without end.
  bool Pays(int64_t num_blocks, int64_t num_of_file, int64_t num_tokens);

 private:
  static constexpr int32_t kRefusalsUntilRetry = 32;

  double token_seconds_ = 0.0;  // averages; 0: not measured
  double host_seconds_ = 0.0;   // of a block
  double file_seconds_ = 0.0;
  int32_t num_refusals_ = 0;  // in a row
};

}  // namespace nereid::llm
