// cuBLASLt is column-major: it computes out^T = weights x in^T, with the weights marked as
// transposed.
#include "backends/gpu_llm/model/cublas_gemm.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "backends/gpu_llm/model/algorithm_trial.h"

namespace nereid::gpu {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// Short products have more candidates, since a trial needs only a few steps. The LM head has a
// single call in a step.
constexpr int kShortRows = 1024;
constexpr int kMaxProposals = 16;  // for a row count
int NumProposals(const CublasGemmCall& call) {
  if (call.out_is_float) return kMaxProposals / 4;
  return call.num_rows <= kShortRows ? kMaxProposals : kMaxProposals / 2;
}
// Version of the selection method. Cached results of other versions are not read.
constexpr int kSelectionVersion = 4;

// The row count of the call's trial. The LM head reads so many weights that few rows hardly matter,
// and a trial takes many steps: sizes share it.
int TrialRowsOf(const CublasGemmCall& call) {
  constexpr int kHeadRows = 32, kFewRows = 256;
  const int rows = TrialRows(call.num_rows);
  if (!call.out_is_float || rows > kFewRows) return rows;
  return (rows + kHeadRows - 1) / kHeadRows * kHeadRows;
}

AlgorithmKey KeyOf(const CublasGemmCall& call) {
  return {call.num_outputs, call.depth,        TrialRowsOf(call),
          call.is_fp8(),    call.out_is_float, call.accumulates};
}

// The call with the row count of its trial, limited by row_capacity.
CublasGemmCall WithTrialRows(const CublasGemmCall& call) {
  CublasGemmCall wide = call;
  wide.num_rows =
      std::clamp(TrialRowsOf(call), call.num_rows, std::max(call.num_rows, call.row_capacity));
  return wide;
}

bool IsSame(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::bit_cast<Algorithm>(a) == std::bit_cast<Algorithm>(b);
}

}  // namespace

class CublasGemm::Layouts {
 public:
  explicit Layouts(const CublasGemmCall& call) {
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
    if (call.is_fp8()) {  // fast accumulation: about 14 bits in the tensor cores
      Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
      Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.weight_scales);
      Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.in_scales);
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

Result<CublasGemm> CublasGemm::Create() {
  CublasGemm gemm;
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = cublasLtCreate(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return InternalError("cuBLASLt can not be initialized: ", cublasLtGetStatusString(status));
  }
  gemm.handle_.reset(handle);
  NEREID_ASSIGN_OR_RETURN(gemm.workspace_,
                          DeviceMemory::Allocate(kWorkspaceBytes, "cuBLASLt's workspace"));
  int device = 0;
  cudaDeviceProp properties = {};
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device));
  gemm.algorithms_ = AlgorithmCache(
      AlgorithmCache::DefaultFolder(),
      StrCat(properties.name, "-cublaslt-", cublasLtGetVersion(), "-", kSelectionVersion));
  return gemm;
}

cublasStatus_t CublasGemm::TryRun(const CublasGemmCall& call, const Layouts& layouts,
                                  const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
  const float one = 1.0f, beta = call.accumulates ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), layouts.operation, &one, call.weights, layouts.weights,
                        call.in, layouts.in, &beta, call.out, layouts.out, call.out, layouts.out,
                        &algorithm, workspace_.data(), workspace_.size_bytes(), stream);
}

