// Checkpoint rows in the device's formats: hand-made words, and each quantized tiny checkpoint read
// in two ways.
#include "backends/gpu_llm/model/matrix_source.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "backends/llm_core/model/architecture.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/support/bf16.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using llm::CheckpointDataType;
using llm::WeightKind;
using nereid::FromBf16;

// A tensor and the bytes that it views.
struct OwnedTensor {
  std::vector<uint8_t> bytes;
  llm::CheckpointTensor View(CheckpointDataType type, std::vector<int64_t> shape) const {
    llm::CheckpointTensor view;
    view.type = type;
    view.shape = std::move(shape);
    view.bytes = bytes;
    return view;
  }
};
template <typename T>
OwnedTensor BytesOf(const std::vector<T>& values) {
  OwnedTensor owned;
  owned.bytes.resize(values.size() * sizeof(T));
  std::memcpy(owned.bytes.data(), values.data(), owned.bytes.size());
  return owned;
}

// Reads the layout that weight_format.h describes.
std::vector<float> UnpackInt4(const std::vector<uint8_t>& bytes, const MatrixLayout& layout,
                              int64_t rows, int64_t columns) {
  std::vector<float> values;
  const int per_block = layout.scales_per_block;
  const auto word_at = [&](int64_t byte) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + byte, 4);
    return word;
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = row / kInt4TileRows * Int4TileBytes(columns, per_block) +
                            c / kInt4BlockColumns * Int4BlockBytes(per_block);
      const Int4Location place = LocateInInt4Block(static_cast<int>(row % kInt4TileRows),
                                                   static_cast<int>(c % kInt4BlockColumns));
      const int64_t group = c % kInt4BlockColumns * per_block / kInt4BlockColumns;
      const uint32_t scale =
          word_at(block + kInt4ValueBytes + 4 * (group * kInt4TileRows + row % kInt4TileRows));
      const auto value = static_cast<int>(word_at(block + 4 * place.word) >> place.shift & 15u);
      values.push_back(static_cast<float>(value - static_cast<int>(scale & 31u)) *
                       std::bit_cast<float>(scale & ~31u));
    }
  }
  return values;
}

TEST(MatrixSourceTest, RowsOfSectionsAreConcatenatedOrInterleaved) {
  MatrixSource source;
  source.sections = {{nullptr, 16}, {nullptr, 8}};
  EXPECT_EQ(source.num_rows(), 24);
  EXPECT_EQ(source.Find(15).section, 0u);
  EXPECT_EQ(source.Find(17).section, 1u);
  EXPECT_EQ(source.Find(17).row, 1);
  source.sections = {{nullptr, 16}, {nullptr, 16}};
  source.interleave = 8;
  EXPECT_EQ(source.Find(9).section, 1u);
  EXPECT_EQ(source.Find(9).row, 1);
  EXPECT_EQ(source.Find(18).section, 0u);
  EXPECT_EQ(source.Find(18).row, 10);
}

TEST(MatrixSourceTest, PackedWordsAreDequantized) {
  // Eight rows of 32 columns; each word has the values 0 to 7, minus 8, times the row's scale.
  const OwnedTensor packed = BytesOf(std::vector<uint32_t>(8 * 4, 0x76543210u));
  std::vector<float> factors;
  for (int row = 0; row < 8; ++row) factors.push_back(static_cast<float>(1 << row));
  const OwnedTensor scales = BytesOf(factors);
  llm::ResolvedWeight weight;
  weight.tensor = packed.View(CheckpointDataType::kI32, {8, 4});
  weight.source = llm::Matrix("w", 8, 32);
  weight.quant.method = llm::QuantMethod::kPacked;
  weight.quant.num_bits = 4;
  weight.quant.group_size = 32;
  weight.quant.scales = scales.View(CheckpointDataType::kF32, {8, 1});
  MatrixSource source;
  source.sections = {{&weight, 8}};
  source.columns = 32;
  const MatrixLayout layout = std::move(*LayoutOf(source));
  ASSERT_EQ(layout.format, WeightFormat::kInt4);
  std::vector<uint8_t> tiles(layout.SizeBytes(8, 32), 0xff);
  ASSERT_TRUE(FillInt4Tiles(source, layout, 0, 1, tiles.data()).ok());
  const std::vector<float> values = UnpackInt4(tiles, layout, 8, 32);
  std::vector<uint16_t> rows(8 * 32);
  ASSERT_TRUE(FillBf16Rows(source, 0, 8, rows.data()).ok());
  for (int row = 0; row < 8; ++row) {
    for (int c = 0; c < 32; ++c) {
      const float expected = static_cast<float>((c % 8 - 8) * (1 << row));
      EXPECT_EQ(values[row * 32 + c], expected);
      EXPECT_EQ(FromBf16(rows[row * 32 + c]), expected);
    }
  }
}

