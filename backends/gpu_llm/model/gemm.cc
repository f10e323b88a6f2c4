// cuBLASLt is column-major: out^T = weights x in^T, with the weights given as transposed.
#include "gpu_llm/model/gemm.h"

#include <algorithm>
#include <bit>

namespace nereid::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 8;
constexpr int kRepeats = 3;

// Sizes that share an algorithm. Steps of prompts beside decoding sequences are of all sizes up to
// about a thousand rows, and what is fast for 500 may take half again as long as need be for 300.
int Bucket(int num_rows) {
  if (num_rows <= 256) return (num_rows + 7) / 8 * 8;
  if (num_rows <= 1024) return (num_rows + 127) / 128 * 128;
  int bucket = 2048;
  while (bucket < num_rows) bucket *= 2;
  return bucket;
}

}  // namespace

class Gemm::Layouts {
 public:
  explicit Layouts(const GemmCall& call) {
    const cudaDataType out_type = call.out_is_float ? CUDA_R_32F : CUDA_R_16BF;
    const cudaDataType in_type = call.is_fp8() ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    is_ok_ = cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
                 CUBLAS_STATUS_SUCCESS &&
             cublasLtMatrixLayoutCreate(&weights, in_type, call.depth, call.num_outputs,
                                        call.depth) == CUBLAS_STATUS_SUCCESS &&
             cublasLtMatrixLayoutCreate(&in, in_type, call.depth, call.num_rows, call.depth) ==
                 CUBLAS_STATUS_SUCCESS &&
             cublasLtMatrixLayoutCreate(&out, out_type, call.num_outputs, call.num_rows,
                                        call.num_outputs) == CUBLAS_STATUS_SUCCESS;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (call.is_fp8()) {  // sums have 14 bits or so in the tensor cores
      Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.weight_factors);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.in_factors);
    }
  }
  ~Layouts() {
    if (operation != nullptr) (void)cublasLtMatmulDescDestroy(operation);
    for (cublasLtMatrixLayout_t layout : {weights, in, out}) {
      if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
    }
  }
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;
  bool is_ok() const { return is_ok_; }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weights = nullptr, in = nullptr, out = nullptr;

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    is_ok_ = is_ok_ && cublasLtMatmulDescSetAttribute(operation, attribute, &value,
                                                      sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
  bool is_ok_ = false;
};

Result<Gemm> Gemm::Create() {
  Gemm gemm;
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return InternalError("cuBLASLt can not start: ", cublasLtGetStatusString(status));
  }
  gemm.handle_.reset(handle);
  NEREID_ASSIGN_OR_RETURN(gemm.workspace_,
                          DeviceMemory::Allocate(kWorkspaceBytes, "cuBLASLt's workspace"));
  NEREID_ASSIGN_OR_RETURN(gemm.start_, MakeEvent(cudaEventDefault));
  NEREID_ASSIGN_OR_RETURN(gemm.end_, MakeEvent(cudaEventDefault));
  int device = 0;
  cudaDeviceProp properties = {};
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device));
  gemm.algorithms_ = AlgorithmCache(AlgorithmCache::DefaultFolder(),
                                    StrCat(properties.name, "-cublaslt-", cublasLtGetVersion()));
  return gemm;
}

cublasStatus_t Gemm::Multiply(const GemmCall& call, const Layouts& layouts,
                              const cublasLtMatmulAlgo_t& algorithm, void* out,
                              cudaStream_t stream) {
  const float one = 1.0f, beta = call.accumulates ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), layouts.operation, &one, call.weights, layouts.weights,
                        call.in, layouts.in, &beta, out, layouts.out, out, layouts.out, &algorithm,
                        workspace_.data(), workspace_.size_bytes(), stream);
}

Result<cublasLtMatmulAlgo_t> Gemm::Choose(const GemmCall& call, const Layouts& layouts, bool times,
                                          cudaStream_t stream) {
  cublasLtMatmulPreference_t preference = nullptr;
  (void)cublasLtMatmulPreferenceCreate(&preference);
  const size_t workspace_bytes = workspace_.size_bytes();
  (void)cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes));
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), layouts.operation, layouts.weights, layouts.in, layouts.out, layouts.out,
      preference, times ? kCandidates : 1, found, &count);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    return InternalError("cuBLASLt has no algorithm for ", call.num_rows, " x ", call.depth, " by ",
                         call.num_outputs, ": ", cublasLtGetStatusString(status));
  }
  int best = 0;
  float best_ms = 0.0f;
  for (int i = 0; times && i < count; ++i) {
    void* out = call.accumulates ? call.scratch : call.out;
    if (Multiply(call, layouts, found[i].algo, out, stream) != CUBLAS_STATUS_SUCCESS) continue;
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(start_.get(), stream));
    for (int repeat = 0; repeat < kRepeats; ++repeat)
      (void)Multiply(call, layouts, found[i].algo, out, stream);
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(end_.get(), stream));
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end_.get()));
    float ms = 0.0f;
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, start_.get(), end_.get()));
    if (best_ms == 0.0f || ms < best_ms) best = i, best_ms = ms;
  }
  return found[best].algo;
}

Status Gemm::Run(const GemmCall& call, bool may_time, cudaStream_t stream) {
  if (call.num_rows == 0) return {};
  const Layouts layouts(call);
  if (!layouts.is_ok()) return InternalError("cuBLASLt: descriptors of a product can not be made");
  const AlgorithmKey key = {call.num_outputs, call.depth,        Bucket(call.num_rows),
                            call.is_fp8(),    call.out_is_float, call.accumulates};
  static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
  if (const auto known = algorithms_.Find(key)) {
    // An algorithm of the same bucket may not fit this very size.
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*known);
    if (Multiply(call, layouts, algorithm, call.out, stream) == CUBLAS_STATUS_SUCCESS) return {};
  }
  NEREID_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm,
                          Choose(call, layouts, may_time, stream));
  if (may_time) algorithms_.Add(key, std::bit_cast<Algorithm>(algorithm));
  const cublasStatus_t status = Multiply(call, layouts, algorithm, call.out, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return InternalError("cuBLASLt: product of ", call.num_rows, " x ", call.depth, " by ",
                       call.num_outputs, " failed: ", cublasLtGetStatusString(status));
}

}  // namespace nereid::gpu
