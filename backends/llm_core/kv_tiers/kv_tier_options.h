// Where evicted blocks of the prefix cache are kept, as a model's parameters say. [load thread]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/kv_tiers/block_file.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::llm {

struct KvTierOptions {
  int64_t host_bytes = 0;  // kv_cache_host_memory_bytes; 0: none
  std::string file_path;   // kv_cache_disk_path; empty: none
  int64_t file_bytes = 0;  // kv_cache_disk_bytes
  std::function<void(const std::string&)> log = [](const std::string&) {};

  bool is_enabled() const { return host_bytes > 0 || !file_path.empty(); }
};

// 64 hexadecimal digits that differ wherever the same tokens have other keys and values: by
// config.json, by the weights (small tensors as a whole, large ones by samples), by the attention
// windows, and by `format`, in which the executor names its way of computing and storing them.
std::string CacheIdentity(const Checkpoint& checkpoint, const DecoderSpec& spec,
                          std::string_view format);

// Null, with a line in the log, if another process uses the file. Other errors name the parameter.
Result<std::unique_ptr<BlockFile>> OpenBlockFile(const KvTierOptions& options, int32_t block_size,
                                                 int64_t block_bytes, std::string identity);

}  // namespace nereid::llm