TEST(MatrixSourceTest, Fp8RowsKeepTheirBytesAndScales) {
  std::vector<uint8_t> stored(4 * 16);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<uint8_t>(0x38 + i % 3);
  const OwnedTensor bytes{stored}, scales = BytesOf(std::vector<float>{1.0f, 2.0f, 4.0f, 8.0f});
  llm::ResolvedWeight weight;
  weight.tensor = bytes.View(CheckpointDataType::kF8E4M3, {4, 16});
  weight.source = llm::RowsOf("w", 4, 16, 2, 2);
  weight.quant.method = llm::QuantMethod::kFp8;
  weight.quant.scales = scales.View(CheckpointDataType::kF32, {4, 1});
  MatrixSource source;
  source.sections = {{&weight, 2}};
  source.columns = 16;
  ASSERT_EQ(LayoutOf(source)->format, WeightFormat::kFp8);
  EXPECT_FALSE(LayoutOf(source)->quantizes_input);
  weight.quant.quantizes_input = true;
  EXPECT_TRUE(LayoutOf(source)->quantizes_input);
  std::vector<uint8_t> rows(2 * 16);
  FillFp8Rows(source, 0, 2, rows.data());
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), stored.begin() + 32));
  EXPECT_EQ(Fp8RowScales(source), (std::vector<float>{4.0f, 8.0f}));
  // 0x38, 0x39 and 0x3a are 1, 1.125 and 1.25.
  std::vector<uint16_t> floats(2 * 16);
  ASSERT_TRUE(FillBf16Rows(source, 0, 2, floats.data()).ok());
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(FromBf16(floats[i]), (1.0f + 0.125f * ((i + 32) % 3)) * (i < 16 ? 4.0f : 8.0f));
}

TEST(MatrixSourceTest, Fp8InBlocksWithoutQuantizedInputsBecomesBf16) {
  const OwnedTensor bytes{std::vector<uint8_t>(256 * 256, 0x38)};  // 1
  const OwnedTensor scales = BytesOf(std::vector<float>{1.0f, 2.0f, 4.0f, 8.0f});
  llm::ResolvedWeight weight;
  weight.tensor = bytes.View(CheckpointDataType::kF8E4M3, {256, 256});
  weight.source = llm::Matrix("w", 256, 256);
  weight.quant.method = llm::QuantMethod::kFp8Blocks;
  weight.quant.scales = scales.View(CheckpointDataType::kF32, {2, 2});
  MatrixSource source;
  source.sections = {{&weight, 256}};
  source.columns = 256;
  ASSERT_EQ(LayoutOf(source)->format, WeightFormat::kBf16);
  std::vector<uint16_t> rows(256 * 256);
  ASSERT_TRUE(FillBf16Rows(source, 0, 256, rows.data()).ok());
  EXPECT_EQ(FromBf16(rows[127 * 256 + 127]), 1.0f);
  EXPECT_EQ(FromBf16(rows[127 * 256 + 128]), 2.0f);
  EXPECT_EQ(FromBf16(rows[128 * 256 + 127]), 4.0f);
  EXPECT_EQ(FromBf16(rows[255 * 256 + 255]), 8.0f);
}

