// Copies the rows that the prompt refers to, each once for every extra id.
#include "backends/llm_core/adapter/prompt_embeddings_reader.h"

#include <cmath>
#include <vector>

#include "backends/llm_core/adapter/logits_format.h"

namespace nereid::llm {
namespace {

constexpr char kTable[] = "prompt_embedding_table";
constexpr char kTableSize[] = "prompt_vocab_size";
constexpr char kExtraIds[] = "prompt_table_extra_ids";
constexpr char kEmbeds[] = "prompt_embeds";

// The last two dims of a tensor, whose rows are embeddings.
struct EmbeddingTensor {
  int64_t num_rows = 0;
  int64_t width = 0;
};

bool IsAbsent(const TensorView* view) {
  return view == nullptr || view->size_bytes() == 0;
}

Result<EmbeddingTensor> CheckShape(const TensorView& view, const char* name, int64_t num_items,
                                   int32_t hidden_size) {
  const auto shape = view.shape();
  if (shape.size() < 2 || shape.back() != hidden_size) {
    return InvalidArgError("input '", name, "' has shape ", ToString(shape), ", expected [rows, ",
                           hidden_size, "], the hidden size of the model");
  }
  const EmbeddingTensor tensor = {shape[shape.size() - 2], shape.back()};
  const auto num_values = static_cast<int64_t>(view.size_bytes() / ByteSize(view.datatype()));
  if (num_values != num_items * tensor.num_rows * tensor.width) {
    return InvalidArgError("input '", name, "': shape ", ToString(shape), " does not divide into ",
                           num_items, " rows of a batch");
  }
  return tensor;
}

template <typename T>
Status AppendRow(std::span<const T> values, const char* name, int64_t row, int64_t width,
                 PromptEmbeddings& out) {
  const std::span<const T> from = values.subspan(static_cast<size_t>(row * width), width);
  for (size_t column = 0; column < from.size(); ++column) {
    const float value = ToFloat(from[column]);
    if (!std::isfinite(value)) {
      return InvalidArgError("input '", name, "' has ", value, " at [", row, ", ", column,
                             "], expected finite numbers");
    }
    out.rows.push_back(value);
  }
  return {};
}

// Appends the rows with these numbers.
template <typename T>
Status AppendRows(BatchInputs& inputs, const char* name, int64_t item,
                  std::span<const int64_t> rows, PromptEmbeddings& out) {
  NEREID_ASSIGN_OR_RETURN(const std::span<const T> values, inputs.Row<T>(name, item));
  out.rows.reserve(rows.size() * static_cast<size_t>(out.hidden_size));
  for (const int64_t row : rows) {
    NEREID_RETURN_IF_ERROR(AppendRow(values, name, row, out.hidden_size, out));
  }
  return {};
}

Status AppendRowsOfAnyType(BatchInputs& inputs, const char* name, int64_t item,
                           std::span<const int64_t> rows, PromptEmbeddings& out) {
  const DataType datatype = inputs.Find(name)->datatype();
  switch (datatype) {
    case DataType::kFp32:
      return AppendRows<float>(inputs, name, item, rows, out);
    case DataType::kFp16:
      return AppendRows<Fp16>(inputs, name, item, rows, out);
    case DataType::kBf16:
      return AppendRows<Bf16>(inputs, name, item, rows, out);
    default:
      return InvalidArgError("input '", name, "' is ", Name(datatype),
                             ", expected FP32, FP16 or BF16");
  }
}

// Returns how many rows of the table are used: prompt_vocab_size of them, if it is sent. The rows
// behind them are padding, with which a client makes tables of a batch equally long.
Result<int64_t> NumTableRows(BatchInputs& inputs, int64_t item, int64_t num_rows) {
  if (IsAbsent(inputs.Find(kTableSize))) return num_rows;
  int64_t size = 0;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(kTableSize, item, size));
  if (size >= 1 && size <= num_rows) return size;
  return InvalidArgError("input '", kTableSize, "' is ", size, ", expected 1 to ", num_rows,
                         ", the rows of '", kTable, "'");
}

// One id for each id of input_ids, or for each that counts of them. Those of tokens have no effect.
Result<std::span<const uint64_t>> ReadExtraIds(BatchInputs& inputs, int64_t item,
                                               size_t prompt_size) {
  NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> ids,
                          inputs.Row<uint64_t>(kExtraIds, item));
  if (!ids.empty() && ids.size() < prompt_size) {
    return InvalidArgError("input '", kExtraIds, "' has ", ids.size(), " values, expected ",
                           prompt_size, ", one for each of 'input_ids'");
  }
  return ids;
}

