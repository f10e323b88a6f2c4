// See encoding.h.
#include "backends/tokenizer/lib/post_process/encoding.h"

#include <algorithm>

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {
namespace {

constexpr uint64_t kMaxLength =
    1u << 20;  // limit of a padded length, which applies to each text of a batch

Result<Side> ReadSide(const Json& spec, std::string_view where) {
  if (Member(spec, "direction").is_null()) return Side::kRight;
  NEREID_ASSIGN_OR_RETURN(const std::string name, StringField(spec, "direction", where));
  if (name == "Right") return Side::kRight;
  if (name == "Left") return Side::kLeft;
  return InvalidArgError(where, ".direction: expected Left or Right, got '", name, "'");
}

void PadOne(Encoding& encoding, size_t length, const Padding& padding) {
  for (Encoding& window : encoding.overflowing) PadOne(window, length, padding);
  if (encoding.ids.size() >= length) return;
  const size_t count = length - encoding.ids.size();
  const auto insert = [&](auto& list, auto value) {
    list.insert(padding.side == Side::kLeft ? list.begin() : list.end(), count, value);
  };
  insert(encoding.ids, padding.id);
  insert(encoding.type_ids, padding.type_id);
  insert(encoding.offsets, TextSpan{});
  insert(encoding.attention_mask, uint8_t{0});
  insert(encoding.special_mask, uint8_t{1});
}

}  // namespace

void Encoding::Push(int32_t id, int32_t type_id, TextSpan offset, bool is_special) {
  ids.push_back(id);
  type_ids.push_back(type_id);
  offsets.push_back(offset);
  attention_mask.push_back(1);
  special_mask.push_back(is_special);
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
  constexpr std::pair<const char*, Strategy> kStrategies[] = {
      {"LongestFirst", Strategy::kLongestFirst},
      {"OnlyFirst", Strategy::kOnlyFirst},
      {"OnlySecond", Strategy::kOnlySecond}};
  const auto known = std::find_if(std::begin(kStrategies), std::end(kStrategies),
                                  [&](const auto& entry) { return entry.first == strategy; });
  if (known == std::end(kStrategies)) {
    return InvalidArgError(
        kWhere, ".strategy: expected LongestFirst, OnlyFirst or OnlySecond, got '", strategy, "'");
  }
  truncation.strategy = known->second;
  return std::optional<Truncation>(truncation);
}

Status Truncation::Check(size_t num_added) const {
  if (max_length == 0 && stride == 0) return {};
  if (max_length >= num_added && stride < max_length - num_added) return {};
  if (max_length == num_added && stride == 0) return {};
  return InvalidArgError("truncation: a stride of ", stride, " with a max_length of ", max_length,
                         ", of which ", num_added, " are special tokens");
}

Result<size_t> Truncation::NumKept(size_t count, size_t num_added) const {
  const size_t available = max_length > num_added ? max_length - num_added : 0;
  if (available == 0 || count <= available) return std::min(count, available);
  if (strategy == Strategy::kOnlySecond) {
    return InvalidArgError("truncation: strategy OnlySecond, but there is no second text: ", count,
                           " tokens, expected at most ", available);
  }
  return available;
}

Result<std::array<size_t, 2>> Truncation::NumKeptOfPair(std::array<size_t, 2> counts,
                                                        size_t num_added) const {
  if (max_length < num_added) {
    return InvalidArgError("truncation: a max_length of ", max_length, ", but two texts have ",
                           num_added, " special tokens");
  }
  const size_t available = max_length - num_added, total = counts[0] + counts[1];
  if (available == 0) return std::array<size_t, 2>{};
  if (total <= available) return counts;
  if (strategy == Strategy::kLongestFirst) {
    // A shorter text of up to half of the length is kept whole; otherwise each text gets half.
    const bool first_is_longer = counts[0] > counts[1];
    const size_t shorter = std::min(counts[0], counts[1]);
    const size_t kept = shorter <= available / 2 ? shorter : available / 2;
    return first_is_longer ? std::array{available - kept, kept}
                           : std::array{kept, available - kept};
  }
  const size_t cut = strategy == Strategy::kOnlyFirst ? 0 : 1;
  if (counts[cut] <= total - available) {
    return InvalidArgError("truncation: the ", cut == 0 ? "first" : "second", " text has ",
                           counts[cut], " tokens, but ", total - available,
                           " of the two must go, for a max_length of ", max_length);
  }
  counts[cut] -= total - available;
  return counts;
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
    NEREID_ASSIGN_OR_RETURN(padding.fixed_length,
                            CountField(strategy, "Fixed", "padding.strategy"));
  } else if (strategy != "BatchLongest") {
    return InvalidArgError(kWhere, ".strategy: expected BatchLongest or {\"Fixed\": length}, got ",
                           ShowJson(strategy));
  }
  if (!Member(spec, "pad_to_multiple_of").is_null()) {
    NEREID_ASSIGN_OR_RETURN(padding.multiple_of, CountField(spec, "pad_to_multiple_of", kWhere));
  }
  if (std::max<uint64_t>(padding.fixed_length.value_or(0), padding.multiple_of) > kMaxLength) {
    return InvalidArgError(
        kWhere, ": a length of ",
        std::max<uint64_t>(padding.fixed_length.value_or(0), padding.multiple_of),
        ", expected at most ", kMaxLength);
  }
  NEREID_ASSIGN_OR_RETURN(padding.side, ReadSide(spec, kWhere));
  NEREID_ASSIGN_OR_RETURN(const uint64_t id, CountField(spec, "pad_id", kWhere));
  if (id >= kMaxTokenId) {
    return InvalidArgError(kWhere, ".pad_id: expected an id below ", kMaxTokenId, ", got ", id);
  }
  padding.id = static_cast<int32_t>(id);
  if (!Member(spec, "pad_type_id").is_null()) {
    NEREID_ASSIGN_OR_RETURN(const uint64_t type_id, CountField(spec, "pad_type_id", kWhere));
    if (type_id > INT32_MAX) {
      return InvalidArgError(kWhere, ".pad_type_id: expected at most ", INT32_MAX, ", got ",
                             type_id);
    }
    padding.type_id = static_cast<int32_t>(type_id);
  }
  return std::optional<Padding>(padding);
}

