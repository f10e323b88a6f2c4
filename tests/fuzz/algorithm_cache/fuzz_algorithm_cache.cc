// Fuzzes the file in which an earlier process stored the chosen GEMM algorithms. Arbitrary bytes
// must not crash the reader. An added entry is found at the next start, unless the file already has
// another entry for the same key.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "backends/gpu_llm/model/algorithm_cache.h"

namespace {

using nereid::gpu::Algorithm;
using nereid::gpu::AlgorithmCache;
using nereid::gpu::AlgorithmKey;

void Require(bool condition) {
  if (!condition) std::abort();
}

// A temporary folder that is removed when the process ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "algorithms-XXXXXX").string();
    Require(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TemporaryFolder folder;
  const std::string path = folder.path() + "/products-GPU";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  constexpr AlgorithmKey kKey = {4096, 14336, 64, 1, 0, 1};
  constexpr Algorithm kAlgorithm = {1, ~uint64_t{0}, 3, 4, 5, 6, 7, 8};
  Algorithm expected = kAlgorithm;
  {
    AlgorithmCache cache(folder.path(), "GPU");
    if (const auto stored = cache.Find(kKey)) expected = *stored;
    cache.Add(kKey, kAlgorithm);
    Require(cache.Find(kKey) == kAlgorithm);
  }
  Require(AlgorithmCache(folder.path(), "GPU").Find(kKey) == expected);
  return 0;
}
