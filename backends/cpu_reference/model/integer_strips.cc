// Each pass processes a few strips at once, so that it reads whole cache lines of a stored row and
// writes each strip in order.
#include "backends/cpu_reference/model/integer_strips.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace nereid::cpu {
namespace {

typedef uint32_t Vec __attribute__((vector_size(16)));  // 4 words

constexpr int64_t kLineBytes = 64;  // of a strip: 8 columns of 4 bits, or 4 of 8 bits
// For layouts in which a row of words belongs to many outputs.
constexpr int64_t kStripsAtOnce = 16;
constexpr uint32_t kLow = 0x0F0F0F0Fu;  // the low half of each byte

inline Vec Load(const uint8_t* from) {
  Vec value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void Store(uint8_t* to, Vec value) {
  std::memcpy(to, &value, sizeof(value));
}

// Transposes a 4 x 4 matrix of words.
inline void TransposeWords(Vec (&v)[4]) {
  const auto m = [&](int i) { return reinterpret_cast<__m128i>(v[i]); };
  const __m128i low01 = _mm_unpacklo_epi32(m(0), m(1)), high01 = _mm_unpackhi_epi32(m(0), m(1));
  const __m128i low23 = _mm_unpacklo_epi32(m(2), m(3)), high23 = _mm_unpackhi_epi32(m(2), m(3));
  v[0] = reinterpret_cast<Vec>(_mm_unpacklo_epi64(low01, low23));
  v[1] = reinterpret_cast<Vec>(_mm_unpackhi_epi64(low01, low23));
  v[2] = reinterpret_cast<Vec>(_mm_unpacklo_epi64(high01, high23));
  v[3] = reinterpret_cast<Vec>(_mm_unpackhi_epi64(high01, high23));
}

// Transposes 4 x 4 bytes in each lane: byte i of word j becomes byte j of word i.
inline void TransposeBytes(Vec (&v)[4]) {
  constexpr uint32_t kEven = 0x00FF00FFu;
  const Vec even01 = (v[0] & kEven) | (v[1] & kEven) << 8;
  const Vec odd01 = (v[0] >> 8 & kEven) | (v[1] & ~kEven);
  const Vec even23 = (v[2] & kEven) | (v[3] & kEven) << 8;
  const Vec odd23 = (v[2] >> 8 & kEven) | (v[3] & ~kEven);
  v[0] = (even01 & 0xFFFFu) | even23 << 16;
  v[1] = (odd01 & 0xFFFFu) | odd23 << 16;
  v[2] = even01 >> 16 | (even23 & 0xFFFF0000u);
  v[3] = odd01 >> 16 | (odd23 & 0xFFFF0000u);
}

// Reorders columns 0 to 7 of a word, lowest half byte first, to the order of a strip: column c in
// the low half and column 4 + c in the high half of a byte.
inline Vec Fold(Vec word) {
  const auto spread = [](Vec four) {
    const Vec two = (four | four << 8) & 0x00FF00FFu;
    return (two | two << 4) & kLow;
  };
  return spread(word & 0xFFFFu) | spread(word >> 16) << 4;
}

struct PackedRows {
  const uint8_t* data;  // the first word of the first row
  int64_t stride;       // bytes between rows of words
};

// Packs eight columns of four words, each with eight outputs, into four half cache lines. `from`
// points to the first column.
inline void PackAwqSquare(const uint8_t* from, int64_t stride, uint8_t* const (&to)[4]) {
  Vec even[4], odd[4];  // half bytes 0 2 4 6 and 1 3 5 7: outputs 0 4 1 5 and 2 6 3 7
  for (int c = 0; c < 4; ++c) {
    const Vec low = Load(from + c * stride), high = Load(from + (4 + c) * stride);
    even[c] = (low & kLow) | (high & kLow) << 4;
    odd[c] = (low >> 4 & kLow) | (high & ~kLow);
  }
  TransposeBytes(even);
  TransposeBytes(odd);
  Vec first[4] = {even[0], even[2], odd[0], odd[2]};   // outputs 0 to 3
  Vec second[4] = {even[1], even[3], odd[1], odd[3]};  // outputs 4 to 7
  TransposeWords(first);
  TransposeWords(second);
  for (int word = 0; word < 4; ++word) {
    Store(to[word], first[word]);
    Store(to[word] + sizeof(Vec), second[word]);
  }
}

void PackAwq(const PackedRows& rows, const WeightMatrix& matrix, uint8_t* to) {
  const int64_t num_words = matrix.rows / 8, strip_bytes = matrix.strip_bytes();
  for (int64_t first = 0; first < num_words; first += 2 * kStripsAtOnce) {
    const int64_t end = std::min(first + 2 * kStripsAtOnce, num_words);
    for (int64_t line = 0; line < matrix.columns / 8; ++line) {
      const uint8_t* const from = rows.data + line * 8 * rows.stride;
      for (int64_t word = first; word < end; word += 4) {
        alignas(16) uint8_t copied[8 * sizeof(Vec)], dropped[32];
        const int64_t count = std::min<int64_t>(4, end - word);
        uint8_t* places[4];
        for (int64_t i = 0; i < 4; ++i) {
          uint8_t* const half = to + (word + i) / 2 * strip_bytes + line * kLineBytes;
          places[i] = i < count ? half + (word + i) % 2 * 32 : dropped;
        }
        if (count == 4) {
          PackAwqSquare(from + word * 4, rows.stride, places);
          continue;
        }
        for (int64_t c = 0; c < 8; ++c) {  // the last words of a row
          std::memset(copied + c * 16, 0, 16);
          std::memcpy(copied + c * 16, from + c * rows.stride + word * 4, count * 4);
        }
        PackAwqSquare(copied, 16, places);
      }
    }
  }
}

// `pack` returns four words of a line. The words of 16 outputs are consecutive. Padding outputs of
// the last strip are not written.
template <typename Pack>
void PackLines(const WeightMatrix& matrix, int64_t columns_a_line, uint8_t* to, const Pack& pack) {
  const int64_t strip_bytes = matrix.strip_bytes();
  for (int64_t first = 0; first < matrix.rows; first += kStripsAtOnce * kStripOutputs) {
    const int64_t end = std::min(first + kStripsAtOnce * kStripOutputs, matrix.rows);
    for (int64_t line = 0; line < matrix.columns / columns_a_line; ++line) {
      for (int64_t row = first; row < end; row += 4) {
        uint8_t* const strip = to + row / kStripOutputs * strip_bytes;
        Store(strip + line * kLineBytes + row % kStripOutputs * 4, pack(line, row));
      }
    }
  }
}

void PackGptq(const PackedRows& rows, const WeightMatrix& matrix, uint8_t* to) {
  if (matrix.type == WeightFormat::kInt8) {
    PackLines(matrix, 4, to, [&](int64_t line, int64_t row) {
      return Load(rows.data + line * rows.stride + row * 4);
    });
  } else {
    PackLines(matrix, 8, to, [&](int64_t line, int64_t row) {
      return Fold(Load(rows.data + line * rows.stride + row * 4));
    });
  }
}

// Act-order: copies the words of some strips to a buffer and gathers the columns in their order.
void PackGptqByOrder(const PackedRows& rows, const WeightMatrix& matrix,
                     std::span<const int32_t> column_order, uint8_t* to) {
  constexpr int64_t kOutputs = 4 * kStripOutputs;
  const int64_t num_words = matrix.columns / 8, strip_bytes = matrix.strip_bytes();
  std::vector<uint8_t> words(static_cast<size_t>(num_words * kOutputs * 4));
  for (int64_t first = 0; first < matrix.rows; first += kOutputs) {
    const int64_t count = std::min(kOutputs, matrix.rows - first);
    for (int64_t word = 0; word < num_words; ++word) {
      std::memcpy(words.data() + word * kOutputs * 4, rows.data + word * rows.stride + first * 4,
                  static_cast<size_t>(count * 4));
    }
    for (int64_t line = 0; line < num_words; ++line) {
      const int32_t* const order = column_order.data() + line * 8;
      for (int64_t output = 0; output < count; output += 4) {
        Vec made = {};
        for (int c = 0; c < 8; ++c) {
          const Vec word = Load(words.data() + (order[c] / 8 * kOutputs + output) * 4);
          made |= (word >> order[c] % 8 * 4 & 15u) << (c % 4 * 8 + c / 4 * 4);
        }
        uint8_t* const strip = to + (first + output) / kStripOutputs * strip_bytes;
        Store(strip + line * kLineBytes + output % kStripOutputs * 4, made);
      }
    }
  }
}

// For rows of words that are columns of one output: transposes 4 outputs x 4 words at a time.
template <typename Make>
void PackRows(const PackedRows& rows, const WeightMatrix& matrix, int64_t num_words, uint8_t* to,
              const Make& make) {
  for (int64_t row = 0; row < matrix.rows; row += 4) {
    const uint8_t* const from = rows.data + row * rows.stride;
    uint8_t* const strip =
        to + row / kStripOutputs * matrix.strip_bytes() + row % kStripOutputs * 4;
    for (int64_t word = 0; word < num_words; word += 4) {
      const int64_t count = std::min<int64_t>(4, num_words - word);
      Vec lines[4] = {};
      for (int64_t i = 0; i < 4; ++i) {
        std::memcpy(&lines[i], from + i * rows.stride + word * 4, static_cast<size_t>(count * 4));
      }
      TransposeWords(lines);
      for (int64_t i = 0; i < count; ++i) Store(strip + (word + i) * kLineBytes, make(lines[i]));
    }
  }
}

// For bytes that contain one column of two outputs, in two's complement: eight bytes become one
// word of each output.
void PackPairs(const PackedRows& rows, const WeightMatrix& matrix, uint8_t* to) {
  const uint64_t low = kLow;
  for (int64_t first = 0; first < matrix.rows; first += kStripOutputs) {
    uint8_t* const strip = to + first / kStripOutputs * matrix.strip_bytes();
    const int64_t num_pairs = std::min(kStripOutputs, matrix.rows - first) / 2;
    const uint8_t* const from = rows.data + first / 2 * rows.stride;
    for (int64_t line = 0; line < matrix.columns / 8; ++line) {
      for (int64_t pair = 0; pair < num_pairs; ++pair) {
        uint64_t columns;
        std::memcpy(&columns, from + pair * rows.stride + line * 8, sizeof(columns));
        const uint64_t four = columns & 0xFFFFFFFFu, next = columns >> 32;
        const uint64_t even = (four & low) | (next & low) << 4;
        const uint64_t odd = (four >> 4 & low) | (next & ~low);
        const uint64_t words = (even | odd << 32) ^ 0x8888888888888888u;
        std::memcpy(strip + line * kLineBytes + pair * 8, &words, sizeof(words));
      }
    }
  }
}

}  // namespace

bool PackStrips(const llm::ResolvedWeight& weight, std::span<const int32_t> column_order,
                const WeightMatrix& matrix, uint8_t* to) {
  const llm::WeightSource& source = weight.source;
  const bool is_int4 = matrix.type == WeightFormat::kInt4;
  if (source.num_groups != 1 || source.first_row % 8 != 0 || matrix.rows % 8 != 0) return false;
  if (matrix.columns % 8 != 0 || (!is_int4 && !column_order.empty())) return false;
  const uint8_t* const data = weight.tensor.bytes.data();
  const int64_t stored_rows = source.tensor_shape[0], first = source.first_row;
  const auto clear_last = [&] {
    const int64_t strip_bytes = matrix.strip_bytes();
    if (matrix.rows % kStripOutputs == 0) return;
    std::memset(to + (matrix.num_strips() - 1) * strip_bytes, 0, static_cast<size_t>(strip_bytes));
  };
  switch (weight.quant.method) {
    case llm::QuantMethod::kAwq:
      clear_last();
      PackAwq({data + first / 2, stored_rows / 2}, matrix, to);
      return true;
    case llm::QuantMethod::kGptq: {
      clear_last();
      const PackedRows rows = {data + first * 4, stored_rows * 4};
      if (column_order.empty()) PackGptq(rows, matrix, to);
      if (!column_order.empty()) PackGptqByOrder(rows, matrix, column_order, to);
      return true;
    }
    case llm::QuantMethod::kPacked: {
      if (!column_order.empty()) return false;
      clear_last();
      const int64_t num_words = matrix.columns / (is_int4 ? 8 : 4);
      const PackedRows rows = {data + first * num_words * 4, num_words * 4};
      if (is_int4) PackRows(rows, matrix, num_words, to, Fold);
      if (!is_int4) PackRows(rows, matrix, num_words, to, [](Vec word) { return word; });
      return true;
    }
    case llm::QuantMethod::kInt8:
      clear_last();
      PackRows({data + first * matrix.columns, matrix.columns}, matrix, matrix.columns / 4, to,
               [](Vec word) { return word ^ 0x80808080u; });
      return true;
    case llm::QuantMethod::kTrtAwq:
      clear_last();
      PackPairs({data + first / 2 * matrix.columns, matrix.columns}, matrix, to);
      return true;
    default:
      return false;
  }
}

}  // namespace nereid::cpu
