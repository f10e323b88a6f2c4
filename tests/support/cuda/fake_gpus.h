// Gives a test process two GPUs of fake_cuda.c, or those that the environment asks for: include it
// in one file of the test. What the host opens by name is then already here.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace nereid::test {

inline const bool kHasFakeGpus = [] {
  setenv("NEREID_FAKE_CUDA_DEVICES", "2", 0);
  return dlopen(NEREID_TEST_CUDA "/libcuda.so.1", RTLD_NOW) != nullptr &&
         dlopen(NEREID_TEST_CUDA "/libnvidia-ml.so.1", RTLD_NOW) != nullptr;
}();

// One of the functions that the fake driver has for tests.
template <typename Function>
Function* FakeCuda(const char* name) {
  return reinterpret_cast<Function*>(
      dlsym(dlopen(NEREID_TEST_CUDA "/libcuda.so.1", RTLD_NOW), name));
}

}  // namespace nereid::test
