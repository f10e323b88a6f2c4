#include "backends/bls/drafted_outputs.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backends/bls/int_tensor.h"

namespace nereid::bls {
namespace {

using ensemble::Shape;
using ensemble::Step;
using ensemble::TensorRef;

// [.., tokens] and [.., tokens, vocabulary]
constexpr std::string_view kLogProbs = "output_log_probs", kLogits = "generation_logits";
// The first call says these about the whole text.
constexpr std::string_view kOfFirstCall[] = {"num_input_tokens", "arrival_time_ns",
                                             "first_scheduled_time_ns", "first_token_time_ns",
                                             "num_cached_tokens"};

// The dimension of the tokens.
size_t TokenDim(std::string_view name, const Shape& shape) {
  return name == kLogits ? shape.size() - 2 : shape.size() - 1;
}

template <typename T>
TensorRef Number(T value, const TensorRef& like) {
  const char* bytes = reinterpret_cast<const char*>(&value);
  return MakeTensor(like->data_type, like->shape, {bytes, bytes + sizeof(T)});
}

}  // namespace

TensorRef OutputOf(const Step& step, std::span<const TensorRef> response, std::string_view name) {
  for (size_t i = 0; i < std::min(step.outputs.size(), response.size()); ++i) {
    if (step.outputs[i].name == name) return response[i];
  }
  return nullptr;
}

void DraftedOutputs::Add(std::span<const TensorRef> response, size_t num_before,
                         size_t num_generated) {
  last_.assign(response.begin(), response.end());
  if (first_.empty()) first_ = last_;
  for (const std::string_view name : {kLogProbs, kLogits}) {
    const TensorRef output = OutputOf(step_, response, name);
    if (output == nullptr || num_generated == 0) continue;
    const Shape& shape = output->shape;
    if (shape.size() < 3 || shape[TokenDim(name, shape)] != static_cast<int64_t>(num_generated)) {
      not_per_token_.insert(std::string(name));
      continue;
    }
    std::vector<char> bytes = BytesOf(*output);
    PerToken& all = per_token_[std::string(name)];
    all.bytes_per_token = bytes.size() / num_generated;
    all.bytes.resize(num_before * all.bytes_per_token);
    all.bytes.insert(all.bytes.end(), bytes.begin(), bytes.end());
  }
}

std::vector<TensorRef> DraftedOutputs::Whole(const DraftedText& text, bool excludes_prompt) const {
  std::vector<TensorRef> all;
  for (size_t i = 0; i < step_.outputs.size(); ++i) {
    const TensorRef last = i < last_.size() ? last_[i] : nullptr;
    all.push_back(last == nullptr
                      ? nullptr
                      : WholeOutput(step_.outputs[i].name, last, text, excludes_prompt));
  }
  return all;
}

TensorRef DraftedOutputs::WholeOutput(const std::string& name, const TensorRef& last,
                                      const DraftedText& text, bool excludes_prompt) const {
  const std::span<const int32_t> ids = excludes_prompt ? text.output() : std::span(text.ids());
  const auto length = static_cast<int32_t>(ids.size());
  Shape shape = last->shape;
  if (name == "output_ids") {
    shape.back() = length;
    return MakeIntTensor(ids, shape);
  }
  if (name == "sequence_length") return Number(length, last);
  if (name == "num_output_tokens") return Number(static_cast<int32_t>(text.output().size()), last);
  if (name == "prior_ids") {  // no token precedes those of the response
    shape.back() = 0;
    return MakeIntTensor({}, shape);
  }
  if (name == "total_draft_tokens") {
    return Number(static_cast<int32_t>(text.num_proposed()), last);
  }
  if (name == "total_accepted_draft_tokens") {
    return Number(static_cast<int32_t>(text.num_accepted()), last);
  }
  if (name == "acceptance_rate") {
    const auto num_proposed = static_cast<float>(std::max<int64_t>(1, text.num_proposed()));
    return Number(static_cast<float>(text.num_accepted()) / num_proposed, last);
  }
  if (not_per_token_.count(name) > 0) return last;
  if (const auto found = per_token_.find(name); found != per_token_.end()) {
    shape[TokenDim(name, shape)] =
        static_cast<int64_t>(found->second.bytes.size() / found->second.bytes_per_token);
    return MakeTensor(last->data_type, shape, found->second.bytes);
  }
  if (const auto found = per_token_.find(std::string(kLogProbs));
      name == "cum_log_probs" && found != per_token_.end()) {
    std::vector<float> values(found->second.bytes.size() / sizeof(float));
    std::copy(found->second.bytes.begin(), found->second.bytes.end(),
              reinterpret_cast<char*>(values.data()));
    return Number(std::accumulate(values.begin(), values.end(), 0.0f), last);
  }
  const auto* const of_first = std::find(std::begin(kOfFirstCall), std::end(kOfFirstCall), name);
  if (of_first != std::end(kOfFirstCall)) return OutputOf(step_, first_, name);
  return last;
}

}  // namespace nereid::bls
