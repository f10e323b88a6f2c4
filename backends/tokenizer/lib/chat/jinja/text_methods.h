// Functions over text that methods and filters share. Positions count characters unless a name says
// bytes. Marks stay with their bytes. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/text/marked_text.h"

namespace nereid::tokenizer::jinja {

enum class Side { kLeft, kRight, kBoth };

bool IsSpaceCode(char32_t c);  // Python's str.isspace
// Removes white space, or any of `chars`, from the ends of the text.
MarkedText Strip(const MarkedText& text, const std::optional<MarkedText>& chars, Side side);
// Splits at `separator`, or at runs of white space if there is none, at most `max_splits` times
// (negative: without limit), counted from the left or the right. `separator` must not be empty.
std::vector<MarkedText> Split(const MarkedText& text, const std::optional<MarkedText>& separator,
                              int64_t max_splits, bool is_from_right);
std::vector<MarkedText> SplitLines(const MarkedText& text, bool keep_ends);
// Replaces the first `count` occurrences (negative: all). The number of bytes of the result is at
// most `max_bytes`; nothing if it would be more.
std::optional<MarkedText> Replace(const MarkedText& text, const MarkedText& from,
                                  const MarkedText& to, int64_t count, size_t max_bytes);

enum class Case { kUpper, kLower, kTitle, kCapitalize, kSwap };
MarkedText ChangeCase(const MarkedText& text, Case mode);
// The filter `title`, which begins words after spaces, "-" and opening brackets.
MarkedText TitleWords(const MarkedText& text);

// Whether there is a cased character and all have this case.
bool IsLowerText(std::string_view text);
bool IsUpperText(std::string_view text);
bool IsTitleText(std::string_view text);
// Whether the text is not empty and all characters have the property.
bool IsAlphaText(std::string_view text);
bool IsDigitText(std::string_view text);
bool IsAlnumText(std::string_view text);
bool IsSpaceText(std::string_view text);

// Fills up to `width` characters. The left and right shares of kBoth are Python's.
MarkedText Justify(const MarkedText& text, size_t width, Side side, std::string_view fill);

}  // namespace nereid::tokenizer::jinja