Result<std::vector<TextSpan>> TruncationWindows(size_t count, size_t max_length, size_t num_added,
                                                const Truncation& truncation) {
  const auto range = [](size_t begin, size_t end) {
    return TextSpan{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
  };
  if (max_length >= count) return std::vector<TextSpan>{range(0, count)};
  if (max_length == 0) return std::vector<TextSpan>{range(0, 0), range(0, count)};
  if (truncation.stride >= max_length) {
    return InvalidArgError("truncation: a stride of ", truncation.stride, " over windows of ",
                           max_length, " tokens");
  }
  std::vector<TextSpan> ranges;
  const size_t step = max_length - truncation.stride;
  const size_t num_windows = 1 + (count - max_length + step - 1) / step;
  if (num_windows > kMaxTokensPerCall / (max_length + num_added)) {
    return InvalidArgError("truncation: ", count, " tokens make ", num_windows, " windows of ",
                           max_length + num_added, " with a stride of ", truncation.stride,
                           ", expected at most ", kMaxTokensPerCall, " tokens in all");
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
  size_t length = padding.fixed_length.value_or(0);
  if (!padding.fixed_length) {
    for (const Encoding& encoding : batch) length = std::max(length, encoding.ids.size());
  }
  if (padding.multiple_of > 0 && length % padding.multiple_of > 0) {
    length += padding.multiple_of - length % padding.multiple_of;
  }
  size_t num_windows = batch.size();
  for (const Encoding& encoding : batch) num_windows += encoding.overflowing.size();
  if (length > 0 && num_windows > kMaxTokensPerCall / length) {
    return InvalidArgError("padding: ", num_windows, " encodings of ", length,
                           " tokens, expected at most ", kMaxTokensPerCall, " tokens in all");
  }
  for (Encoding& encoding : batch) PadOne(encoding, length, padding);
  return {};
}

}  // namespace nereid::tokenizer
