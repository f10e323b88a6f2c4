#include "host/frontend/openai/tensors/answer_piece.h"

#include <algorithm>
#include <cstring>

#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::openai {
namespace {

constexpr size_t kMaxToolDepth = 64;

const OutputView* Find(std::span<const OutputView> outputs, std::string_view name) {
  for (const OutputView& output : outputs) {
    if (output.name == name) return &output;
  }
  return nullptr;
}

std::string_view BytesOf(const OutputView& output) {
  return {static_cast<const char*>(output.base), output.size_bytes};
}

template <typename From, typename To>
std::vector<To> Elements(std::string_view bytes) {
  std::vector<To> values(bytes.size() / sizeof(From));
  for (size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = static_cast<To>(value);
  }
  return values;
}

// The numbers of an output; empty if it is absent.
template <typename To>
Result<std::vector<To>> Numbers(std::span<const OutputView> outputs, std::string_view name) {
  const OutputView* const output = Find(outputs, name);
  if (output == nullptr) return std::vector<To>();
  switch (output->datatype) {
    case TRITONSERVER_TYPE_INT32:
      return Elements<int32_t, To>(BytesOf(*output));
    case TRITONSERVER_TYPE_INT64:
      return Elements<int64_t, To>(BytesOf(*output));
    case TRITONSERVER_TYPE_FP32:
      return Elements<float, To>(BytesOf(*output));
    default:
      return InternalError("output '", name, "' of the model: expected numbers, got ",
                           http::DataTypeName(output->datatype));
  }
}

// The texts of an output; empty if it is absent.
Result<std::vector<std::string_view>> Texts(std::span<const OutputView> outputs,
                                            std::string_view name) {
  const OutputView* const output = Find(outputs, name);
  if (output == nullptr) return std::vector<std::string_view>();
  if (output->datatype != TRITONSERVER_TYPE_BYTES) {
    return InternalError("output '", name, "' of the model: expected BYTES, got ",
                         http::DataTypeName(output->datatype));
  }
  Result<std::vector<std::string_view>> texts = ReadTexts(BytesOf(*output));
  if (!texts.ok()) return std::move(texts).status().WithContext(StrCat("output '", name, "'"));
  return texts;
}

// Gives each piece its element. Fewer elements than pieces mean that all share the last one.
template <typename T, typename Assign>
void Distribute(const std::vector<T>& values, std::vector<AnswerPiece>& pieces,
                const Assign& assign) {
  if (values.empty()) return;
  for (size_t i = 0; i < pieces.size(); ++i) {
    assign(pieces[i], values[std::min(i, values.size() - 1)]);
  }
}

Status ReadCounts(std::span<const OutputView> outputs, std::vector<AnswerPiece>& pieces) {
  const std::pair<const char*, std::optional<int64_t> AnswerPiece::*> counts[] = {
      {"num_input_tokens", &AnswerPiece::num_input_tokens},
      {"num_output_tokens", &AnswerPiece::num_output_tokens},
      {"num_cached_tokens", &AnswerPiece::num_cached_tokens},
      {"num_reasoning_tokens", &AnswerPiece::num_reasoning_tokens}};
  for (const auto& [name, member] : counts) {
    NEREID_ASSIGN_OR_RETURN(std::vector<int64_t> values, Numbers<int64_t>(outputs, name));
    // One number of output tokens stands for all sequences, so that the others add nothing.
    if (member == &AnswerPiece::num_output_tokens && values.size() == 1) values.push_back(0);
    Distribute(values, pieces, [member = member](AnswerPiece& piece, int64_t value) {
      piece.*member = std::max<int64_t>(value, 0);
    });
  }
  return Status::Ok();
}

// Splits a tensor of equal parts, one for each piece.
template <typename T>
std::span<const T> PartOf(const std::vector<T>& all, size_t index, size_t count) {
  const size_t part = all.size() / count;
  return std::span<const T>(all).subspan(index * part, part);
}

Status ReadLogProbs(std::span<const OutputView> outputs, std::vector<AnswerPiece>& pieces) {
  NEREID_ASSIGN_OR_RETURN(const auto texts, Texts(outputs, "token_texts"));
  if (texts.empty()) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(const auto log_probs, Numbers<float>(outputs, "output_log_probs"));
  NEREID_ASSIGN_OR_RETURN(const auto top_texts, Texts(outputs, "top_token_texts"));
  NEREID_ASSIGN_OR_RETURN(const auto top_log_probs, Numbers<float>(outputs, "top_logprobs"));
  const size_t num_tokens = texts.size() / pieces.size();
  for (size_t p = 0; p < pieces.size(); ++p) {
    const auto own_texts = PartOf(texts, p, pieces.size());
    const auto own_probs = PartOf(log_probs, p, pieces.size());
    const auto own_top_texts = PartOf(top_texts, p, pieces.size());
    const auto own_top_probs = PartOf(top_log_probs, p, pieces.size());
    if (own_probs.size() != num_tokens || own_top_texts.size() != own_top_probs.size() ||
        (num_tokens != 0 && own_top_texts.size() % num_tokens != 0)) {
      return InternalError("outputs of the model: ", num_tokens, " token_texts, ", own_probs.size(),
                           " output_log_probs, ", own_top_texts.size(), " top_token_texts and ",
                           own_top_probs.size(), " top_logprobs");
    }
    const size_t num_top = num_tokens == 0 ? 0 : own_top_texts.size() / num_tokens;
    for (size_t t = 0; t < num_tokens; ++t) {
      TokenLogProb& token = pieces[p].log_probs.emplace_back();
      token.chosen = {std::string(own_texts[t]), own_probs[t]};
      for (size_t k = t * num_top; k < (t + 1) * num_top; ++k) {
        token.top.push_back({std::string(own_top_texts[k]), own_top_probs[k]});
      }
    }
  }
  return Status::Ok();
}

Status ReadIds(std::span<const OutputView> outputs, std::vector<AnswerPiece>& pieces) {
  NEREID_ASSIGN_OR_RETURN(const auto ids, Numbers<int64_t>(outputs, "output_token_ids"));
  NEREID_ASSIGN_OR_RETURN(const auto prompt_ids, Numbers<int64_t>(outputs, "prompt_ids"));
  for (size_t p = 0; p < pieces.size(); ++p) {
    const auto own = PartOf(ids, p, pieces.size());
    pieces[p].token_ids.assign(own.begin(), own.end());
    pieces[p].prompt_ids = prompt_ids;
  }
  return Status::Ok();
}

// The tokens of the prompt. The first one has no log probability.
Status ReadPrompt(std::span<const OutputView> outputs, AnswerPiece& piece) {
  NEREID_ASSIGN_OR_RETURN(const auto texts, Texts(outputs, "prompt_token_texts"));
  if (texts.empty()) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(const auto ids, Numbers<int64_t>(outputs, "prompt_ids"));
  NEREID_ASSIGN_OR_RETURN(const auto log_probs, Numbers<float>(outputs, "prompt_log_probs"));
  NEREID_ASSIGN_OR_RETURN(const auto top_ids, Numbers<int64_t>(outputs, "prompt_top_logprob_ids"));
  NEREID_ASSIGN_OR_RETURN(const auto top_probs, Numbers<float>(outputs, "prompt_top_logprobs"));
  NEREID_ASSIGN_OR_RETURN(const auto top_texts, Texts(outputs, "prompt_top_token_texts"));
  const size_t num_later = texts.size() - 1;
  const bool has_log_probs = !log_probs.empty() && log_probs.size() == num_later;
  const size_t num_top = num_later == 0 ? 0 : top_ids.size() / num_later;
  if (ids.size() != texts.size() || (!log_probs.empty() && !has_log_probs) ||
      top_ids.size() != top_probs.size() || top_ids.size() != top_texts.size() ||
      top_ids.size() != num_top * num_later) {
    return InternalError("outputs of the model: ", ids.size(), " prompt_ids, ", texts.size(),
                         " prompt_token_texts, ", log_probs.size(), " prompt_log_probs, ",
                         top_ids.size(), " prompt_top_logprob_ids, ", top_probs.size(),
                         " prompt_top_logprobs and ", top_texts.size(), " prompt_top_token_texts");
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    PromptToken& token = piece.prompt.emplace_back();
    token.id = ids[i];
    token.bytes = texts[i];
    if (i == 0 || !has_log_probs) continue;
    token.log_prob = log_probs[i - 1];
    for (size_t k = (i - 1) * num_top; k < i * num_top; ++k) {
      token.top.push_back({top_ids[k], std::string(top_texts[k]), top_probs[k]});
    }
  }
  return Status::Ok();
}

Status ReadFunction(http::JsonReader& reader, ToolCallPiece& call) {
  return reader.ReadObject([&](std::string_view name) -> Status {
    if (name == "name" && reader.Peek() == http::JsonKind::kString) {
      NEREID_ASSIGN_OR_RETURN(call.name, reader.ReadTransientString());
    } else if (name == "arguments" && reader.Peek() == http::JsonKind::kString) {
      NEREID_ASSIGN_OR_RETURN(call.arguments, reader.ReadTransientString());
    } else {
      return reader.SkipValue();
    }
    return Status::Ok();
  });
}

}  // namespace

