// The detailed result of encoding a text, and the truncation and padding settings of
// tokenizer.json. The rules are those of the reference library, PyPI tokenizers. [any thread]
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

// All vectors except `overflowing` have one element per token.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;        // which text of a pair, as the post-processor numbers them
  std::vector<TextSpan> offsets;        // in characters of the text; {0, 0} for added tokens
  std::vector<uint8_t> attention_mask;  // 0 for padding, else 1
  std::vector<uint8_t> special_mask;    // 1 for tokens of the post-processor and padding, else 0
  std::vector<Encoding> overflowing;    // the windows that truncation cut off

  void Push(int32_t id, int32_t type_id, TextSpan offset, bool is_special);
};

enum class Side { kLeft, kRight };

struct Truncation {
  size_t max_length = 512;
  size_t stride = 0;         // tokens that consecutive windows share
  Side side = Side::kRight;  // where tokens are removed
  enum class Strategy { kLongestFirst, kOnlyFirst, kOnlySecond };
  Strategy strategy = Strategy::kLongestFirst;  // which text of a pair is shortened

  // Parses the "truncation" member; returns nothing for null.
  static Result<std::optional<Truncation>> Read(const nlohmann::json& spec);
  // INVALID_ARG if the stride does not fit into max_length minus `num_added` special tokens.
  Status Check(size_t num_added) const;
  // Returns how many of `count` tokens are kept beside `num_added` special tokens. INVALID_ARG if
  // the strategy shortens a second text that does not exist.
  Result<size_t> NumKept(size_t count, size_t num_added) const;
  // The same for the two texts of a pair. INVALID_ARG if the strategy's text is too short to be
  // cut.
  Result<std::array<size_t, 2>> NumKeptOfPair(std::array<size_t, 2> counts, size_t num_added) const;
};

struct Padding {
  std::optional<size_t> fixed_length;  // nothing: the length of the longest text of the batch
  size_t multiple_of = 0;              // rounds the length up; 0: no rounding
  Side side = Side::kRight;
  int32_t id = 0;
  int32_t type_id = 0;

  static Result<std::optional<Padding>> Read(const nlohmann::json& spec);
};

// Limit for all tokens that one call returns, including overflowing windows and padding. A stride
// close to the window length, or a large padded length, could otherwise make a huge result from a
// small text.
constexpr size_t kMaxTokensPerCall = 1u << 24;

// Divides `count` tokens into windows of `max_length`, each of which later gets `num_added` special
// tokens. The first range is the window that is kept; the others overflow. INVALID_ARG if the total
// exceeds kMaxTokensPerCall or the stride is not smaller than the window.
Result<std::vector<TextSpan>> TruncationWindows(size_t count, size_t max_length, size_t num_added,
                                                const Truncation& truncation);
// Pads all encodings of a batch and their overflowing windows. INVALID_ARG, without padding any, if
// the total would exceed kMaxTokensPerCall.
Status Pad(std::span<Encoding> batch, const Padding& padding);

}  // namespace nereid::tokenizer
