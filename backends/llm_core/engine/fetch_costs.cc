// Moving averages of what computing and fetching take.
#include "backends/llm_core/engine/fetch_costs.h"

namespace nereid::llm {
namespace {

constexpr double kNewest = 0.25;  // weight of the newest measurement

void Average(double& average, double seconds) {
  average = average == 0.0 ? seconds : average + kNewest * (seconds - average);
}

}  // namespace

void FetchCosts::RecordComputed(int64_t num_tokens, double seconds) {
  if (num_tokens > 0) Average(token_seconds_, seconds / static_cast<double>(num_tokens));
}

void FetchCosts::RecordFetched(int64_t num_blocks, int64_t num_of_file, double seconds) {
  if (num_blocks == 0) return;
  // A mixed fetch is counted as one of the file, which is the slower part.
  double& average = num_of_file > 0 ? file_seconds_ : host_seconds_;
  Average(average, seconds / static_cast<double>(num_of_file > 0 ? num_of_file : num_blocks));
}

bool FetchCosts::Pays(int64_t num_blocks, int64_t num_of_file, int64_t num_tokens) {
  const double fetching = static_cast<double>(num_blocks - num_of_file) * host_seconds_ +
                          static_cast<double>(num_of_file) * file_seconds_;
  const double computing = static_cast<double>(num_tokens) * token_seconds_;
  const bool pays = token_seconds_ == 0.0 || fetching < computing;
  if (pays || ++num_refusals_ > kRefusalsUntilRetry) {
    num_refusals_ = 0;
    return true;
  }
  return false;
}

}  // namespace nereid::llm
