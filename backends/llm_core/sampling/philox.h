/// \file
/// Philox4x32-10: random bits as a pure function of key and counter. Source: Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3", 2011. It is the engine's only source of
/// randomness and is compiled for CPU and GPU. A draw depends on (seed, position, token) only,
/// never on the batch. [any thread]
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define NEREID_HOST_DEVICE __host__ __device__
#else
#define NEREID_HOST_DEVICE
#endif

namespace nereid::llm {

struct PhiloxBlock {
  uint32_t words[4];
};

NEREID_HOST_DEVICE constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0,
                                                    uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.words[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.words[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.words[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.words[3] ^ key1,
                static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// The random bits of four consecutive vocabulary entries, from 4 * block on, at one position of a
/// sequence.
NEREID_HOST_DEVICE constexpr PhiloxBlock TokenBits(uint64_t seed, uint32_t position,
                                                   uint32_t block) {
  return Philox4x32({{position, block, 0, 0}}, static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32));
}

/// The uniform random number in (0, 1) that random bits stand for. It is made of the upper 23, so
/// that it rounds neither to 0 nor to 1.
NEREID_HOST_DEVICE constexpr float UniformOf(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

/// Uniform random number in (0, 1) for one vocabulary entry at one position of a sequence.
NEREID_HOST_DEVICE constexpr float TokenUniform(uint64_t seed, uint32_t position, uint32_t token) {
  return UniformOf(TokenBits(seed, position, token / 4).words[token % 4]);
}

/// Uniform random number in (0, 1) that decides whether the draft at `position` is accepted.
/// Independent of the numbers of TokenUniform.
NEREID_HOST_DEVICE constexpr float DraftUniform(uint64_t seed, uint32_t position) {
  const PhiloxBlock block = Philox4x32({{position, 0, 1, 0}}, static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32));
  return UniformOf(block.words[0]);
}

/// The seed of the index-th sequence of a request. The first sequence uses the request's seed.
NEREID_HOST_DEVICE constexpr uint64_t SequenceSeed(uint64_t seed, uint32_t index) {
  if (index == 0) return seed;
  const PhiloxBlock block = Philox4x32({{index, 0, 0, 1}}, static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32));
  return uint64_t{block.words[1]} << 32 | block.words[0];
}

}  // namespace nereid::llm
