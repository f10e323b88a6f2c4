// Which algorithm was the fastest for a product, kept in a file of the user's cache folder, so that
// the next start does not time again. One file for a device and a version of the library; a line a
// product, appended when it is found: processes may share the file. Whatever can not be read or
// written is as if it were not there. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace nereid::gpu {

// What decides: sizes, types, whether it accumulates.
using AlgorithmKey = std::array<int32_t, 6>;
using Algorithm = std::array<uint64_t, 8>;  // the library's own, opaque

class AlgorithmCache {
 public:
  AlgorithmCache() = default;  // keeps nothing beyond its life
  // `folder` is made if need be; empty: as above. `name`: of the device and the library.
  AlgorithmCache(const std::string& folder, std::string_view name);

  // $NEREID_CACHE_DIR; else nereid in $XDG_CACHE_HOME or ~/.cache. Empty: no file, as is a variable
  // NEREID_CACHE_DIR that is set but empty.
  static std::string DefaultFolder();

  std::optional<Algorithm> Find(const AlgorithmKey& key) const;
  // What is there already is replaced in memory alone, so that the file can not grow without end.
  void Add(const AlgorithmKey& key, const Algorithm& algorithm);
  // For this process alone.
  void AddForNow(const AlgorithmKey& key, const Algorithm& algorithm);

 private:
  std::string path_;
  bool ends_amid_a_line_ = false;  // the file, as it was read or last written to
  std::map<AlgorithmKey, Algorithm> known_;
};

}  // namespace nereid::gpu