Result<std::vector<std::string_view>> ReadTexts(std::string_view data) {
  std::vector<std::string_view> texts;
  while (!data.empty()) {
    uint32_t length = 0;
    if (data.size() < sizeof(length)) return InternalError("a BYTES tensor ends within a length");
    std::memcpy(&length, data.data(), sizeof(length));
    data.remove_prefix(sizeof(length));
    if (length > data.size()) {
      return InternalError("a BYTES tensor: expected an element of ", length, " bytes, got ",
                           data.size());
    }
    texts.push_back(data.substr(0, length));
    data.remove_prefix(length);
  }
  return texts;
}

Result<std::vector<ToolCallPiece>> ReadToolCalls(std::string_view json) {
  std::vector<ToolCallPiece> calls;
  if (json.empty()) return calls;
  http::JsonReader reader(json, kMaxToolDepth);
  Status status = reader.ReadArray([&]() -> Status {
    ToolCallPiece& call = calls.emplace_back();
    call.index = static_cast<int64_t>(calls.size()) - 1;
    return reader.ReadObject([&](std::string_view name) -> Status {
      if (name == "index") {
        NEREID_ASSIGN_OR_RETURN(call.index, reader.ReadInt64());
      } else if (name == "id" && reader.Peek() == http::JsonKind::kString) {
        NEREID_ASSIGN_OR_RETURN(call.id, reader.ReadTransientString());
      } else if (name == "function") {
        return ReadFunction(reader, call);
      } else {
        return reader.SkipValue();
      }
      return Status::Ok();
    });
  });
  if (status.ok()) status = reader.ExpectEnd();
  if (!status.ok()) return InternalError("output 'tool_calls' of the model: ", status.message());
  return calls;
}

