// Output of rows -> responses.
#include "backends/llm_core/adapter/generation.h"

#include <algorithm>
#include <array>

#include "backends/llm_core/adapter/llm_metrics.h"
#include "backends/llm_core/adapter/logits_format.h"
#include "backends/llm_core/adapter/response_thread.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::llm_adapter {
namespace {

constexpr size_t kMaxPriorIds = tokenizer::kMaxHeldIds;
constexpr size_t kMaxQueuedNews = 64;  // of a sequence; then the newest are merged
constexpr float kNoLogProb = -1.0f;    // fills up the shorter sequences of a response
constexpr int32_t kNoId = -1;
constexpr std::array<float, 1> kNoLogits{};

void Append(std::vector<float>& to, std::span<const float> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Result<std::shared_ptr<Generation>> Generation::Create(Request request, const ClientRequest& client,
                                                       const ConfiguredOutputs& outputs,
                                                       ResponseThread& responses,
                                                       LlmMetrics* metrics) {
  // The watch's thread asks it for cancellation while the response thread uses the sender.
  Result<ResponseFactoryHandle> factory = NewResponseFactoryHandle(request.handle());
  if (!factory.ok()) {
    const Status error = std::move(factory).status();
    (void)request.Fail(error);
    return error;
  }
  return std::shared_ptr<Generation>(
      new Generation(std::move(request), client, outputs, responses, metrics, std::move(*factory)));
}

Generation::Generation(Request request, const ClientRequest& client,
                       const ConfiguredOutputs& outputs, ResponseThread& responses,
                       LlmMetrics* metrics, ResponseFactoryHandle factory)
    : id_(client.id),
      is_streaming_(client.is_streaming),
      exclude_input_(client.exclude_input),
      outputs_(outputs),
      responses_(responses),
      metrics_(metrics),
      arrival_ns_(SteadyNowNs()),
      sender_(std::move(request).IntoSender()),
      factory_(std::move(factory)),
      rows_(client.rows.size()) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const GenerationRow& from = client.rows[i];
    Row& row = rows_[i];
    row.prompt = from.prompt;
    row.wants_log_probs = from.sampling.want_log_probs;
    row.wants_cache_stats = from.want_cache_stats;
    row.wants_perf_metrics = from.want_perf_metrics;
    row.first_part = parts_.size();
    row.num_parts = static_cast<size_t>(from.num_sequences);
    row.is_combined = row.num_parts > 1 && (from.beams.width > 1 || !outputs.is_decoupled);
    if (row.is_combined) row.finals.resize(row.num_parts);
    for (int32_t index = 0; index < from.num_sequences; ++index) {
      Part& part = parts_.emplace_back();
      part.row = i;
      part.sequence_index = index;
    }
  }
  num_open_ = parts_.size();
  sender_.MarkInputsRead();
}

std::unique_ptr<llm::OutputSink> Generation::MakeSink(size_t row,
                                                      std::shared_ptr<const StopTexts> stop_texts) {
  return std::make_unique<RowSink>(shared_from_this(), row, std::move(stop_texts), arrival_ns_);
}

bool Generation::AskForCancellation() {
  if (IsCancelled()) return true;
  bool is_cancelled = false;
  (void)ToStatus(TRITONBACKEND_ResponseFactoryIsCancelled(factory_.get(), &is_cancelled));
  if (is_cancelled) Cancel();
  return is_cancelled;
}