Result<std::vector<cublasLtMatmulAlgo_t>> CublasGemm::Propose(const CublasGemmCall& call,
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

Result<CublasGemm::AlgorithmSearch*> CublasGemm::SearchFor(const CublasGemmCall& call,
                                                           const AlgorithmKey& key) {
  if (const auto found = searches_.find(key); found != searches_.end()) return &found->second;
  std::vector<cublasLtMatmulAlgo_t> candidates;
  for (const int num_rows : ProposalRows(TrialRowsOf(call))) {
    CublasGemmCall other = call;
    other.num_rows = num_rows;
    const Layouts layouts(other);
    if (!layouts.is_ok())
      return InternalError("cuBLASLt: descriptors of a matrix product can not be created");
    const auto proposed = Propose(other, layouts, NumProposals(other));
    if (!proposed.ok()) continue;
    for (const cublasLtMatmulAlgo_t& algorithm : *proposed) {
      const auto is_it = [&](const cublasLtMatmulAlgo_t& one) { return IsSame(one, algorithm); };
      if (std::none_of(candidates.begin(), candidates.end(), is_it))
        candidates.push_back(algorithm);
    }
  }
  const auto count = static_cast<int>(candidates.size());
  AlgorithmSearch& search =
      searches_.insert({key, {std::move(candidates), AlgorithmTrial(count)}}).first->second;
  FinishIfOver(key, search);  // a single candidate needs no trial
  return &search;
}

void CublasGemm::FinishIfOver(const AlgorithmKey& key, const AlgorithmSearch& search) {
  const std::optional<int> fastest = search.trial.fastest();
  if (!search.trial.is_over() || !fastest) return;
  const auto algorithm = std::bit_cast<Algorithm>(search.candidates[*fastest]);
  if (search.has_all_rows) {
    algorithms_.Add(key, algorithm);
  } else {
    algorithms_.AddInMemory(key, algorithm);
  }
}

Status CublasGemm::CollectTimings() {
  while (true) {
    NEREID_ASSIGN_OR_RETURN(const auto ended, timer_.TryTake());
    if (!ended) return {};
    AlgorithmSearch& search = searches_.at(ended->tag.key);
    search.trial.Report(ended->tag.index, ended->seconds);
    FinishIfOver(ended->tag.key, search);
  }
}

Result<bool> CublasGemm::RunTrial(const CublasGemmCall& call, const AlgorithmKey& key,
                                  cudaStream_t stream) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaPeekAtLastError());  // reports errors of earlier launches,
                                                       // because CollectTimings() clears the error
  NEREID_RETURN_IF_ERROR(CollectTimings());
  if (algorithms_.Find(key)) return false;
  NEREID_ASSIGN_OR_RETURN(AlgorithmSearch* const search, SearchFor(call, key));
  if (search->trial.is_over()) return false;
  ++num_trials_;
  const CublasGemmCall wide = WithTrialRows(call);
  const Layouts layouts(wide);
  if (!layouts.is_ok())
    return InternalError("cuBLASLt: descriptors of a matrix product can not be created");
  while (const std::optional<int> i = search->trial.Next()) {
    NEREID_RETURN_IF_ERROR(timer_.Start(stream));
    if (TryRun(wide, layouts, search->candidates[*i], stream) == CUBLAS_STATUS_SUCCESS) {
      search->has_all_rows &= wide.num_rows == TrialRowsOf(call);
      NEREID_RETURN_IF_ERROR(timer_.Stop({key, *i}, stream));
      return true;
    }
    search->trial.Report(*i, std::nullopt);
  }
  const Layouts own(call);
  const std::optional<int> fastest = search->trial.fastest();
  return fastest && own.is_ok() &&
         TryRun(call, own, search->candidates[*fastest], stream) == CUBLAS_STATUS_SUCCESS;
}

bool CublasGemm::RunProposed(const CublasGemmCall& call, const Layouts& layouts,
                             cudaStream_t stream) {
  CublasGemmCall wide = call;
  wide.num_rows = SharedRows(call.num_rows);
  const AlgorithmKey key = KeyOf(wide);
  auto found = proposed_.find(key);
  if (found == proposed_.end()) {
    const Layouts of_wide(wide);
    if (!of_wide.is_ok()) return false;
    const auto proposed = Propose(wide, of_wide, 1);
    if (!proposed.ok()) return false;
    found = proposed_.insert({key, std::bit_cast<Algorithm>((*proposed)[0])}).first;
  }
  return TryRun(call, layouts, std::bit_cast<cublasLtMatmulAlgo_t>(found->second), stream) ==
         CUBLAS_STATUS_SUCCESS;
}

Status CublasGemm::Run(const CublasGemmCall& call, bool may_time, cudaStream_t stream) {
  if (call.num_rows == 0) return {};
  const AlgorithmKey key = KeyOf(call);
  static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
  if (may_time && !algorithms_.Find(key)) {
    NEREID_ASSIGN_OR_RETURN(const bool is_done, RunTrial(call, key, stream));
    if (is_done) return {};
  }
  const Layouts layouts(call);
  if (!layouts.is_ok())
    return InternalError("cuBLASLt: descriptors of a matrix product can not be created");
  if (const std::optional<Algorithm> known =
          algorithms_.Find(key)) {  // the algorithm may not support this size
    const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*known);
    if (TryRun(call, layouts, algorithm, stream) == CUBLAS_STATUS_SUCCESS) return {};
  }
  if (RunProposed(call, layouts, stream)) return {};
  NEREID_ASSIGN_OR_RETURN(const auto proposed, Propose(call, layouts, 1));
  const cublasStatus_t status = TryRun(call, layouts, proposed[0], stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return InternalError("cuBLASLt: product of ", call.num_rows, " x ", call.depth, " by ",
                       call.num_outputs, " failed: ", cublasLtGetStatusString(status));
}

}  // namespace nereid::gpu