// Gate and up of 256 rows, whose rows alternate in groups of 8.
TEST(MatrixSourceTest, Fp8InBlocksKeepsItsBytesAndScales) {
  const OwnedTensor bytes{std::vector<uint8_t>(256 * 384, 0x38)};
  const OwnedTensor gate_scales = BytesOf(std::vector<float>{1, 2, 3, 4, 5, 6}),
                    up_scales = BytesOf(std::vector<float>{7, 8, 9, 10, 11, 12.01f});
  llm::ResolvedWeight gate;
  gate.tensor = bytes.View(CheckpointDataType::kF8E4M3, {256, 384});
  gate.source = llm::Matrix("w", 256, 384);
  gate.quant.method = llm::QuantMethod::kFp8Blocks;
  gate.quant.quantizes_input = true;
  llm::ResolvedWeight up = gate;
  gate.quant.scales = gate_scales.View(CheckpointDataType::kF32, {2, 3});
  up.quant.scales = up_scales.View(CheckpointDataType::kF32, {2, 3});
  MatrixSource source;
  source.sections = {{&gate, 256}, {&up, 256}};
  source.columns = 384;
  source.interleave = 8;
  const MatrixLayout layout = std::move(*LayoutOf(source));
  EXPECT_EQ(layout.format, WeightFormat::kFp8);
  EXPECT_TRUE(layout.has_block_scales && layout.quantizes_input);
  EXPECT_EQ(Fp8RowScales(source), std::vector<float>(512, 1.0f));
  const auto word = [](float low, float high) {
    return uint32_t{nereid::Bf16Bits(low)} | uint32_t{nereid::Bf16Bits(high)} << 16;
  };
  std::vector<uint32_t> words = Fp8BlockScales(source);
  ASSERT_EQ(words.size(), size_t{32 * 3});
  EXPECT_EQ(words[0], word(1, 7));
  EXPECT_EQ(words[15], word(1, 7));
  EXPECT_EQ(words[16], word(4, 10));
  EXPECT_EQ(words[32], word(2, 8));
  EXPECT_EQ(words[95], word(6, 12));  // rounded to bf16
  // One of two GPUs' rows and columns.
  source.sections = {{&gate, 64, 128}, {&up, 64, 128}};
  source.columns = 256;
  source.first_column = 128;
  EXPECT_TRUE(LayoutOf(source)->has_block_scales);
  words = Fp8BlockScales(source);
  ASSERT_EQ(words.size(), size_t{8 * 2});
  EXPECT_EQ(words[0], word(5, 11));
  EXPECT_EQ(words[8], word(6, 12));
  const auto is_bf16 = [&] { return LayoutOf(source)->format == WeightFormat::kBf16; };
  source.first_column = 64;  // splits a block
  EXPECT_TRUE(is_bf16());
  source.first_column = 128;
  source.sections = {{&gate, 64, 124}, {&up, 64, 124}};  // rows that share a scale have two blocks
  EXPECT_TRUE(is_bf16());
  source.sections = {{&gate, 60}, {&up, 60}};  // tiles that are not whole
  EXPECT_TRUE(is_bf16());
  source.sections = {{&gate, 64}, {&up, 64}};
  EXPECT_FALSE(is_bf16());
  const OwnedTensor large_scales = BytesOf(std::vector<float>{1, 2, 3, 4, 5, 255.5f});
  up.quant.scales = large_scales.View(CheckpointDataType::kF32, {2, 3});
  EXPECT_TRUE(is_bf16());
  up.quant.scales = up_scales.View(CheckpointDataType::kF32, {2, 3});
  up.quant.method = llm::QuantMethod::kFp8;
  EXPECT_TRUE(is_bf16());
}

