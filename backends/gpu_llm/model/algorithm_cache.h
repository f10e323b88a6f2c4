// Remembers the fastest algorithm of each matrix product in a file of the user's cache folder, so
// that the next start does not measure again. There is one file for each device and library
// version, with one line for each product. Lines are appended, so processes may share the file.
// Errors of reading or writing are ignored. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace nereid::gpu {

// Sizes, types, and whether the product accumulates.
using AlgorithmKey = std::array<int32_t, 6>;
using Algorithm = std::array<uint64_t, 8>;  // cublasLtMatmulAlgo_t, opaque

class AlgorithmCache {
 public:
  AlgorithmCache() = default;  // in memory only
  // Creates `folder` if needed; empty: in memory only. `name` identifies the device and the
  // library.
  AlgorithmCache(const std::string& folder, std::string_view name);

  // $NEREID_CACHE_DIR; else `nereid` in $XDG_CACHE_HOME or ~/.cache. Empty, which means no file,
  // also if NEREID_CACHE_DIR is set but empty.
  static std::string DefaultFolder();

  std::optional<Algorithm> Find(const AlgorithmKey& key) const;
  // Replaces an existing entry in memory only, so that the file cannot grow without bound.
  void Add(const AlgorithmKey& key, const Algorithm& algorithm);
  // Adds an entry for this process only.
  void AddInMemory(const AlgorithmKey& key, const Algorithm& algorithm);

 private:
  std::string path_;
  bool ends_in_partial_line_ = false;  // the file, when it was read or last written
  std::map<AlgorithmKey, Algorithm> known_;
};

}  // namespace nereid::gpu
