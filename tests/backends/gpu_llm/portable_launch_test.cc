// The launch configurations of the portable kernels against the limits of GPUs that tests do not
// have. The limits are those of the CUDA C++ Programming Guide and the vendor's data sheets.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/gpu_llm/kernels/portable/decode_step_shape.h"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"
#include "backends/gpu_llm/kernels/portable/tile_gemm_shape.h"

namespace nereid::gpu {
namespace {

struct Gpu {
  const char* name;
  int capability, num_processors;
  int block_shared_kb, processor_shared_kb;  // shared memory
  int processor_registers, processor_threads;
  int l2_mb, gb_a_second;
};
constexpr Gpu kGpus[] = {
    {"A100 40 GB", 80, 108, 163, 164, 65536, 2048, 40, 1555},
    {"A100 80 GB", 80, 108, 163, 164, 65536, 2048, 40, 2039},
    {"RTX 3090", 86, 82, 99, 100, 65536, 1536, 6, 936},
    {"L4", 89, 58, 99, 100, 65536, 1536, 48, 300},
    {"L40S", 89, 142, 99, 100, 65536, 1536, 96, 864},
    {"RTX 4090", 89, 128, 99, 100, 65536, 1536, 72, 1008},
    {"H100", 90, 132, 227, 228, 65536, 2048, 50, 3350},
    {"RTX 5090", 120, 170, 99, 100, 65536, 1536, 96, 1792},
    {"RTX PRO 6000", 120, 188, 99, 100, 65536, 1536, 128, 1792},
};
constexpr int kReservedBytes = 1024;  // of each block, by the driver
constexpr int kStaticBytes = 64;      // that kernels with a ring have beside it, at most

class PortableLaunchTest : public ::testing::TestWithParam<Gpu> {
 protected:
  static void ExpectFits(int shared_bytes, int threads, int max_registers) {
    const Gpu& gpu = GetParam();
    EXPECT_LE(shared_bytes + kStaticBytes, gpu.block_shared_kb * 1024);
    EXPECT_LE(shared_bytes + kStaticBytes + kReservedBytes, gpu.processor_shared_kb * 1024);
    EXPECT_LE(threads, 1024);
    EXPECT_LE(threads, gpu.processor_threads);
    EXPECT_LE(threads * max_registers, gpu.processor_registers);
  }
};

TEST_P(PortableLaunchTest, AttentionFitsForEveryHeadSizeAndCache) {
  for (const int head_dim : portable_shape::kHeadDims) {
    for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
      SCOPED_TRACE(head_dim);
      ExpectFits(portable_shape::DecodeSharedBytes(head_dim, format),
                 portable_shape::kDecodeThreads, 255);
      ExpectFits(portable_shape::PrefillSharedBytes(head_dim, format),
                 portable_shape::kPrefillThreads, 255);
    }
  }
}

TEST_P(PortableLaunchTest, UnpackedBlocksFit) {
  for (const int head_dim : portable_shape::kHeadDims) {
    ExpectFits(static_cast<int>(HeadBytes(head_dim)), portable_shape::kUnpackThreads, 255);
  }
}

// A row of bench/results/gpu_portable_code.csv: what the compiled kernels of a file need at most.
struct CompiledFile {
  std::string name;
  int architecture = 0, registers = 0, stack_bytes = 0, static_shared_bytes = 0, local_bytes = 0;
  int max_threads = 0, block_registers = 0;
};

std::vector<CompiledFile> ReadCompiledFiles() {
  std::ifstream in(NEREID_SOURCE_DIR "/bench/results/gpu_portable_code.csv");
  std::vector<CompiledFile> files;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#') || line.starts_with("file,")) continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream row(line);
    CompiledFile file;
    row >> file.name >> file.architecture >> file.registers >> file.stack_bytes >>
        file.static_shared_bytes >> file.local_bytes >> file.max_threads >> file.block_registers;
    EXPECT_FALSE(row.fail()) << line;
    files.push_back(file);
  }
  return files;
}

