// The calls of one text, one after the other.
#include "backends/bls/drafted_call.h"

#include <algorithm>

#include "backends/bls/chain.h"
#include "backends/bls/int_tensor.h"

namespace nereid::bls {
namespace {

using ensemble::Binding;
using ensemble::Shape;
using ensemble::StepCall;
using ensemble::StepEvents;
using ensemble::StepModels;
using ensemble::TensorRef;

constexpr const char* kMinLengths[] = {"min_length", "min_tokens"};
// The draft model's outputs besides its tokens are not read.
constexpr const char* kNotForDrafts[] = {"return_log_probs",    "return_generation_logits",
                                         "return_perf_metrics", "return_kv_cache_reuse_stats",
                                         "lora_task_id",        "lora_weights",
                                         "lora_config"};

// The same dims with another last one.
Shape WithLastDim(const Shape& shape, size_t size) {
  Shape changed = shape;
  changed.back() = static_cast<int64_t>(size);
  return changed;
}

}  // namespace

// The events of one call.
class DraftedCall::CallEvents : public StepEvents {
 public:
  CallEvents(std::shared_ptr<DraftedCall> owner, Kind kind)
      : owner_(std::move(owner)), kind_(kind) {}

  void OnResponse(std::span<const TensorRef> outputs, bool is_final) override {
    if (has_response_) {
      error_ = InternalError("a model sent several responses to a request with draft tokens");
    }
    has_response_ = true;
    response_.assign(outputs.begin(), outputs.end());
    if (is_final) OnFinal();
  }
  void OnError(Status error, bool is_final) override {
    error_ = std::move(error);
    if (is_final) OnFinal();
  }
  void OnFinal() override {
    if (error_.ok() && !has_response_) {
      error_ = InternalError("a model sent no response to a request with draft tokens");
    }
    if (error_.ok()) error_ = owner_->Take(kind_, response_);
    response_.clear();
    if (!error_.ok()) owner_->Fail(std::move(error_));
  }
  void OnReleased() override { owner_->DropReference(); }