void Generation::Post(size_t row, const llm::Output& output, const Timing& timing,
                      const llm::TokenIds& tail) {
  const bool is_streaming = is_streaming_ && !rows_[row].is_combined;
  if (!is_streaming && output.finish == llm::FinishReason::kNone) {
    if (output.context_logits.empty() && output.prompt_log_probs.empty()) return;
  }
  {
    const std::lock_guard lock(mutex_);
    std::vector<News>& queue =
        parts_[rows_[row].first_part + static_cast<size_t>(output.sequence_index)].news;
    if (queue.empty() || (is_streaming && queue.size() < kMaxQueuedNews)) queue.emplace_back();
    News& news = queue.back();
    // Of what is given only once, and with the first call.
    Append(news.context_logits, output.context_logits);
    Append(news.prompt_log_probs, output.prompt_log_probs);
    if (!is_streaming && output.finish == llm::FinishReason::kNone) return;
    const size_t first = is_streaming ? output.first_new : 0;
    news.ids.insert(news.ids.end(), output.ids.begin() + first, output.ids.end());
    if (!output.log_probs.empty()) Append(news.log_probs, output.log_probs.subspan(first));
    if (!output.generation_logits.empty()) {
      const size_t vocab_size = output.generation_logits.size() / output.ids.size();
      Append(news.generation_logits, output.generation_logits.subspan(first * vocab_size));
    }
    news.ids.insert(news.ids.end(), tail.begin(), tail.end());
    if (rows_[row].wants_log_probs) news.log_probs.resize(news.ids.size());
    if (!news.generation_logits.empty()) {
      news.generation_logits.resize(news.ids.size() * static_cast<size_t>(outputs_.vocab_size));
    }
    news.cum_log_prob = output.cum_log_prob;
    news.num_output = static_cast<int32_t>(output.ids.size() + tail.size());
    news.num_reused_blocks = output.num_reused_blocks;
    news.num_new_blocks = output.num_new_blocks;
    news.timing = timing;
    news.finish = output.finish;
    if (std::exchange(is_announced_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void Generation::PostError(size_t row, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    parts_[rows_[row].first_part].news.emplace_back().error = status;
    if (std::exchange(is_announced_, true)) return;
  }
  responses_.Enqueue(shared_from_this());
}

void Generation::Flush() {
  std::vector<std::vector<News>> all(parts_.size());
  {
    const std::lock_guard lock(mutex_);
    is_announced_ = false;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const std::vector<News>& news = parts_[i].news;
      // What waits for the rest of its sequence stays.
      const bool is_ready = is_streaming_ || (!news.empty() && news.back().is_over());
      if (is_ready) all[i].swap(parts_[i].news);
    }
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    for (News& news : all[i]) HandleNews(parts_[i], std::move(news));
  }
}

void Generation::HandleNews(Part& part, News news) {
  Row& row = rows_[part.row];
  if (!news.error.ok()) {
    FailRow(row, news.error);
    return;
  }
  if (news.is_over()) {
    Close(part);
    if (metrics_ != nullptr)
      metrics_->CountRequest(row.prompt.size(), news.num_output, news.timing);
  }
  if (!row.is_combined) {
    Send(part, std::span(&news, 1));
    return;
  }
  row.finals[static_cast<size_t>(part.sequence_index)] = std::move(news);
  const auto is_over = [](const News& one) { return one.is_over(); };
  if (std::all_of(row.finals.begin(), row.finals.end(), is_over)) {
    Send(parts_[row.first_part], row.finals);
  }
}

void Generation::Close(Part& part) {
  if (std::exchange(part.is_open, false)) --num_open_;
}

void Generation::FailRow(const Row& row, const Status& error) {
  for (size_t i = 0; i < row.num_parts; ++i) Close(parts_[row.first_part + i]);
  if (first_error_.ok()) {
    first_error_ = error;
    Cancel();  // the other rows are of no use without this one
  }
  if (num_open_ == 0) (void)sender_.Fail(first_error_);
}

void Generation::Send(Part& part, std::span<const News> all) {
  const bool is_last = num_open_ == 0;
  if (is_last) sender_.MarkComputed();
  if (!first_error_.ok()) {
    if (is_last) (void)sender_.Fail(first_error_);
    return;
  }
  const auto send = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(Response response, sender_.NewResponse());
    NEREID_RETURN_IF_ERROR(FillResponse(response, part, all));
    return sender_.Send(std::move(response), is_last);
  };
  const Status sent = send();
  if (!sent.ok() && sender_.is_open()) {
    first_error_ = sent;
    Cancel();
    if (is_last) (void)sender_.Fail(first_error_);
  }
}

bool Generation::Wants(const Response& response, const char* name) const {
  return outputs_.Has(name) && response.Wants(name);
}

std::vector<int64_t> Generation::Shape(std::initializer_list<int64_t> dims) const {
  std::vector<int64_t> result(dims);
  if (outputs_.is_batching) result.insert(result.begin(), 1);
  return result;
}

Status Generation::FillResponse(Response& response, Part& part, std::span<const News> all) {
  const Row& row = rows_[part.row];
  const auto num_sequences = static_cast<int64_t>(all.size());
  const size_t num_echoed = !is_streaming_ && !exclude_input_ ? row.prompt.size() : 0;
  size_t longest = 0;
  for (const News& news : all) longest = std::max(longest, news.ids.size());
  llm::TokenIds ids;
  std::vector<int32_t> lengths;
  std::vector<float> sums, log_probs;
  const bool has_log_probs = row.wants_log_probs || outputs_.has_unasked;
  const float filler = row.wants_log_probs ? kNoLogProb : 0.0f;
  for (const News& news : all) {  // the shorter ones are filled up
    ids.insert(ids.end(), row.prompt.begin(),
               row.prompt.begin() + static_cast<ptrdiff_t>(num_echoed));
    ids.insert(ids.end(), news.ids.begin(), news.ids.end());
    ids.insert(ids.end(), longest - news.ids.size(), kNoId);
    lengths.push_back(static_cast<int32_t>(num_echoed + news.ids.size()));
    sums.push_back(row.wants_log_probs ? news.cum_log_prob : 0.0f);
    Append(log_probs, news.log_probs);
    log_probs.insert(log_probs.end(), longest - news.log_probs.size(), filler);
  }
  const auto num_ids = static_cast<int64_t>(num_echoed + longest);
  if (Wants(response, "output_ids")) {
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<int32_t>("output_ids", Shape({num_sequences, num_ids}), ids));
  }
  if (Wants(response, "sequence_length")) {
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<int32_t>("sequence_length", Shape({num_sequences}), lengths));
  }
  if (Wants(response, "prior_ids")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>(
        "prior_ids", Shape({static_cast<int64_t>(part.prior_ids.size())}), part.prior_ids));
  }
  if (Wants(response, "finish_reason")) {
    const std::string_view reason[] = {llm::FinishReasonText(all[0].finish)};
    NEREID_RETURN_IF_ERROR(response.SetStrings("finish_reason", Shape({1}), reason));
  }
  if (has_log_probs && Wants(response, "cum_log_probs")) {
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<float>("cum_log_probs", Shape({num_sequences}), sums));
  }
  if (has_log_probs && Wants(response, "output_log_probs")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<float>(
        "output_log_probs", Shape({num_sequences, static_cast<int64_t>(longest)}), log_probs));
  }
  const auto set_int = [&](const char* name, size_t value) -> Status {
    if (!Wants(response, name)) return {};
    const auto number = static_cast<int32_t>(value);
    return response.SetOutput<int32_t>(name, Shape({1}), std::span(&number, 1));
  };
  NEREID_RETURN_IF_ERROR(set_int("batch_index", part.row));
  NEREID_RETURN_IF_ERROR(set_int("sequence_index", static_cast<size_t>(part.sequence_index)));
  NEREID_RETURN_IF_ERROR(set_int("num_input_tokens", row.prompt.size()));
  int32_t num_output = 0;
  for (const News& news : all) num_output += news.num_output;
  NEREID_RETURN_IF_ERROR(set_int("num_output_tokens", static_cast<size_t>(num_output)));
  NEREID_RETURN_IF_ERROR(FillLogits(response, all));
  NEREID_RETURN_IF_ERROR(FillStatistics(response, row, all[0]));
  const llm::TokenIds& sent = all[0].ids;
  part.prior_ids.insert(part.prior_ids.end(), sent.begin(), sent.end());
  if (part.prior_ids.size() > kMaxPriorIds) {
    part.prior_ids.erase(part.prior_ids.begin(), part.prior_ids.end() - kMaxPriorIds);
  }
  return {};
}

