#include "backends/bls/token_accumulator.h"

#include <map>
#include <utility>
#include <vector>

#include "backends/bls/int_tensor.h"

namespace nereid::bls {
namespace {

using ensemble::Step;
using ensemble::StepCall;
using ensemble::StepEvents;
using ensemble::StepModels;
using ensemble::StepRequest;
using ensemble::TensorRef;
using ensemble::TensorRefs;

// Receives the engine's responses and passes them on with all tokens so far. Events of one call do
// not overlap, so it needs no lock.
class AccumulatingEvents : public StepEvents {
 public:
  AccumulatingEvents(std::shared_ptr<StepEvents> next, const Step& step)
      : next_(std::move(next)), step_(step) {}

  void OnResponse(std::span<const TensorRef> outputs, bool is_final) override {
    TensorRefs changed;
    for (const TensorRef& output : outputs) changed.push_back(output);
    Accumulate(changed);
    next_->OnResponse({changed.data(), changed.size()}, is_final);
  }
  void OnError(Status error, bool is_final) override { next_->OnError(std::move(error), is_final); }
  void OnFinal() override { next_->OnFinal(); }
  void OnReleased() override { next_->OnReleased(); }

 private:
  // Returns the position of an output, or the number of outputs if the step has none of this name.
  size_t Position(const char* name) const {
    size_t position = 0;
    while (position < step_.outputs.size() && step_.outputs[position].name != name) ++position;
    return position;
  }

  // Zero if the output is absent.
  int32_t IndexIn(const TensorRefs& outputs, const char* name) const {
    const size_t position = Position(name);
    if (position >= outputs.size() || outputs[position] == nullptr) return 0;
    const std::vector<int32_t> elements = ElementsOf<int32_t>(*outputs[position]);
    return elements.empty() ? 0 : elements.front();
  }

  // Responses with several beams carry whole sequences, which stay as they are.
  void Accumulate(TensorRefs& outputs) {
    const size_t ids = Position("output_ids"), lengths = Position("sequence_length"),
                 prior = Position("prior_ids");
    if (ids >= outputs.size() || outputs[ids] == nullptr) return;
    const auto& shape = outputs[ids]->shape;
    if (shape.size() != 3 || shape[0] != 1 || shape[1] != 1) {
      return;
    }
    std::vector<int32_t>& so_far =
        tokens_[{IndexIn(outputs, "batch_index"), IndexIn(outputs, "sequence_index")}];
    const std::vector<int32_t> added = ElementsOf<int32_t>(*outputs[ids]);
    so_far.insert(so_far.end(), added.begin(), added.end());
    const auto size = static_cast<int64_t>(so_far.size());
    outputs[ids] = MakeIntTensor(so_far, ShapeOf({1, 1, size}));
    if (lengths < outputs.size() && outputs[lengths] != nullptr) {
      const auto length = static_cast<int32_t>(size);
      outputs[lengths] = MakeIntTensor({&length, 1}, ShapeOf({1, 1}));
    }
    // No token precedes those of the response.
    if (prior < outputs.size() && outputs[prior] != nullptr) {
      outputs[prior] = MakeIntTensor({}, ShapeOf({1, 0}));
    }
  }

  const std::shared_ptr<StepEvents> next_;
  const Step& step_;
  // The tokens so far; the key is the index in the batch and the index of the sequence.
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> tokens_;
};

}  // namespace

Result<std::shared_ptr<StepCall>> TokenAccumulator::Start(const StepRequest& request,
                                                          std::shared_ptr<StepEvents> events) {
  if (request.step == engine_step_) {
    events =
        std::make_shared<AccumulatingEvents>(std::move(events), plan_.graph->steps[engine_step_]);
  }
  return models_.Start(request, std::move(events));
}

}  // namespace nereid::bls