 private:
  const std::shared_ptr<DraftedCall> owner_;
  const Kind kind_;
  bool has_response_ = false;
  std::vector<TensorRef> response_;
  Status error_;
};

void DraftedCall::Cancel() {
  std::shared_ptr<StepCall> call;
  {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    call = call_;
  }
  if (call != nullptr) call->Cancel();
}

Status DraftedCall::StartDraft() {
  NamedInputs inputs(*models_.draft.step);
  for (const Binding& input : models_.draft.step->inputs) {
    inputs.Set(input.name, inputs_.Get(input.name));
  }
  for (const char* name : kNotForDrafts) inputs.Set(name, nullptr);
  SetTokens(inputs, text_.ids(), {}, text_.NumToDraft(), text_.output().size());
  return Start(draft_models_, inputs, Kind::kDraft);
}

Status DraftedCall::StartTarget(std::span<const int32_t> proposed) {
  text_.BeginCall(proposed);
  NamedInputs inputs = inputs_;
  SetTokens(inputs, text_.call_prompt(), text_.call_draft(), text_.call_length(),
            text_.num_output_in_prompt());
  return Start(target_models_, inputs, Kind::kTarget);
}

void DraftedCall::SetTokens(NamedInputs& inputs, std::span<const int32_t> prompt,
                            std::span<const int32_t> draft, int32_t num_tokens,
                            size_t num_output) const {
  const Shape& ids = inputs_.Get("input_ids")->shape;
  const Shape& number = inputs_.Get("input_lengths")->shape;
  const auto length = static_cast<int32_t>(prompt.size());
  inputs.Set("input_ids", MakeIntTensor(prompt, WithLastDim(ids, prompt.size())));
  inputs.Set("input_lengths", MakeIntTensor({&length, 1}, number));
  inputs.Set("request_output_len", MakeIntTensor({&num_tokens, 1}, number));
  if (!draft.empty()) {
    inputs.Set("draft_input_ids", MakeIntTensor(draft, WithLastDim(ids, draft.size())));
  }
  for (const char* name : kMinLengths) {
    const TensorRef tensor = inputs_.Get(name);
    if (tensor == nullptr || tensor->byte_size() != sizeof(int32_t)) continue;
    const int32_t left =
        std::max(0, ElementsOf<int32_t>(*tensor).front() - static_cast<int32_t>(num_output));
    inputs.Set(name, MakeIntTensor({&left, 1}, tensor->shape));
  }
}

Status DraftedCall::Start(StepModels& models, const NamedInputs& inputs, Kind kind) {
  num_references_.fetch_add(1, std::memory_order_relaxed);
  // A response may arrive before Start returns, and with it the call that follows.
  const uint64_t number = ++num_calls_;
  auto started =
      models.Start({kEngine, inputs.all()}, std::make_shared<CallEvents>(shared_from_this(), kind));
  if (!started.ok()) {
    num_references_.fetch_sub(1, std::memory_order_relaxed);
    return std::move(started).status();
  }
  bool cancel = false;
  {
    std::lock_guard lock(mutex_);
    if (number > newest_call_) {
      newest_call_ = number;
      call_ = *started;
    }
    cancel = is_cancelled_;
  }
  if (cancel) (*started)->Cancel();
  return {};
}

Status DraftedCall::Take(Kind kind, std::span<const TensorRef> response) {
  {
    std::lock_guard lock(mutex_);
    if (is_cancelled_) return CancelledError("the request was cancelled");
  }
  const DraftingModel& model = kind == Kind::kDraft ? models_.draft : models_.target;
  const size_t num_prompt = kind == Kind::kDraft ? text_.ids().size() : text_.call_prompt().size();
  NEREID_ASSIGN_OR_RETURN(const TokenIds generated, GeneratedIds(model, response, num_prompt));
  if (kind == Kind::kDraft) return StartTarget(generated);
  outputs_.Add(response, text_.num_output_in_prompt(), generated.size());
  if (text_.EndCall(generated)) return Next();
  Answer();
  return {};
}

Result<TokenIds> DraftedCall::GeneratedIds(const DraftingModel& model,
                                           std::span<const TensorRef> response,
                                           size_t num_prompt) const {
  const TensorRef ids = OutputOf(*model.step, response, "output_ids");
  const TensorRef length = OutputOf(*model.step, response, "sequence_length");
  if (ids == nullptr || length == nullptr) {
    return InternalError("model '", model.step->model_name, "' sent no output_ids");
  }
  TokenIds tokens = ElementsOf<int32_t>(*ids);
  const std::vector<int32_t> lengths = ElementsOf<int32_t>(*length);
  if (lengths.size() == 1) {
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::max(0, lengths[0]))));
  }
  if (!ExcludesPrompt(model)) {
    tokens.erase(tokens.begin(),
                 tokens.begin() + static_cast<ptrdiff_t>(std::min(num_prompt, tokens.size())));
  }
  return tokens;
}

bool DraftedCall::ExcludesPrompt(const DraftingModel& model) const {
  const TensorRef asked = Find(model.step->inputs, "exclude_input_in_output") == nullptr
                              ? nullptr
                              : inputs_.Get("exclude_input_in_output");
  return asked == nullptr ? model.excludes_prompt : HasNonZero(asked);
}

void DraftedCall::Answer() {
  const std::vector<TensorRef> all = outputs_.Whole(text_, ExcludesPrompt(models_.target));
  events_->OnResponse(all, true);
  DropReference();
}

void DraftedCall::Fail(Status error) {
  events_->OnError(std::move(error), true);
  DropReference();
}

void DraftedCall::DropReference() {
  if (num_references_.fetch_sub(1, std::memory_order_acq_rel) == 1) events_->OnReleased();
}

}  // namespace nereid::bls
