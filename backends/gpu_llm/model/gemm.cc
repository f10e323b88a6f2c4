// cuBLASLt is column-major: out^T = weights x in^T, with the weights given as transposed.
#include "gpu_llm/model/gemm.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "gpu_llm/model/algorithm_trial.h"

namespace nereid::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// What a trial may cost: short products are timed more often, and have more to choose from.
constexpr int kShortRows = 1024;
constexpr int kMaxProposals = 16;  // for a number of rows
constexpr int NumProposals(int num_rows) {
  return num_rows <= kShortRows ? kMaxProposals : kMaxProposals / 2;
}
constexpr int NumRepeats(int num_rows) {
  return num_rows <= kShortRows ? 2 : 1;
}
// Of the way in which algorithms are chosen: what another one has chosen is not read.
constexpr int kWay = 3;

bool IsSame(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::bit_cast<Algorithm>(a) == std::bit_cast<Algorithm>(b);
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
  gemm.algorithms_ =
      AlgorithmCache(AlgorithmCache::DefaultFolder(),
                     StrCat(properties.name, "-cublaslt-", cublasLtGetVersion(), "-", kWay));
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

Result<std::vector<cublasLtMatmulAlgo_t>> Gemm::Propose(const GemmCall& call,
                                                        const Layouts& layouts, int count) {
  cublasLtMatmulPreference_t preference = nullptr;
  (void)cublasLtMatmulPreferenceCreate(&preference);
  const size_t workspace_bytes = workspace_.size_bytes();
  (void)cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace_bytes, sizeof(workspace_bytes));
  cublasLtMatmulHeuristicResult_t found[kMaxProposals];
  int num_found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), layouts.operation, layouts.weights, layouts.in, layouts.out, layouts.out,
      preference, count, found, &num_found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || num_found == 0) {
    return InternalError("cuBLASLt has no algorithm for ", call.num_rows, " x ", call.depth, " by ",
                         call.num_outputs, ": ", cublasLtGetStatusString(status));
  }
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < num_found; ++i) algorithms.push_back(found[i].algo);
  return algorithms;
}

Result<double> Gemm::Time(const GemmCall& call, const Layouts& layouts,
                          const cublasLtMatmulAlgo_t& algorithm, void* out, cudaStream_t stream) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(start_.get(), stream));
  const int repeats = NumRepeats(call.num_rows);
  for (int repeat = 0; repeat < repeats; ++repeat)
    (void)Multiply(call, layouts, algorithm, out, stream);
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(end_.get(), stream));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(end_.get()));
  float ms = 0.0f;
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&ms, start_.get(), end_.get()));
  return 1e-3 * ms / repeats;
}

Status Gemm::Try(const GemmCall& given, const AlgorithmKey& key, cudaStream_t stream) {
  GemmCall call = given;
  call.num_rows = std::clamp(TrialRows(given.num_rows), given.num_rows,
                             std::max(given.num_rows, given.row_room));
  const Layouts layouts(call);
  std::vector<cublasLtMatmulAlgo_t> candidates;
  for (const int num_rows : ProposalRows(call.num_rows)) {
    GemmCall other = call;
    other.num_rows = num_rows;
    const Layouts of_other(other);
    if (!of_other.is_ok()) return InternalError("cuBLASLt: no descriptors for a trial");
    const auto proposed = Propose(other, of_other, NumProposals(num_rows));
    if (!proposed.ok()) continue;
    for (const cublasLtMatmulAlgo_t& algorithm : *proposed) {
      const auto is_it = [&](const cublasLtMatmulAlgo_t& one) { return IsSame(one, algorithm); };
      if (std::none_of(candidates.begin(), candidates.end(), is_it))
        candidates.push_back(algorithm);
    }
  }
  void* out = call.accumulates ? call.scratch : call.out;
  const auto time = [&](int i) -> Result<std::optional<double>> {
    if (Multiply(call, layouts, candidates[i], out, stream) != CUBLAS_STATUS_SUCCESS)
      return std::optional<double>();
    NEREID_ASSIGN_OR_RETURN(const double seconds, Time(call, layouts, candidates[i], out, stream));
    return std::optional<double>(seconds);
  };
  NEREID_ASSIGN_OR_RETURN(const std::optional<int> fastest,
                          FindFastest(static_cast<int>(candidates.size()), time));
  if (!fastest) return {};
  const auto algorithm = std::bit_cast<Algorithm>(candidates[*fastest]);
  if (call.num_rows == TrialRows(given.num_rows)) {
    algorithms_.Add(key, algorithm);
  } else {
    algorithms_.AddForNow(key, algorithm);
  }
  return {};
}

Status Gemm::Run(const GemmCall& call, bool may_time, cudaStream_t stream) {
  if (call.num_rows == 0) return {};
  const Layouts layouts(call);
  if (!layouts.is_ok()) return InternalError("cuBLASLt: descriptors of a product can not be made");
  const AlgorithmKey key = {call.num_outputs, call.depth,        TrialRows(call.num_rows),
                            call.is_fp8(),    call.out_is_float, call.accumulates};
  static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
  std::optional<Algorithm> known = algorithms_.Find(key);
  if (!known && may_time && tried_.insert(key).second) {
    NEREID_RETURN_IF_ERROR(Try(call, key, stream));
    known = algorithms_.Find(key);
  }
  if (known) {  // it may not fit this very size
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*known);
    if (Multiply(call, layouts, algorithm, call.out, stream) == CUBLAS_STATUS_SUCCESS) return {};
  }
  NEREID_ASSIGN_OR_RETURN(const auto proposed, Propose(call, layouts, 1));
  const cublasStatus_t status = Multiply(call, layouts, proposed[0], call.out, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return InternalError("cuBLASLt: product of ", call.num_rows, " x ", call.depth, " by ",
                       call.num_outputs, " failed: ", cublasLtGetStatusString(status));
}

}  // namespace nereid::gpu
