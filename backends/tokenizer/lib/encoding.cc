// See encoding.h.
#include "encoding.h"

#include <algorithm>

#include "json_fields.h"
#include "token_table.h"

namespace nereid::tokenizer {
namespace {

constexpr uint64_t kMaxLength = 1u << 20;  // of a padded text: each may be made so long

template <typename T>
std::vector<T> Cut(const std::vector<T>& from, size_t begin, size_t end) {
  return {from.begin() + static_cast<ptrdiff_t>(begin), from.begin() + static_cast<ptrdiff_t>(end)};
}

Result<Side> ReadSide(const Json& spec, std::string_view where) {
  if (Member(spec, "direction").is_null()) return Side::kRight;
  NEREID_ASSIGN_OR_RETURN(const std::string name, StringField(spec, "direction", where));
  if (name == "Right") return Side::kRight;
  if (name == "Left") return Side::kLeft;
  return InvalidArgError(where, ".direction: expected Left or Right, got '", name, "'");
}

void PadOne(Encoding& encoding, size_t length, const Padding& padding) {
  for (Encoding& part : encoding.overflowing) PadOne(part, length, padding);
  if (encoding.ids.size() >= length) return;
  const size_t count = length - encoding.ids.size();
  const auto insert = [&](auto& list, auto value) {
    list.insert(padding.side == Side::kLeft ? list.begin() : list.end(), count, value);
  };
  insert(encoding.ids, padding.id);
  insert(encoding.offsets, TextSpan{});
  insert(encoding.attention_mask, uint8_t{0});
  insert(encoding.special_mask, uint8_t{1});
}

}  // namespace

void Encoding::Push(int32_t id, TextSpan offset, bool is_special) {
  ids.push_back(id);
  offsets.push_back(offset);
  attention_mask.push_back(1);
  special_mask.push_back(is_special);
}

Encoding Encoding::Part(size_t begin, size_t end) const {
  return {Cut(ids, begin, end),
          Cut(offsets, begin, end),
          Cut(attention_mask, begin, end),
          Cut(special_mask, begin, end),
          {}};
}

Result<std::optional<Truncation>> Truncation::Read(const Json& spec) {
  constexpr std::string_view kWhere = "truncation";
  if (spec.is_null()) return std::optional<Truncation>();
  if (!spec.is_object()) {
    return InvalidArgError(kWhere, ": expected an object, got ", spec.type_name());
  }
  Truncation truncation;
  NEREID_ASSIGN_OR_RETURN(truncation.max_length, CountField(spec, "max_length", kWhere));
  NEREID_ASSIGN_OR_RETURN(truncation.stride, CountField(spec, "stride", kWhere));
  NEREID_ASSIGN_OR_RETURN(truncation.side, ReadSide(spec, kWhere));
  NEREID_ASSIGN_OR_RETURN(const std::string strategy, StringField(spec, "strategy", kWhere));
  truncation.second_only = strategy == "OnlySecond";
  if (!truncation.second_only && strategy != "LongestFirst" && strategy != "OnlyFirst") {
    return InvalidArgError(
        kWhere, ".strategy: expected LongestFirst, OnlyFirst or OnlySecond, got '", strategy, "'");
  }
  return std::optional<Truncation>(truncation);
}

Status Truncation::Check(size_t num_added) const {
  if (max_length == 0 && stride == 0) return {};
  if (max_length >= num_added && stride < max_length - num_added) return {};
  if (max_length == num_added && stride == 0) return {};
  return InvalidArgError("truncation: a stride of ", stride, " with a max_length of ", max_length,
                         ", of which ", num_added, " are special tokens");
}

Result<size_t> Truncation::Limit(size_t count, size_t num_added) const {
  const size_t room = max_length > num_added ? max_length - num_added : 0;
  if (room == 0 || count <= room) return std::min(count, room);
  if (second_only) {
    return InvalidArgError("truncation: strategy OnlySecond, but there is no second text: ", count,
                           " tokens, expected at most ", room);
  }
  return room;
}

Result<std::optional<Padding>> Padding::Read(const Json& spec) {
  constexpr std::string_view kWhere = "padding";
  if (spec.is_null()) return std::optional<Padding>();
  if (!spec.is_object()) {
    return InvalidArgError(kWhere, ": expected an object, got ", spec.type_name());
  }
  Padding padding;
  const Json& strategy = Member(spec, "strategy");
  if (strategy.is_object()) {
    NEREID_ASSIGN_OR_RETURN(padding.fixed, CountField(strategy, "Fixed", "padding.strategy"));
  } else if (strategy != "BatchLongest") {
    return InvalidArgError(kWhere, ".strategy: expected BatchLongest or {\"Fixed\": length}, got ",
                           strategy.dump());
  }
  if (!Member(spec, "pad_to_multiple_of").is_null()) {
    NEREID_ASSIGN_OR_RETURN(padding.multiple_of, CountField(spec, "pad_to_multiple_of", kWhere));
  }
  if (std::max<uint64_t>(padding.fixed.value_or(0), padding.multiple_of) > kMaxLength) {
    return InvalidArgError(kWhere, ": a length of ",
                           std::max<uint64_t>(padding.fixed.value_or(0), padding.multiple_of),
                           ", expected at most ", kMaxLength);
  }
  NEREID_ASSIGN_OR_RETURN(padding.side, ReadSide(spec, kWhere));
  NEREID_ASSIGN_OR_RETURN(const uint64_t id, CountField(spec, "pad_id", kWhere));
  if (id >= kMaxTokenId) {
    return InvalidArgError(kWhere, ".pad_id: expected an id below ", kMaxTokenId, ", got ", id);
  }
  padding.id = static_cast<int32_t>(id);
  return std::optional<Padding>(padding);
}

Result<std::vector<TextSpan>> CutRanges(size_t count, size_t max_length, size_t num_added,
                                        const Truncation& truncation) {
  const auto range = [](size_t begin, size_t end) {
    return TextSpan{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  };
  if (max_length >= count) return std::vector<TextSpan>{range(0, count)};
  if (max_length == 0) return std::vector<TextSpan>{range(0, 0), range(0, count)};
  std::vector<TextSpan> ranges;
  const size_t step = max_length - std::min(truncation.stride, max_length - 1);
  const size_t num_pieces = 1 + (count - max_length + step - 1) / step;
  if (num_pieces > kMaxTokensOfCall / (max_length + num_added)) {
    return InvalidArgError("truncation: ", count, " tokens make ", num_pieces, " pieces of ",
                           max_length + num_added, " with a stride of ", truncation.stride,
                           ", expected at most ", kMaxTokensOfCall, " tokens in all");
  }
  for (size_t done = 0; done < count; done += step) {
    if (truncation.side == Side::kRight) {
      const size_t end = std::min(done + max_length, count);
      ranges.push_back(range(done, end));
      if (end == count) break;
    } else {
      const size_t end = count - done;
      ranges.push_back(range(end - std::min(end, max_length), end));
      if (ranges.back().begin == 0) break;
    }
  }
  return ranges;
}

Status Pad(std::span<Encoding> batch, const Padding& padding) {
  size_t length = padding.fixed.value_or(0);
  if (!padding.fixed) {
    for (const Encoding& encoding : batch) length = std::max(length, encoding.ids.size());
  }
  if (padding.multiple_of > 0 && length % padding.multiple_of > 0) {
    length += padding.multiple_of - length % padding.multiple_of;
  }
  size_t num_pieces = batch.size();
  for (const Encoding& encoding : batch) num_pieces += encoding.overflowing.size();
  if (length > 0 && num_pieces > kMaxTokensOfCall / length) {
    return InvalidArgError("padding: ", num_pieces, " texts and pieces of texts of ", length,
                           " tokens, expected at most ", kMaxTokensOfCall, " tokens in all");
  }
  for (Encoding& encoding : batch) PadOne(encoding, length, padding);
  return {};
}

}  // namespace nereid::tokenizer
