// Vectors of the instruction set for which a file is compiled. Every op is compiled in the
// namespaces baseline, avx2 and avx512 (NEREID_ISA), and op_table.cc selects one at run time.
// Neither this header nor an op may use inline functions of other headers: the linker keeps one
// copy of those, which may use instructions that this processor does not have.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifndef NEREID_ISA
#error "compile ops through the object libraries of cpu_reference/CMakeLists.txt"
#endif

namespace nereid::cpu::NEREID_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float VecF __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
typedef float Vec4 __attribute__((vector_size(16)));
typedef VecF VecFUnaligned __attribute__((aligned(1), may_alias));
typedef VecU VecUUnaligned __attribute__((aligned(1), may_alias));
typedef Vec4 Vec4Unaligned __attribute__((aligned(1), may_alias));

#define NEREID_INLINE static inline __attribute__((always_inline))
#define NEREID_INLINE_MEMBER inline __attribute__((always_inline))

NEREID_INLINE VecF Broadcast(float value) {
  return VecF{} + value;
}
NEREID_INLINE VecF Load(const float* from) {
  return *reinterpret_cast<const VecFUnaligned*>(from);
}
NEREID_INLINE void Store(float* to, VecF value) {
  *reinterpret_cast<VecFUnaligned*>(to) = value;
}

// Loads the first `count` < kLanes elements, followed by zeros.
NEREID_INLINE VecF LoadPart(const float* from, int count) {
  VecF value = {};
  for (int i = 0; i < count; ++i) value[i] = from[i];
  return value;
}
NEREID_INLINE void StorePart(float* to, VecF value, int count) {
  for (int i = 0; i < count; ++i) to[i] = value[i];
}

// a * b + c, rounded once if the instruction set has a fused multiply-add. The compiler must not
// fuse on its own (-ffp-contract=off): it does so differently in each template instance, and a
// result would depend on the tile that computed it.
NEREID_INLINE VecF MulAdd(VecF a, VecF b, VecF c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

NEREID_INLINE VecF Max(VecF a, VecF b) {
  return a > b ? a : b;
}
NEREID_INLINE VecF Min(VecF a, VecF b) {
  return a < b ? a : b;
}

// Sum of the lanes in a fixed tree: first i with i + kLanes / 2, then quarters and so on. Reduce
// and Reduce4 give the same bits.
NEREID_INLINE float Reduce(VecF v) {
#if defined(__AVX512F__)
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
#elif defined(__AVX2__)
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
#endif
  const Vec4 four = {v[0], v[1], v[2], v[3]};
  const Vec4 two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1);
  return two[0] + two[1];
}

NEREID_INLINE float ReduceMax(VecF v) {
  float max = v[0];
  for (int i = 1; i < kLanes; ++i) max = v[i] > max ? v[i] : max;
  return max;
}

// (Reduce(a), Reduce(b), Reduce(c), Reduce(d)), by transposing in between.
NEREID_INLINE Vec4 Reduce4(VecF a, VecF b, VecF c, VecF d) {
#if defined(__AVX512F__)
  const VecF ab =
      __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
      __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  const VecF cd =
      __builtin_shufflevector(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
      __builtin_shufflevector(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  VecF v =
      __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
      __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  return Vec4{v[0], v[4], v[8], v[12]};
#elif defined(__AVX2__)
  const VecF ab = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  const VecF cd = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11) +
                  __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15);
  // Lanes: a02+, a13+, c02+, c13+ | b..., d...
  const VecF v = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
                 __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  const VecF w = v + __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  return Vec4{w[0], w[4], w[2], w[6]};
#else
  const Vec4 ab =
      __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Vec4 cd =
      __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
#endif
}

// e^x within 2 ulp for x in [-87, 88]; clamped outside. Uses the polynomial of the Cephes library.
NEREID_INLINE VecF Exp(VecF x) {
  x = Min(Max(x, Broadcast(-87.0f)), Broadcast(88.0f));
  const VecF magic = Broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const VecF shifted = MulAdd(x, Broadcast(1.44269504f), magic);
  const VecF n = shifted - magic;
  VecF r = MulAdd(n, Broadcast(-0.693359375f), x);
  r = MulAdd(n, Broadcast(2.12194440e-4f), r);
  VecF p = Broadcast(1.9875691500e-4f);
  p = MulAdd(p, r, Broadcast(1.3981999507e-3f));
  p = MulAdd(p, r, Broadcast(8.3334519073e-3f));
  p = MulAdd(p, r, Broadcast(4.1665795894e-2f));
  p = MulAdd(p, r, Broadcast(1.6666665459e-1f));
  p = MulAdd(p, r, Broadcast(5.0000001201e-1f));
  p = MulAdd(p, r * r, r) + 1.0f;
  const VecI exponent = (reinterpret_cast<VecI>(shifted) - reinterpret_cast<VecI>(magic)) << 23;
  return reinterpret_cast<VecF>(reinterpret_cast<VecI>(p) + exponent);
}

// Loading of weights as vectors of floats. The types correspond to WeightFormat in weight_format.h.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};
struct Fp8 {
  uint8_t bits;
};
struct Fp8Blocks {  // with a scale for each 128 x 128 block
  uint8_t bits;
};

// Explicit intrinsics: GCC 12 generates five instructions for __builtin_convertvector.
NEREID_INLINE VecU Widen(const uint16_t* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<VecU>(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<VecU>(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  return reinterpret_cast<VecU>(
      _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#endif
}
NEREID_INLINE VecF LoadWeights(const float* from) {
  return Load(from);
}
NEREID_INLINE VecF LoadWeights(const Bf16* from) {
  return reinterpret_cast<VecF>(Widen(&from->bits) << 16);
}
// Exact for every finite value: a multiplication by 2^112 rebiases the exponent.
NEREID_INLINE VecF LoadWeights(const Fp16* from) {
  const VecU half = Widen(&from->bits);
  const VecF magnitude = reinterpret_cast<VecF>((half & 0x7fffu) << 13) * 0x1p112f;
  return reinterpret_cast<VecF>(reinterpret_cast<VecU>(magnitude) | ((half & 0x8000u) << 16));
}

// E4M3: a multiplication by 2^120 rebiases the exponent. The NaN is read as 480.
NEREID_INLINE VecF LoadWeights(const Fp8* from) {
#if defined(__AVX512F__)
  const VecU byte = reinterpret_cast<VecU>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  const VecU byte = reinterpret_cast<VecU>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  int32_t four;
  __builtin_memcpy(&four, from, 4);
  const VecU byte = reinterpret_cast<VecU>(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four)));
#endif
  const VecF magnitude = reinterpret_cast<VecF>((byte & 0x7fu) << 20) * 0x1p120f;
  return reinterpret_cast<VecF>(reinterpret_cast<VecU>(magnitude) | ((byte & 0x80u) << 24));
}

NEREID_INLINE VecF LoadWeights(const Fp8Blocks* from) {
  return LoadWeights(reinterpret_cast<const Fp8*>(from));
}

template <typename W>
NEREID_INLINE VecF LoadWeightsPart(const W* from, int count) {
  W padded[kLanes] = {};
  for (int i = 0; i < count; ++i) padded[i] = from[i];
  return LoadWeights(padded);
}

}  // namespace nereid::cpu::NEREID_ISA
