// The header is a Python dictionary with the keys descr, fortran_order and shape.
#include "backends/llm_core/lora/npy_array.h"

#include <charconv>
#include <optional>

namespace nereid::llm {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr size_t kMaxArrayDims = 32;

// Takes tokens from the beginning of the header.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  bool Take(char wanted) {
    SkipSpaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  // A text between quotes, without escapes.
  std::optional<std::string_view> TakeText() {
    SkipSpaces();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<int64_t> TakeSize() {
    SkipSpaces();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return number;
  }

 private:
  void SkipSpaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n')) {
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
};

bool ReadShape(HeaderReader& header, std::vector<int64_t>& shape) {
  if (!header.Take('(')) return false;
  while (!header.Take(')')) {
    const std::optional<int64_t> dim = header.TakeSize();
    if (!dim || shape.size() == kMaxArrayDims) return false;
    shape.push_back(*dim);
    if (header.Take(',')) continue;
    if (!header.Take(')')) return false;
    return true;
  }
  return true;
}

// Whether the text is a dictionary with all three keys.
bool ReadHeader(std::string_view text, NpyArray& array, bool& is_fortran) {
  HeaderReader header(text);
  if (!header.Take('{')) return false;
  bool has_type = false, has_order = false, has_shape = false;
  while (!header.Take('}')) {
    const std::optional<std::string_view> key = header.TakeText();
    if (!key || !header.Take(':')) return false;
    if (*key == "descr" && !has_type) {
      const std::optional<std::string_view> type = header.TakeText();
      if (!type) return false;
      array.type = *type;
      has_type = true;
    } else if (*key == "fortran_order" && !has_order) {
      is_fortran = header.TakeWord("True");
      if (!is_fortran && !header.TakeWord("False")) return false;
      has_order = true;
    } else if (*key == "shape" && !has_shape) {
      if (!ReadShape(header, array.shape)) return false;
      has_shape = true;
    } else {
      return false;
    }
    (void)header.Take(',');
  }
  return has_type && has_order && has_shape;
}

// 0 if it is no little-endian number.
int64_t ElementBytes(std::string_view type) {
  if (type.size() != 3 || (type[0] != '<' && type[0] != '|')) return 0;
  const int64_t size = type[2] - '0';
  const bool is_number = type[1] == 'f' || type[1] == 'i' || type[1] == 'u' || type[1] == 'V';
  return is_number && (size == 1 || size == 2 || size == 4 || size == 8) ? size : 0;
}

}  // namespace

Result<NpyArray> ParseNpy(std::string_view contents, std::string_view file) {
  const auto malformed = [&] { return InvalidArgError("'", file, "': not an array of NumPy"); };
  if (!contents.starts_with(kNpyMagic) || contents.size() < 12) return malformed();
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(uint8_t(contents[i])); };
  const uint64_t version = byte(6);
  if (version < 1 || version > 3) return malformed();
  const size_t first = version == 1 ? 10 : 12;
  uint64_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > contents.size() - first) return malformed();
  NpyArray array;
  bool is_fortran = false;
  if (!ReadHeader(contents.substr(first, length), array, is_fortran)) return malformed();
  const int64_t element = ElementBytes(array.type);
  if (element == 0 || is_fortran) {
    return UnsupportedError("'", file, "' has elements of type '", array.type.substr(0, 64), "'",
                            is_fortran ? " in Fortran order" : "",
                            ", expected little-endian numbers in C order");
  }
  array.bytes = contents.substr(first + length);
  const auto available = static_cast<int64_t>(array.bytes.size());
  array.num_elements = 1;
  for (const int64_t dim : array.shape) {
    if (dim > 0 && array.num_elements > available / dim) {
      array.num_elements = available + 1;  // more than there are, so that no product overflows
      continue;
    }
    array.num_elements *= dim;
  }
  if (array.num_elements > available || array.num_elements * element != available) {
    return InvalidArgError("'", file, "' has ", available, " bytes of numbers, expected those of ",
                           array.shape.size(), " dims with ", element, " bytes each");
  }
  return array;
}

}  // namespace nereid::llm
