// The kernels of split_gemm.h, one for a format of weights and a number of rows a block.
#pragma once

#include <cuda.h>

#include "backends/gpu_llm/kernels/products/split_gemm.h"

namespace nereid::gpu::split_gemm {

constexpr int kOutputs = 256;        // of a block
constexpr int kStageRowBytes = 128;  // of a row of a stage: as long as wgmma's widest swizzle

// Boxes of so many rows as a block has, of kStageRowBytes; no weights if they are int4.
struct TensorMaps {
  CUtensorMap in, weights;
};

struct Instance {
  void (*kernel)(TensorMaps, SplitGemmParams);
  int rows, threads;
  int step_columns;  // of the depth: what parts are made of
  int shared_bytes;
  int step_cycles;  // about, of a processor
};

// The smallest that has so many rows, or the largest.
Instance Int4Instance(int num_rows);
Instance Fp8Instance(int num_rows);
Instance Bf16Instance(int num_rows);

}  // namespace nereid::gpu::split_gemm