Status Generation::FillLogits(Response& response, std::span<const News> all) {
  const News& first = all[0];
  if (!first.prompt_log_probs.empty() && Wants(response, "prompt_log_probs")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<float>(
        "prompt_log_probs", Shape({static_cast<int64_t>(first.prompt_log_probs.size())}),
        first.prompt_log_probs));
  }
  const auto vocab_size = int64_t{outputs_.vocab_size};
  if (!first.context_logits.empty() && Wants(response, "context_logits")) {
    const int64_t num_rows = static_cast<int64_t>(first.context_logits.size()) / vocab_size;
    NEREID_RETURN_IF_ERROR(SetLogits(response, "context_logits", outputs_.context_logits,
                                     Shape({num_rows, vocab_size}), first.context_logits));
  } else if (outputs_.has_unasked && Wants(response, "context_logits")) {
    NEREID_RETURN_IF_ERROR(
        SetLogits(response, "context_logits", outputs_.context_logits, Shape({1, 1}), kNoLogits));
  }
  size_t longest = 0;
  for (const News& news : all) longest = std::max(longest, news.generation_logits.size());
  if (!Wants(response, "generation_logits")) return {};
  if (longest == 0) {
    if (!outputs_.has_unasked) return {};
    return SetLogits(response, "generation_logits", outputs_.generation_logits, Shape({1, 1, 1}),
                     kNoLogits);
  }
  std::vector<float> logits;
  for (const News& news : all) {
    Append(logits, news.generation_logits);
    logits.insert(logits.end(), longest - news.generation_logits.size(), 0.0f);
  }
  return SetLogits(response, "generation_logits", outputs_.generation_logits,
                   Shape({static_cast<int64_t>(all.size()),
                          static_cast<int64_t>(longest) / vocab_size, vocab_size}),
                   logits);
}

