// Detects AMX and requests the permission to use it from the kernel.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "backends/cpu_reference/ops/matmul_amx.h"

namespace nereid::cpu {
namespace {

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
constexpr long kTileData = 18;               // the state component of the tile registers

bool ProcessorHasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  const bool has_tiles =  // AMX_BF16, AMX_TILE, AMX_INT8
      (d >> 22 & 1u) != 0 && (d >> 24 & 1u) != 0 && (d >> 25 & 1u) != 0;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return has_tiles && (a >> 5 & 1u) != 0;  // AVX512_BF16
}

}  // namespace

bool AmxIsUsable() {
  static const bool usable =
      ProcessorHasAmx() && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return usable;
}

int64_t AmxScratchFloats(int64_t num_rows, int64_t columns) {
  // Two tiles of 256 floats for 32 columns of 16 rows. A block has at most 1 MiB or the rows of two
  // tiles. Includes space to start at a cache line. Grows with both sizes.
  const int64_t row_tile = (columns + 31) / 32 * 512;
  const int64_t all = (num_rows + 15) / 16 * row_tile;
  return std::min(all, std::max(2 * row_tile, int64_t{1} << 18)) + 16;
}

}  // namespace nereid::cpu
