// Gives a test process the two GPUs of fake_cuda.c, or as many as the environment requests. Include
// it in one file of the test. The libraries that the host opens by name are then already loaded.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace nereid {

inline const bool kHasFakeGpus = [] {
  setenv("NEREID_FAKE_CUDA_DEVICES", "2", 0);
  return dlopen(NEREID_TEST_CUDA "/libcuda.so.1", RTLD_NOW) != nullptr &&
         dlopen(NEREID_TEST_CUDA "/libnvidia-ml.so.1", RTLD_NOW) != nullptr;
}();

// Returns one of the fake driver's functions for tests.
template <typename Function>
Function* FakeCuda(const char* name) {
  return reinterpret_cast<Function*>(
      dlsym(dlopen(NEREID_TEST_CUDA "/libcuda.so.1", RTLD_NOW), name));
}

}  // namespace nereid