// Without a table there is nothing that these tensors could refer to. Zeros are clients' defaults.
Status CheckNoTable(BatchInputs& inputs, int64_t item) {
  int32_t size = 0;
  if (!IsAbsent(inputs.Find(kTableSize))) {
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(kTableSize, item, size));
  }
  if (size != 0) {
    return InvalidArgError("input '", kTableSize, "' is ", size, ": it needs '", kTable, "'");
  }
  NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> ids,
                          inputs.Row<uint64_t>(kExtraIds, item));
  for (const uint64_t id : ids) {
    if (id == 0) continue;
    return InvalidArgError("input '", kExtraIds, "' has ", id, ": it needs '", kTable, "'");
  }
  return {};
}

using Embeddings = Result<std::shared_ptr<PromptEmbeddings>>;

Embeddings ReadTable(BatchInputs& inputs, int64_t item, std::shared_ptr<PromptEmbeddings> out,
                     const TokenIds& prompt) {
  NEREID_ASSIGN_OR_RETURN(
      const EmbeddingTensor tensor,
      CheckShape(*inputs.Find(kTable), kTable, inputs.num_rows(), out->hidden_size));
  NEREID_ASSIGN_OR_RETURN(const int64_t num_rows, NumTableRows(inputs, item, tensor.num_rows));
  NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> extra_ids,
                          ReadExtraIds(inputs, item, prompt.size()));
  out->row_of.assign(prompt.size(), PromptEmbeddings::kNoRow);
  std::vector<int64_t> rows;  // of the table, in the order of out->rows
  // The rows of out->rows for a row of the table: one for each of its extra ids.
  std::map<std::pair<int64_t, uint64_t>, int32_t> known;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < out->vocab_size) continue;  // negative ids are refused with the other tokens
    const int64_t row = int64_t{prompt[i]} - out->vocab_size;
    if (row >= num_rows) {
      return InvalidArgError("input 'input_ids' has id ", prompt[i], " at index ", i,
                             ", expected 0 to ", out->vocab_size + num_rows - 1, ": ",
                             out->vocab_size, " tokens and the ", num_rows, " rows of '", kTable,
                             "'");
    }
    const uint64_t extra_id = extra_ids.empty() ? 0 : extra_ids[i];
    const auto [found, is_new] =
        known.emplace(std::pair(row, extra_id), static_cast<int32_t>(rows.size()));
    if (is_new) {
      rows.push_back(row);
      out->extra_ids.push_back(extra_id);
    }
    out->row_of[i] = found->second;
  }
  if (rows.empty()) return std::shared_ptr<PromptEmbeddings>();
  NEREID_RETURN_IF_ERROR(AppendRowsOfAnyType(inputs, kTable, item, rows, *out));
  return out;
}

Embeddings ReadEmbeds(BatchInputs& inputs, int64_t item, std::shared_ptr<PromptEmbeddings> out,
                      TokenIds& prompt) {
  NEREID_ASSIGN_OR_RETURN(
      const EmbeddingTensor tensor,
      CheckShape(*inputs.Find(kEmbeds), kEmbeds, inputs.num_rows(), out->hidden_size));
  out->input_name = kEmbeds;
  out->is_table = false;
  std::vector<int64_t> rows;
  TokenIds ids;
  for (int64_t row = 0; row < tensor.num_rows; ++row) {
    rows.push_back(row);
    out->row_of.push_back(static_cast<int32_t>(row));
    ids.push_back(static_cast<int32_t>(out->vocab_size + row));
  }
  out->extra_ids.assign(rows.size(), 0);
  NEREID_RETURN_IF_ERROR(AppendRowsOfAnyType(inputs, kEmbeds, item, rows, *out));
  out->row_of.resize(rows.size() + prompt.size(), PromptEmbeddings::kNoRow);
  prompt.insert(prompt.begin(), ids.begin(), ids.end());
  return out;
}

}  // namespace

Result<std::shared_ptr<PromptEmbeddings>> ReadPromptEmbeddings(BatchInputs& inputs, int64_t row,
                                                               int32_t vocab_size,
                                                               int32_t hidden_size,
                                                               TokenIds& prompt) {
  const bool has_table = !IsAbsent(inputs.Find(kTable));
  const bool has_embeds = !IsAbsent(inputs.Find(kEmbeds));
  if (!has_table) NEREID_RETURN_IF_ERROR(CheckNoTable(inputs, row));
  if (!has_table && !has_embeds) return std::shared_ptr<PromptEmbeddings>();
  if (has_table && has_embeds) {
    return InvalidArgError("the request has '", kTable, "' and '", kEmbeds,
                           "', expected one of them");
  }
  auto embeddings = std::make_shared<PromptEmbeddings>();
  embeddings->input_name = kTable;
  embeddings->vocab_size = vocab_size;
  embeddings->hidden_size = hidden_size;
  if (has_table) return ReadTable(inputs, row, std::move(embeddings), prompt);
  return ReadEmbeds(inputs, row, std::move(embeddings), prompt);
}

}  // namespace nereid::llm