Result<std::vector<AnswerPiece>> ReadAnswerPieces(std::span<const OutputView> outputs) {
  NEREID_ASSIGN_OR_RETURN(const auto texts, Texts(outputs, "text_output"));
  NEREID_ASSIGN_OR_RETURN(const auto sequences, Numbers<int64_t>(outputs, "sequence_index"));
  NEREID_ASSIGN_OR_RETURN(const auto reasoning, Texts(outputs, "reasoning"));
  NEREID_ASSIGN_OR_RETURN(const auto tool_calls, Texts(outputs, "tool_calls"));
  NEREID_ASSIGN_OR_RETURN(const auto finish_reasons, Texts(outputs, "finish_reason"));
  NEREID_ASSIGN_OR_RETURN(const auto stop_reasons, Texts(outputs, "stop_reason"));
  std::vector<AnswerPiece> pieces(std::max<size_t>(texts.size(), 1));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool is_named = pieces.size() == 1 && sequences.size() == 1 && sequences[0] >= 0;
    pieces[i].sequence = is_named ? static_cast<size_t>(sequences[0]) : i;
    if (i < texts.size()) pieces[i].text = texts[i];
    if (i < reasoning.size()) pieces[i].reasoning = reasoning[i];
    if (i < stop_reasons.size()) pieces[i].stop_reason = stop_reasons[i];
    if (i < tool_calls.size()) {
      NEREID_ASSIGN_OR_RETURN(pieces[i].tool_calls, ReadToolCalls(tool_calls[i]));
    }
  }
  Distribute(finish_reasons, pieces,
             [](AnswerPiece& piece, std::string_view reason) { piece.finish_reason = reason; });
  NEREID_RETURN_IF_ERROR(ReadCounts(outputs, pieces));
  NEREID_RETURN_IF_ERROR(ReadLogProbs(outputs, pieces));
  NEREID_RETURN_IF_ERROR(ReadIds(outputs, pieces));
  NEREID_RETURN_IF_ERROR(ReadPrompt(outputs, pieces[0]));
  NEREID_ASSIGN_OR_RETURN(const auto sums, Numbers<float>(outputs, "cum_log_probs"));
  Distribute(sums, pieces, [](AnswerPiece& piece, float sum) { piece.cum_log_prob = sum; });
  return pieces;
}

}  // namespace nereid::openai
