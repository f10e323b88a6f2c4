// The launch configurations of the portable kernels against the limits of GPUs that tests do not
// have. The limits are those of the CUDA C++ Programming Guide and the vendor's data sheets.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "backends/gpu_llm/kernels/gemm/tile_gemm_shape.h"
#include "backends/gpu_llm/kernels/portable/decode_step_shape.h"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"
#include "tests/support/source_path.h"

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
constexpr int kStaticBytes = 128;     // that kernels with a ring have beside it, at most

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
  std::ifstream in(SourcePath("bench/results/gpu_portable_code.csv"));
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

// All blocks of threads run at the same time, one on each multiprocessor, which must have room for
// it. A KV block fills adjacent slots of the ring: two with heads of 128, four with heads of 256.
TEST_P(PortableLaunchTest, TheFusedDecodeStepFits) {
  const int num_slots = portable_shape::NumStepSlots(GetParam().block_shared_kb * 1024);
  EXPECT_EQ(num_slots, GetParam().block_shared_kb < 163 ? 4 : 8);
  EXPECT_EQ(num_slots % 4, 0);
  EXPECT_LE(HeadBytes(128), 2 * portable_shape::kStepSlotBytes);
  EXPECT_LE(HeadBytes(256), 4 * portable_shape::kStepSlotBytes);
  ExpectFits(portable_shape::StepSharedBytes(num_slots), portable_shape::kStepThreads,
             portable_shape::kStepRegisters);
}

// Every kernel of the tile GEMM that is compiled.
std::vector<tile_gemm_shape::TileGemmCase> TileGemmCases() {
  std::vector<tile_gemm_shape::TileGemmCase> cases;
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt4}) {
    for (const int scales : {1, 4}) {
      if (scales > 1 && format != WeightFormat::kInt4) continue;
      for (const int rows : tile_gemm_shape::kTileGemmRows) {
        cases.push_back({format, rows, 1, scales});
        if (rows == 64) cases.push_back({format, rows, 2, scales});
      }
    }
  }
  return cases;
}

void ExpectWholeStages(const tile_gemm_shape::TileGemmShape& shape) {
  EXPECT_GE(shape.stages, 2);
  // A stage holds whole fragments, and its rows whole 16-byte chunks for each thread.
  EXPECT_EQ(shape.rows % (8 * shape.row_warps), 0);
  EXPECT_EQ(shape.stage_bytes() % 128, 0);
  EXPECT_EQ(shape.rows % shape.passes, 0);
}

// Experts and products of up to some hundreds of rows.
TEST_P(PortableLaunchTest, TilesFitForEveryFormatAndRowCount) {
  using tile_gemm_shape::TileGemmShape;
  const Gpu& gpu = GetParam();
  for (const tile_gemm_shape::TileGemmCase& of : TileGemmCases()) {
    SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(of.format) << ", " << of.rows
                                      << " rows, " << of.scales << " scales");
    const TileGemmShape shape = tile_gemm_shape::TileGemmShapeOf(of);
    ExpectFits(shape.shared_bytes(), shape.threads(), shape.registers());
    EXPECT_LE(shape.blocks * shape.threads() * shape.registers(), gpu.processor_registers);
    ExpectWholeStages(shape);
  }
  const TileGemmShape large = tile_gemm_shape::TileGemmShapeOf(
      {.format = WeightFormat::kBf16, .rows = 128, .ring_bytes = tile_gemm_shape::kLargeRingBytes});
  EXPECT_GT(large.stages, 2);
  ExpectWholeStages(large);
  if (gpu.block_shared_kb >= 163) ExpectFits(large.shared_bytes(), large.threads(), 255);
}

// No multiprocessor is left without work if the depth allows it, and the partial sums fit into what
// is allocated.
TEST_P(PortableLaunchTest, TheDepthIsSplitWhereTilesAreFew) {
  const Gpu& gpu = GetParam();
  const int64_t max_partials = tile_gemm_shape::MaxPartials(gpu.num_processors);
  const auto plan = [&](WeightFormat format, int rows, int outputs, int depth) {
    return tile_gemm_shape::PlanSplit(format, 1, rows, outputs, depth, gpu.num_processors, 8,
                                      max_partials);
  };
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt4}) {
    for (const int rows : {1, 9, 16, 30, 64, 65, 200, 256}) {
      SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(format) << ", " << rows);
      EXPECT_EQ(plan(format, rows, 1024, 128).num_slices, 1);
      EXPECT_GT(plan(format, rows, 512, 14336).num_slices, 1);
      EXPECT_EQ(plan(format, rows, 128256, 4096).num_slices, 1);
      for (const int outputs : {16, 1024, 4096, 6144, 28672}) {
        const tile_gemm_shape::SplitPlan split = plan(format, rows, outputs, 14336);
        const tile_gemm_shape::TileGemmShape shape = tile_gemm_shape::TileGemmShapeOf(split.of);
        const int64_t row_tiles = (rows + shape.rows - 1) / shape.rows;
        EXPECT_EQ(split.num_tiles, row_tiles * ((outputs + shape.outputs() - 1) / shape.outputs()));
        if (split.num_slices == 1) continue;
        EXPECT_LE(split.num_slices * split.num_tiles, gpu.num_processors);
        EXPECT_LE(split.num_slices * split.num_tiles * shape.rows * shape.outputs(), max_partials);
      }
    }
  }
}

// Many rows have tiles of 128 rows only where these occupy at least half of the multiprocessors.
TEST_P(PortableLaunchTest, ManyRowsHaveLargeTilesWhereTheseAreMany) {
  const int num_processors = GetParam().num_processors;
  const auto rows_of_tile = [&](int rows, int outputs) {
    return tile_gemm_shape::PlanSplit(WeightFormat::kInt4, 1, rows, outputs, 4096, num_processors,
                                      8, tile_gemm_shape::MaxPartials(num_processors))
        .of.rows;
  };
  EXPECT_EQ(rows_of_tile(200, 256 * num_processors), 128);
  EXPECT_EQ(rows_of_tile(128, 1024), 64);
  EXPECT_EQ(rows_of_tile(64, 256 * num_processors), 64);
}

INSTANTIATE_TEST_SUITE_P(Gpus, PortableLaunchTest, ::testing::ValuesIn(kGpus),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace nereid::gpu
