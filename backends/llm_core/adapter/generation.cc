// Output of rows -> responses.
#include "llm_core/adapter/generation.h"

#include <algorithm>

#include "llm_core/adapter/response_thread.h"

namespace nereid::llm_adapter {
namespace {

constexpr size_t kMaxPriorIds = 16;
constexpr size_t kMaxQueuedNews = 64;  // of a row; then the newest are merged

class RowSink : public llm::OutputSink {
 public:
  RowSink(std::shared_ptr<Generation> generation, size_t row)
      : generation_(std::move(generation)), row_(row) {}

  bool IsCancelled() const override { return generation_->IsCancelled(); }
  void OnOutput(const llm::Output& output) override { generation_->Post(row_, output); }
  void OnError(const Status& status) override { generation_->PostError(row_, status); }

 private:
  const std::shared_ptr<Generation> generation_;
  const size_t row_;
};

}  // namespace

ConfiguredOutputs::ConfiguredOutputs(const ModelConfig& config)
    : is_batching(config.max_batch_size() > 0) {
  for (const TensorSpec& output : config.outputs()) names.push_back(output.name);
}

bool ConfiguredOutputs::Has(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<std::shared_ptr<Generation>> Generation::Create(Request request, const ClientRequest& client,
                                                       const ConfiguredOutputs& outputs,
                                                       ResponseThread& responses) {
  // The engine's thread asks it for cancellation while the response thread uses the sender.
  Result<ResponseFactoryHandle> factory = NewResponseFactoryHandle(request.handle());
  if (!factory.ok()) {
    const Status error = std::move(factory).status();
    (void)request.Fail(error);
    return error;
  }
  return std::shared_ptr<Generation>(
      new Generation(std::move(request), client, outputs, responses, std::move(*factory)));
}

Generation::Generation(Request request, const ClientRequest& client,
                       const ConfiguredOutputs& outputs, ResponseThread& responses,
                       ResponseFactoryHandle factory)
    : id_(client.id),
      is_streaming_(client.is_streaming),
      exclude_input_(client.exclude_input),
      outputs_(outputs),
      responses_(responses),
      sender_(std::move(request).IntoSender()),
      factory_(std::move(factory)),
      rows_(client.rows.size()),
      num_open_rows_(client.rows.size()) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i].prompt = client.rows[i].prompt;
    rows_[i].wants_log_probs = client.rows[i].sampling.want_log_probs;
  }
}

std::unique_ptr<llm::OutputSink> Generation::MakeSink(size_t row) {
  return std::make_unique<RowSink>(shared_from_this(), row);
}

bool Generation::IsCancelled() const {
  if (is_stopped_.load(std::memory_order_relaxed)) return true;
  bool is_cancelled = false;
  (void)ToStatus(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &is_cancelled));
  return is_cancelled;
}

void Generation::Post(size_t row, const llm::Output& output) {
  if (!is_streaming_ && output.finish == llm::FinishReason::kNone) return;
  {
    const std::lock_guard lock(mutex_);
    std::vector<News>& queue = rows_[row].news;
    if (queue.size() < kMaxQueuedNews) queue.emplace_back();
    News& news = queue.back();
    const size_t first = is_streaming_ ? output.first_new : 0;
    news.ids.insert(news.ids.end(), output.ids.begin() + first, output.ids.end());
    if (!output.log_probs.empty()) {
      news.log_probs.insert(news.log_probs.end(), output.log_probs.begin() + first,
                            output.log_probs.end());
    }
    news.cum_log_prob = output.cum_log_prob;
    news.num_output = static_cast<int32_t>(output.ids.size());
    news.finish = output.finish;
    if (std::exchange(is_announced_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void Generation::PostError(size_t row, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    rows_[row].news.emplace_back().error = status;
    if (std::exchange(is_announced_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void Generation::Flush() {
  std::vector<std::vector<News>> all(rows_.size());
  {
    const std::lock_guard lock(mutex_);
    is_announced_ = false;
    for (size_t row = 0; row < rows_.size(); ++row) all[row].swap(rows_[row].news);
  }
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (const News& news : all[row]) SendNews(row, news);
  }
}

void Generation::SendNews(size_t row, const News& news) {
  if (news.is_over()) --num_open_rows_;
  if (!news.error.ok() && first_error_.ok()) {
    first_error_ = news.error;
    Cancel();  // the other rows are of no use without this one
  }
  const bool is_last = news.is_over() && num_open_rows_ == 0;
  if (!first_error_.ok()) {
    if (is_last) (void)sender_.Fail(first_error_);
    return;
  }
  const auto send = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(Response response, sender_.NewResponse());
    NEREID_RETURN_IF_ERROR(FillResponse(response, row, news));
    return sender_.Send(std::move(response), is_last);
  };
  const Status sent = send();
  if (!sent.ok() && sender_.is_open()) {
    first_error_ = sent;
    Cancel();
    if (is_last) (void)sender_.Fail(first_error_);
  }
}

Status Generation::FillResponse(Response& response, size_t row, const News& news) {
  Row& source = rows_[row];
  const auto wants = [&](const char* name) { return outputs_.Has(name) && response.Wants(name); };
  // A leading 1 where the model batches.
  const auto shape = [&](std::initializer_list<int64_t> dims) {
    std::vector<int64_t> result(dims);
    if (outputs_.is_batching) result.insert(result.begin(), 1);
    return result;
  };
  const auto set_int = [&](const char* name, size_t value) -> Status {
    if (!wants(name)) return {};
    const auto number = static_cast<int32_t>(value);
    return response.SetOutput<int32_t>(name, shape({1}), std::span(&number, 1));
  };
  llm::TokenIds ids;
  if (!is_streaming_ && !exclude_input_) ids = source.prompt;
  ids.insert(ids.end(), news.ids.begin(), news.ids.end());
  const auto num_ids = static_cast<int64_t>(ids.size());
  if (wants("output_ids")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("output_ids", shape({1, num_ids}), ids));
  }
  NEREID_RETURN_IF_ERROR(set_int("sequence_length", ids.size()));
  if (wants("prior_ids")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>(
        "prior_ids", shape({static_cast<int64_t>(source.prior_ids.size())}), source.prior_ids));
  }
  if (wants("finish_reason")) {
    const std::string_view reason[] = {llm::FinishReasonText(news.finish)};
    NEREID_RETURN_IF_ERROR(response.SetStrings("finish_reason", shape({1}), reason));
  }
  if (source.wants_log_probs && wants("cum_log_probs")) {
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<float>("cum_log_probs", shape({1}), std::span(&news.cum_log_prob, 1)));
  }
  if (source.wants_log_probs && wants("output_log_probs")) {
    const auto count = static_cast<int64_t>(news.log_probs.size());
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<float>("output_log_probs", shape({1, count}), news.log_probs));
  }
  NEREID_RETURN_IF_ERROR(set_int("batch_index", row));
  NEREID_RETURN_IF_ERROR(set_int("sequence_index", 0));
  NEREID_RETURN_IF_ERROR(set_int("num_input_tokens", source.prompt.size()));
  NEREID_RETURN_IF_ERROR(set_int("num_output_tokens", static_cast<size_t>(news.num_output)));
  source.prior_ids.insert(source.prior_ids.end(), news.ids.begin(), news.ids.end());
  if (source.prior_ids.size() > kMaxPriorIds) {
    source.prior_ids.erase(source.prior_ids.begin(), source.prior_ids.end() - kMaxPriorIds);
  }
  return {};
}

}  // namespace nereid::llm_adapter
