// The choice of a form for each device, and the functions that call it.
#include "backends/gpu_llm/kernels/forms.h"

#include <array>
#include <atomic>
#include <cstdlib>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/kernel_table.h"

namespace nereid::gpu {

// Defined by kernel_table.cu of each form that the build has.
namespace native {
const KernelTable& Kernels();
}
namespace portable {
const KernelTable& Kernels();
}

namespace {

constexpr size_t kMaxDevices = 64;
constexpr int kNotSelected = 0;  // else one more than the form's number
std::array<std::atomic<int>, kMaxDevices> forms = {};

const KernelTable& TableOf(KernelForm form) {
#if NEREID_HAS_NATIVE_KERNELS && NEREID_HAS_PORTABLE_KERNELS
  return form == KernelForm::kNative ? native::Kernels() : portable::Kernels();
#elif NEREID_HAS_NATIVE_KERNELS
  (void)form;
  return native::Kernels();
#else
  (void)form;
  return portable::Kernels();
#endif
}

// The table of the calling thread's device.
const KernelTable& CurrentKernels() {
  return TableOf(CurrentForm());
}

Result<GpuIdentity> IdentityOf(int32_t device) {
  GpuIdentity gpu;
  gpu.device = device;
  cudaDeviceProp properties = {};
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device));
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  return gpu;
}

}  // namespace

Result<KernelForm> SelectKernelForm(int32_t device) {
  int driver = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));
  NEREID_RETURN_IF_ERROR(CheckDriverVersion(driver, CUDART_VERSION));
  NEREID_ASSIGN_OR_RETURN(const KernelFormSetting setting,
                          ParseKernelFormSetting(std::getenv("NEREID_GPU_KERNELS")));
  NEREID_ASSIGN_OR_RETURN(const GpuIdentity gpu, IdentityOf(device));
  NEREID_ASSIGN_OR_RETURN(
      const KernelForm form,
      ChooseKernelForm(gpu, ParseArchitectures(NEREID_GPU_ARCHITECTURES), setting));
  if (static_cast<size_t>(device) < kMaxDevices)
    forms[static_cast<size_t>(device)].store(1 + static_cast<int>(form), std::memory_order_relaxed);
  return form;
}

KernelForm CurrentForm() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || static_cast<size_t>(device) >= kMaxDevices)
    device = 0;
  const int chosen = forms[static_cast<size_t>(device)].load(std::memory_order_relaxed);
  if (chosen != kNotSelected) return static_cast<KernelForm>(chosen - 1);
  const Result<KernelForm> form = SelectKernelForm(device);
  return form.ok() ? *form : KernelForm::kPortable;
}

bool HasOptimisedKernels() {
  return NEREID_HAS_OPTIMISED_KERNELS != 0;
}

std::string DescribeLoadedKernels(KernelForm form) {
  const LoadedKernelCode code = TableOf(form).LoadedCode();
  return DescribeKernels(form, code.ptx_version, code.binary_version) +
         (HasOptimisedKernels() ? "" : ", compiled without optimisation (slow)");
}