// A GPU runs the newest code of its major version that is not newer than itself.
TEST_P(PortableLaunchTest, TheCompiledCodeOfEveryFileFits) {
  const Gpu& gpu = GetParam();
  if (gpu.capability == 90) return;  // its code is the native form's
  int architecture = 0, num_files = 0;
  const std::vector<CompiledFile> files = ReadCompiledFiles();
  for (const CompiledFile& file : files) {
    const bool runs =
        file.architecture / 10 == gpu.capability / 10 && file.architecture <= gpu.capability;
    if (runs) architecture = std::max(architecture, file.architecture);
  }
  for (const CompiledFile& file : files) {
    if (file.architecture != architecture) continue;
    SCOPED_TRACE(file.name);
    ++num_files;
    EXPECT_LE(file.block_registers, gpu.processor_registers);
    EXPECT_LE(file.max_threads, std::min(1024, gpu.processor_threads));
    EXPECT_LE(file.static_shared_bytes, 48 * 1024);
    EXPECT_LE(file.registers, 255);
  }
  EXPECT_GT(num_files, 30);
}

TEST_P(PortableLaunchTest, ProductsFit) {
  ExpectFits(portable_shape::kGroupedGemmSharedBytes, portable_shape::kGroupedGemmThreads, 255);
  // The stream GEMM promises three blocks of 256 threads for up to 8 rows, two for up to 16.
  EXPECT_LE(3 * 256, GetParam().processor_threads);
  ExpectFits(0, 3 * 256, 80);
  ExpectFits(0, 2 * 256, 128);
}

// A block on each multiprocessor. A KV block of heads of 128 takes two adjacent slots.
TEST_P(PortableLaunchTest, TheFusedDecodeStepFits) {
  EXPECT_EQ(portable_shape::kStepSlots % 2, 0);
  EXPECT_LE(HeadBytes(128), 2 * portable_shape::kStepSlotBytes);
  ExpectFits(
      portable_shape::kStepStateBytes + portable_shape::kStepSlots * portable_shape::kStepSlotBytes,
      portable_shape::kStepThreads, portable_shape::kStepRegisters);
}

// Experts and products of up to some hundreds of rows.
TEST_P(PortableLaunchTest, TilesFitForEveryFormatAndRowCount) {
  using portable_shape::TileGemmShape;
  constexpr int kRowOffsetBytes = 8;  // of each row, beside the ring
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt4}) {
    for (const int rows : portable_shape::kTileGemmRows) {
      for (const int part_warps : {1, portable_shape::SplitPartWarps(rows)}) {
        SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(format) << ", " << rows);
        const TileGemmShape shape = portable_shape::TileGemmShapeOf(format, rows, part_warps);
        ExpectFits(shape.shared_bytes() + kRowOffsetBytes * rows, shape.threads(),
                   shape.registers());
        EXPECT_LE(portable_shape::kTileGemmBlocks * shape.threads() * shape.registers(),
                  GetParam().processor_registers);
        EXPECT_GE(shape.stages, 2);
        // A stage holds whole fragments, and its rows whole 16-byte chunks for each thread.
        EXPECT_EQ(rows % (8 * shape.row_warps), 0);
        EXPECT_EQ(shape.stage_bytes() % 128, 0);
        EXPECT_LE(rows, shape.threads());
      }
    }
  }
}

// No multiprocessor is left without work if the depth allows it, and the partial sums fit into what
// is allocated.
TEST_P(PortableLaunchTest, TheDepthIsSplitWhereTilesAreFew) {
  using portable_shape::TileGemmShape;
  const Gpu& gpu = GetParam();
  const auto split = [&](const TileGemmShape& shape, int64_t num_tiles, int depth) {
    return portable_shape::BestSplit(shape, num_tiles, depth, gpu.num_processors,
                                     gpu.processor_shared_kb * 1024, 8,
                                     portable_shape::MaxPartials(gpu.num_processors));
  };
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt4}) {
    for (const int rows : portable_shape::kTileGemmRows) {
      const TileGemmShape shape = portable_shape::TileGemmShapeOf(format, rows);
      EXPECT_EQ(split(shape, 1, shape.stage_columns()), 1);
      EXPECT_GT(split(shape, 8, 14336), 1);
      EXPECT_EQ(split(shape, 100000, 4096), 1);
      for (const int num_tiles : {1, 8, 32, 100, 300}) {
        const int slices = split(shape, num_tiles, 14336);
        if (slices == 1) continue;
        EXPECT_LE(int64_t{slices} * num_tiles * shape.rows * shape.outputs(),
                  portable_shape::MaxPartials(gpu.num_processors));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, PortableLaunchTest, ::testing::ValuesIn(kGpus),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace nereid::gpu
