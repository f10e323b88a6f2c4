// Reads the prompts of a request: conversations, texts or token ids.
#include <algorithm>
#include <ctime>

#include "backends/tokenizer/preprocessing.h"
#include "backends/tokenizer/tensor_specs.h"
#include "base/json_reader.h"
#include "nereid/tensor_view.h"

namespace nereid::tokenizer {
namespace {

Status RefuseMultimodal(const RequestTensors& tensors) {
  for (const char* name : MultimodalInputs()) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> view, tensors.OptionalInput(name));
    if (view) return UnsupportedError("input '", name, "': images and videos are not supported");
  }
  return {};
}

}  // namespace

Result<Preprocessing::JsonRows> Preprocessing::ReadJsonRows(const RequestTensors& tensors,
                                                            const char* input) {
  JsonRows rows(static_cast<size_t>(tensors.batch_size()));
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput(input));
  if (!view) return rows;
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view->Strings());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*view, texts.size(), "text"));
  for (size_t r = 0; r < rows.size(); ++r) {
    if (texts[r].empty()) continue;
    NEREID_ASSIGN_OR_RETURN(
        rows[r], ReadJson<nlohmann::ordered_json>(texts[r], StrCat("input '", input, "'")));
  }
  return rows;
}

Result<Preprocessing::Rows> Preprocessing::ReadPrompts(RequestTensors& tensors,
                                                       Request& request) const {
  Result<TensorView> messages = request.Input("MESSAGES");
  Result<TensorView> ids = request.Input("PROMPT_TOKEN_IDS");
  Result<TensorView> query = request.Input("QUERY");
  if (!messages.ok() && !ids.ok() && !query.ok()) {
    return InvalidArgError(
        "expected one of the inputs 'QUERY', 'MESSAGES' and 'PROMPT_TOKEN_IDS', got none");
  }
  TensorView& prompt = messages.ok() ? *messages : ids.ok() ? *ids : *query;
  NEREID_RETURN_IF_ERROR(tensors.SetBatchSize(prompt));
  NEREID_RETURN_IF_ERROR(RefuseMultimodal(tensors));
  if (messages.ok() && ids.ok()) {
    return InvalidArgError("expected one of the inputs 'MESSAGES' and 'PROMPT_TOKEN_IDS', ",
                           "got both");
  }
  if (!messages.ok() && !ids.ok()) return EncodeTexts(tensors, prompt);
  if (query.ok()) {
    NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, query->Strings());
    for (const std::string_view text : texts) {
      if (!text.empty())
        return InvalidArgError("input 'QUERY': must be empty beside '", prompt.name(), "'");
    }
  }
  return messages.ok() ? EncodeConversations(tensors) : ReadTokenIds(tensors, prompt);
}

Result<Preprocessing::Rows> Preprocessing::ReadTokenIds(const RequestTensors& tensors,
                                                        TensorView& view) const {
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids, view.As<int32_t>());
  NEREID_ASSIGN_OR_RETURN(const size_t per_row, tensors.ElementsPerRow(view, ids.size()));
  const int32_t vocab_size = tokenizer_->vocab_size();
  // The engine knows which ids the table has.
  NEREID_ASSIGN_OR_RETURN(const auto table, tensors.OptionalInput("PROMPT_VOCAB_SIZE"));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && (ids[i] < vocab_size || table)) continue;
    return InvalidArgError("input '", view.name(), "': token id ", ids[i], " at index ",
                           i % per_row, ", expected 0 to ", vocab_size - 1, " (the vocabulary of ",
                           vocab_size, " tokens)");
  }
  Rows rows;
  for (int64_t row = 0; row < tensors.batch_size(); ++row) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(row * per_row);
    rows.emplace_back(first, first + static_cast<ptrdiff_t>(per_row));
  }
  return rows;
}

Result<Preprocessing::Rows> Preprocessing::EncodeConversations(
    const RequestTensors& tensors) const {
  NEREID_ASSIGN_OR_RETURN(const JsonRows conversations, ReadJsonRows(tensors, "MESSAGES"));
  NEREID_ASSIGN_OR_RETURN(const JsonRows tools, ReadJsonRows(tensors, "TOOLS"));
  NEREID_ASSIGN_OR_RETURN(const JsonRows variables, ReadJsonRows(tensors, "CHAT_TEMPLATE_KWARGS"));
  const std::time_t time = std::time(nullptr);
  std::tm now{};
  localtime_r(&time, &now);
  Rows rows;
  for (size_t r = 0; r < conversations.size(); ++r) {
    Result<std::vector<int32_t>> ids =
        EncodeConversation({conversations[r], tools[r], variables[r]}, now);
    if (!ids.ok()) return std::move(ids).status().WithContext("input 'MESSAGES'");
    rows.push_back(std::move(ids).value());
  }
  return rows;
}

Result<std::vector<int32_t>> Preprocessing::EncodeConversation(Conversation conversation,
                                                               const std::tm& now) const {
  if (chat_template_ == nullptr) {
    return UnsupportedError(
        "the folder of the tokenizer has no chat template (chat_template.jinja, or chat_template "
        "in tokenizer_config.json), without which a model only continues texts; 'nereid serve "
        "--chat-template FILE' gives it one");
  }
  NEREID_RETURN_IF_ERROR(chat_template_->CheckKnown(conversation));
  NEREID_ASSIGN_OR_RETURN(const MarkedText prompt,
                          chat_template_->Render(std::move(conversation), now));
  // The template writes BOS itself.
  EncodeOptions options = options_;
  options.add_special_tokens = false;
  if (trusts_special_tokens_) return tokenizer_->Encode(prompt.bytes(), options);
  return tokenizer_->EncodeMarked(prompt, options);
}

Result<Preprocessing::Rows> Preprocessing::EncodeTexts(const RequestTensors& tensors,
                                                       TensorView& view) const {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view.Strings());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(view, texts.size(), "text"));
  Rows rows;
  for (const std::string_view text : texts) {
    auto ids = tokenizer_->Encode(text, options_);
    if (!ids.ok()) {
      return std::move(ids).status().WithContext(StrCat("input '", view.name(), "'"));
    }
    rows.push_back(std::move(ids).value());
  }
  return rows;
}

Status Preprocessing::TruncatePrompts(const RequestTensors& tensors, Rows& rows) const {
  constexpr const char* kInput = "TRUNCATE_PROMPT_TOKENS";
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput(kInput));
  if (!view) return {};
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> counts, view->As<int32_t>());
  NEREID_RETURN_IF_ERROR(tensors.CheckOnePerRow(*view, counts.size(), "number"));
  for (size_t r = 0; r < rows.size(); ++r) {
    if (counts[r] < 1) {
      return InvalidArgError("input '", kInput, "' is ", counts[r], ", expected 1 or more");
    }
    const auto num_kept = std::min(rows[r].size(), static_cast<size_t>(counts[r]));
    rows[r].erase(rows[r].begin(), rows[r].end() - static_cast<ptrdiff_t>(num_kept));
  }
  return {};
}

}  // namespace nereid::tokenizer