Status Generation::SetLogits(Response& response, const char* name, DataType datatype,
                             const std::vector<int64_t>& shape, std::span<const float> logits) {
  NEREID_ASSIGN_OR_RETURN(
      const std::span<std::byte> target,
      response.OutputBytes(name, datatype, shape, logits.size() * ByteSize(datatype)));
  ConvertLogits(logits, datatype, target);
  return {};
}

Status Generation::FillStatistics(Response& response, const Row& row, const News& news) {
  const auto set = [&]<typename T>(const char* name, T value) -> Status {
    if (!Wants(response, name)) return {};
    return response.SetOutput<T>(name, Shape({1}), std::span<const T>(&value, 1));
  };
  if (row.wants_cache_stats || row.wants_perf_metrics) {
    NEREID_RETURN_IF_ERROR(set("kv_cache_alloc_new_blocks", news.num_new_blocks));
    NEREID_RETURN_IF_ERROR(set("kv_cache_reused_blocks", news.num_reused_blocks));
    NEREID_RETURN_IF_ERROR(
        set("kv_cache_alloc_total_blocks", news.num_new_blocks + news.num_reused_blocks));
  }
  if (!row.wants_perf_metrics) return {};
  NEREID_RETURN_IF_ERROR(set("arrival_time_ns", news.timing.arrival_ns));
  NEREID_RETURN_IF_ERROR(set("first_scheduled_time_ns", news.timing.first_scheduled_ns));
  NEREID_RETURN_IF_ERROR(set("first_token_time_ns", news.timing.first_token_ns));
  NEREID_RETURN_IF_ERROR(set("last_token_time_ns", news.timing.last_token_ns));
  NEREID_RETURN_IF_ERROR(set("acceptance_rate", 0.0f));  // nothing is drafted
  NEREID_RETURN_IF_ERROR(set("total_accepted_draft_tokens", int32_t{0}));
  return set("total_draft_tokens", int32_t{0});
}

}  // namespace nereid::llm_adapter