TEST(MatrixSourceTest, ASliceOfColumnsIsThatPartOfTheWhole) {
  // 20 rows of 256 columns of random words, in groups of 32 with one scale each.
  std::vector<uint32_t> words(20 * 32);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i * 2654435761u);
  std::vector<float> factors(20 * 8);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = static_cast<float>(i % 13 + 1);
  const OwnedTensor packed = BytesOf(words), scales = BytesOf(factors);
  llm::ResolvedWeight weight;
  weight.tensor = packed.View(CheckpointDataType::kI32, {20, 32});
  weight.source = llm::Matrix("w", 20, 256);
  weight.quant.method = llm::QuantMethod::kPacked;
  weight.quant.num_bits = 4;
  weight.quant.group_size = 32;
  weight.quant.scales = scales.View(CheckpointDataType::kF32, {20, 8});
  MatrixSource whole;
  whole.sections = {{&weight, 20}};
  whole.columns = 256;
  std::vector<uint16_t> all(20 * 256);
  ASSERT_TRUE(FillBf16Rows(whole, 0, 20, all.data()).ok());
  const auto check = [&](int64_t first_row, int64_t first, int64_t columns, WeightFormat format) {
    MatrixSource slice;
    slice.sections = {{&weight, 20 - first_row, first_row}};
    slice.columns = columns;
    slice.first_column = first;
    const int64_t rows = slice.num_rows();
    const MatrixLayout layout = std::move(*LayoutOf(slice));
    ASSERT_EQ(layout.format, format) << first << ", " << columns;
    std::vector<uint16_t> plain(rows * columns);
    ASSERT_TRUE(FillBf16Rows(slice, 0, rows, plain.data()).ok());
    std::vector<float> values;
    if (format == WeightFormat::kInt4) {
      std::vector<uint8_t> tiles(layout.SizeBytes(rows, columns), 0xff);
      ASSERT_TRUE(FillInt4Tiles(slice, layout, 0, (rows + 15) / 16, tiles.data()).ok());
      values = UnpackInt4(tiles, layout, rows, columns);
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const uint16_t expected = all[(first_row + i / columns) * 256 + first + i % columns];
      ASSERT_EQ(plain[i], expected) << first << ", " << i;
      if (!values.empty()) {
        ASSERT_EQ(values[i], FromBf16(expected)) << first << ", " << i;
      }
    }
  };
  check(0, 0, 128, WeightFormat::kInt4);
  check(3, 128, 128, WeightFormat::kInt4);
  check(4, 160, 96, WeightFormat::kInt4);
  check(0, 16, 32, WeightFormat::kBf16);  // splits groups
  check(0, 32, 40, WeightFormat::kBf16);
}

TEST(MatrixSourceTest, ASliceOfFp8HasItsBytes) {
  std::vector<uint8_t> stored(4 * 64);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<uint8_t>(i % 0x70);
  const OwnedTensor bytes{stored}, scales = BytesOf(std::vector<float>{1.0f, 2.0f, 4.0f, 8.0f});
  llm::ResolvedWeight weight;
  weight.tensor = bytes.View(CheckpointDataType::kF8E4M3, {4, 64});
  weight.source = llm::Matrix("w", 4, 64);
  weight.quant.method = llm::QuantMethod::kFp8;
  weight.quant.scales = scales.View(CheckpointDataType::kF32, {4, 1});
  MatrixSource source;
  source.sections = {{&weight, 2, 1}};
  source.columns = 32;
  source.first_column = 32;
  ASSERT_EQ(LayoutOf(source)->format, WeightFormat::kFp8);
  std::vector<uint8_t> rows(2 * 32);
  FillFp8Rows(source, 0, 2, rows.data());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(rows[i], stored[(1 + i / 32) * 64 + 32 + i % 32]);
  EXPECT_EQ(Fp8RowScales(source), (std::vector<float>{2.0f, 4.0f}));
}

class TinyInt4Test : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyInt4Test, TilesEqualTheRows) {
  const std::string directory = FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory));
  const llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint, true));
  const auto section = [&](WeightKind kind, int64_t rows) {
    return MatrixSection{&model.weights.at({0, kind, llm::kNoExpert}), rows};
  };
  MatrixSource source;
  source.sections = {section(WeightKind::kGate, model.spec.intermediate_size),
                     section(WeightKind::kUp, model.spec.intermediate_size)};
  source.columns = model.spec.hidden_size;
  source.interleave = 8;
  const MatrixLayout layout = std::move(*LayoutOf(source));
  ASSERT_EQ(layout.format, WeightFormat::kInt4);
  const int64_t rows = source.num_rows(), columns = source.columns;
  std::vector<uint8_t> tiles(layout.SizeBytes(rows, columns), 0xff);
  ASSERT_TRUE(FillInt4Tiles(source, layout, 0, rows / kInt4TileRows, tiles.data()).ok());
  const std::vector<float> unpacked = UnpackInt4(tiles, layout, rows, columns);
  std::vector<uint16_t> plain(rows * columns);
  ASSERT_TRUE(FillBf16Rows(source, 0, rows, plain.data()).ok());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t column = layout.column_order.empty() ? c : layout.column_order[c];
      const float expected = FromBf16(plain[row * columns + column]);
      ASSERT_NEAR(unpacked[row * columns + c], expected, 4e-3f * std::abs(expected) + 1e-20f)
          << row << ", " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyInt4Test,
                         ::testing::ValuesIn(cpu::testing::kQuantizedCheckpoints),
                         cpu::testing::kNameOfCheckpoint);

}  // namespace
}  // namespace nereid::gpu
