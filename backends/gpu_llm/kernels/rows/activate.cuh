// The activation functions. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

template <llm::Activation kKind>
__device__ __forceinline__ float Apply(float x) {
  using llm::Activation;
  if constexpr (kKind == Activation::kSilu) return x / (1.0f + __expf(-x));
  if constexpr (kKind == Activation::kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  // 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  if constexpr (kKind == Activation::kGeluTanh)
    return x / (1.0f + __expf(-2.0f * 0.7978845608f * (x + 0.044715f * x * x * x)));
  if constexpr (kKind == Activation::kQuickGelu) return x / (1.0f + __expf(-1.702f * x));
  return fmaxf(x, 0.0f);
}

// An activation that is known at run time, the same for all threads of a launch. Products apply it
// to their sums in unrolled loops, so that its code must be short. All but two are x sigmoid(u)
// with u = x (a + b x^2).
class RuntimeActivation {
 public:
  __device__ __forceinline__ explicit RuntimeActivation(llm::Activation kind)
      : is_gelu_(kind == llm::Activation::kGelu), is_relu_(kind == llm::Activation::kRelu) {
    if (kind == llm::Activation::kGeluTanh) a_ = 2.0f * 0.7978845608f, b_ = 0.044715f * a_;
    if (kind == llm::Activation::kQuickGelu) a_ = 1.702f;
  }
  __device__ __forceinline__ float operator()(float x) const {
    if (is_gelu_) return Apply<llm::Activation::kGelu>(x);
    if (is_relu_) return Apply<llm::Activation::kRelu>(x);
    return __fdividef(x, 1.0f + __expf(-x * (a_ + b_ * x * x)));
  }

 private:
  bool is_gelu_, is_relu_;
  float a_ = 1.0f, b_ = 0.0f;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
