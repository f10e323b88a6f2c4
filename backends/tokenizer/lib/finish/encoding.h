// A text's tokens with all that is known of them, and what tokenizer.json says about the length of
// such: truncation and padding, with the rules of the reference. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/text/aligned_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// All lists but `overflowing` are parallel.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;        // which of two texts, as the post-processor numbers them
  std::vector<TextSpan> offsets;        // in characters; of what was added to the text {0, 0}
  std::vector<uint8_t> attention_mask;  // 0: padding
  std::vector<uint8_t> special_mask;    // 1: put there by the post-processor or by padding
  std::vector<Encoding> overflowing;    // what truncation cut off, in pieces of the same length

  void Push(int32_t id, int32_t type_id, TextSpan offset, bool is_special);
};

enum class Side { kLeft, kRight };

struct Truncation {
  size_t max_length = 512;
  size_t stride = 0;         // that pieces which overflow have in common
  Side side = Side::kRight;  // where the text is cut
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };
  Strategy strategy = Strategy::kLongestFirst;  // which of two texts is cut

  // From the "truncation" member; nothing for null. `num_added`: special tokens around a text.
  static Result<std::optional<Truncation>> Read(const nlohmann::json& spec);
  // INVALID_ARG where the stride leaves no room beside `num_added` special tokens.
  Status Check(size_t num_added) const;
  // How many of `count` tokens are kept. INVALID_ARG where the strategy cannot be followed.
  Result<size_t> Limit(size_t count, size_t num_added) const;
  // The same of two texts.
  Result<std::array<size_t, 2>> PairLimits(std::array<size_t, 2> counts, size_t num_added) const;
};

struct Padding {
  std::optional<size_t> fixed;  // length; else that of the longest of a batch
  size_t multiple_of = 0;       // 0: any length
  Side side = Side::kRight;
  int32_t id = 0;
  int32_t type_id = 0;

  static Result<std::optional<Padding>> Read(const nlohmann::json& spec);
};

// What all pieces of one call may hold together: a stride close to the length, and a padded length
// far over the texts', make much out of little.
constexpr size_t kMaxTokensOfCall = 1u << 24;

// Where `count` tokens are cut into pieces of `max_length`, each of which then gets `num_added`
// more: the one that stays, then those that overflow. INVALID_ARG over kMaxTokensOfCall, or where
// the stride is no shorter than such a piece.
Result<std::vector<TextSpan>> CutRanges(size_t count, size_t max_length, size_t num_added,
                                        const Truncation& truncation);
// Pads all of a batch, and what overflows of them. INVALID_ARG, and nothing is padded, over
// kMaxTokensOfCall.
Status Pad(std::span<Encoding> batch, const Padding& padding);

}  // namespace nereid::tokenizer