inline namespace NEREID_KERNEL_FORM {

void DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream) {
  return CurrentKernels().DecodeAttention(params, stream);
}
void DecodeAttentionQuantized(const DecodeAttentionParams& params, cudaStream_t stream) {
  return CurrentKernels().DecodeAttentionQuantized(params, stream);
}
void PrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream) {
  return CurrentKernels().PrefillAttention(params, stream);
}
void UnpackCache(const UnpackCacheParams& params, cudaStream_t stream) {
  return CurrentKernels().UnpackCache(params, stream);
}
void RankTokens(const RankTokensParams& params, cudaStream_t stream) {
  return CurrentKernels().RankTokens(params, stream);
}
void SiluResidual(const SiluResidualParams& params, cudaStream_t stream) {
  return CurrentKernels().SiluResidual(params, stream);
}
void MoveTokens(const MoveTokensParams& params, cudaStream_t stream) {
  return CurrentKernels().MoveTokens(params, stream);
}
void RopeWrite(const RopeWriteParams& params, cudaStream_t stream) {
  return CurrentKernels().RopeWrite(params, stream);
}
void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream) {
  return CurrentKernels().FillRopeTable(inv_freq, half_dim, max_positions, magnitude, cos_sin,
                                        stream);
}
int64_t MaxOneShotElements() {
  return CurrentKernels().MaxOneShotElements();
}
void AllReduce(const Peers& peers, int64_t count, AllReduceTarget target,
               AllReduceAlgorithm algorithm, cudaStream_t stream) {
  return CurrentKernels().AllReduce(peers, count, target, algorithm, stream);
}
void AllReduceNorm(const Peers& peers, const AllReduceNormParams& params,
                   AllReduceAlgorithm algorithm, cudaStream_t stream) {
  return CurrentKernels().AllReduceNorm(peers, params, algorithm, stream);
}
void GatherLogits(const Peers& peers, const float* own, int num_rows, int64_t first, int64_t width,
                  int64_t vocab_size, cudaStream_t stream) {
  return CurrentKernels().GatherLogits(peers, own, num_rows, first, width, vocab_size, stream);
}
void BroadcastTokens(const Peers& peers, int count, cudaStream_t stream) {
  return CurrentKernels().BroadcastTokens(peers, count, stream);
}
void DelayStream(int64_t nanoseconds, cudaStream_t stream) {
  return CurrentKernels().DelayStream(nanoseconds, stream);
}
void AdapterShrink(const AdapterGemmParams& params, cudaStream_t stream) {
  return CurrentKernels().AdapterShrink(params, stream);
}
void AdapterExpand(const AdapterGemmParams& params, cudaStream_t stream) {
  return CurrentKernels().AdapterExpand(params, stream);
}
cudaError_t ExpertGemm(const ExpertGemmParams& params, int num_processors, cudaStream_t stream) {
  return CurrentKernels().ExpertGemm(params, num_processors, stream);
}
void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  return CurrentKernels().StreamGemm(params, num_processors, stream);
}
cudaError_t SplitGemm(const SplitGemmParams& params, cudaStream_t stream) {
  return CurrentKernels().SplitGemm(params, stream);
}
void GroupedGemm(const GroupedGemmParams& params, cudaStream_t stream) {
  return CurrentKernels().GroupedGemm(params, stream);
}
void GatherColumns(const GatherColumnsParams& params, cudaStream_t stream) {
  return CurrentKernels().GatherColumns(params, stream);
}
void QuantizeRows(const QuantizeRowsParams& params, cudaStream_t stream) {
  return CurrentKernels().QuantizeRows(params, stream);
}
cudaError_t StreamExperts(const StreamExpertsParams& params, int num_processors,
                          cudaStream_t stream) {
  return CurrentKernels().StreamExperts(params, num_processors, stream);
}
cudaError_t TileExperts(const StreamExpertsParams& params, cudaStream_t stream) {
  return CurrentKernels().TileExperts(params, stream);
}
void Dequantize(const WeightMatrix& weights, __nv_bfloat16* out, cudaStream_t stream) {
  return CurrentKernels().Dequantize(weights, out, stream);
}
void RandomFill(__nv_bfloat16* out, int64_t count, float bound, uint64_t seed,
                cudaStream_t stream) {
  return CurrentKernels().RandomFill(out, count, bound, seed, stream);
}
void RandomFillMatrix(const WeightMatrix& matrix, uint64_t seed, cudaStream_t stream) {
  return CurrentKernels().RandomFillMatrix(matrix, seed, stream);
}
void ConstantFill(__nv_bfloat16* out, int64_t count, float value, cudaStream_t stream) {
  return CurrentKernels().ConstantFill(out, count, value, stream);
}
void SiluGate(const __nv_bfloat16* gate_up, __nv_bfloat16* out, int64_t num_rows, int inner_size,
              cudaStream_t stream) {
  return CurrentKernels().SiluGate(gate_up, out, num_rows, inner_size, stream);
}
void Activate(const ActivationParams& params, cudaStream_t stream) {
  return CurrentKernels().Activate(params, stream);
}
void Embed(const EmbeddingParams& params, cudaStream_t stream) {
  return CurrentKernels().Embed(params, stream);
}
void SortExpertRows(const ExpertRowsParams& params, cudaStream_t stream) {
  return CurrentKernels().SortExpertRows(params, stream);
}
void SortPairs(const SortPairsParams& params, cudaStream_t stream) {
  return CurrentKernels().SortPairs(params, stream);
}
cudaError_t Route(const RouteParams& params, const SortPairsParams& sort, int32_t* ticket,
                  cudaStream_t stream) {
  return CurrentKernels().Route(params, sort, ticket, stream);
}
void SelectExperts(const RouteParams& params, cudaStream_t stream) {
  return CurrentKernels().SelectExperts(params, stream);
}
void Combine(const CombineParams& params, cudaStream_t stream) {
  return CurrentKernels().Combine(params, stream);
}
void RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  return CurrentKernels().RmsNorm(params, stream);
}
void CopyRows(const CopyRowsParams& params, cudaStream_t stream) {
  return CurrentKernels().CopyRows(params, stream);
}
void HeadInput(const HeadInputParams& params, cudaStream_t stream) {
  return CurrentKernels().HeadInput(params, stream);
}
void LayerNorm(const LayerNormParams& params, cudaStream_t stream) {
  return CurrentKernels().LayerNorm(params, stream);
}
void ResidualAdd(const ResidualAddParams& params, cudaStream_t stream) {
  return CurrentKernels().ResidualAdd(params, stream);
}
void FinishLogits(const FinishLogitsParams& params, cudaStream_t stream) {
  return CurrentKernels().FinishLogits(params, stream);
}
void SpreadLogits(const SpreadLogitsParams& params, cudaStream_t stream) {
  return CurrentKernels().SpreadLogits(params, stream);
}
void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream) {
  return CurrentKernels().PickLogProbs(params, stream);
}
void ArgMax(const ArgMaxParams& params, cudaStream_t stream) {
  return CurrentKernels().ArgMax(params, stream);
}
void DrawTokens(const DrawParams& params, cudaStream_t stream) {
  return CurrentKernels().DrawTokens(params, stream);
}
void FindTopTokens(const TopTokensParams& params, cudaStream_t stream) {
  return CurrentKernels().FindTopTokens(params, stream);
}
bool FitsDecodeStep(const DecodeStepSizes& sizes) {
  return CurrentKernels().FitsDecodeStep(sizes);
}
void RunDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  return CurrentKernels().RunDecodeStep(params, num_processors, stream);
}
void CopyStepHiddenStates(const StepHiddenStatesParams& params, cudaStream_t stream) {
  return CurrentKernels().CopyStepHiddenStates(params, stream);
}
cudaError_t TryDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  return CurrentKernels().TryDecodeStep(params, num_processors, stream);
}

}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
