// Opens the file of a model, and what binds it to the model.
#include "backends/llm_core/kv_tiers/kv_tier_options.h"

#include <algorithm>
#include <utility>

#include "base/blake2b.h"

namespace nereid::llm {
namespace {

constexpr size_t kWholeTensor = size_t{1} << 20;
constexpr size_t kNumSamples = 64;
constexpr size_t kSampleBytes = 4096;

void HashTensor(const CheckpointTensor& tensor, Blake2b& hash) {
  const std::span<const uint8_t> bytes = tensor.bytes;
  if (bytes.size() <= kWholeTensor) return hash.Add(bytes.data(), bytes.size());
  const size_t step = (bytes.size() - kSampleBytes) / (kNumSamples - 1);
  for (size_t i = 0; i < kNumSamples; ++i) hash.Add(bytes.data() + i * step, kSampleBytes);
}

}  // namespace

std::string CacheIdentity(const Checkpoint& checkpoint, const DecoderSpec& spec,
                          std::string_view format) {
  Blake2b hash;
  // Lengths before texts, so that no two lists of texts give the same bytes.
  const auto add = [&](std::string_view text) {
    hash.Add(StrCat(text.size(), ":"));
    hash.Add(text);
  };
  add(format);
  add(checkpoint.config_json());
  for (const LayerSpec& layer : spec.layers) add(std::to_string(layer.sliding_window));
  add(std::to_string(spec.num_sink_tokens));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    add(name);
    add(ShapeText(tensor.shape));
    add(std::to_string(static_cast<int>(tensor.type)));
    HashTensor(tensor, hash);
  }
  return hash.HexDigest();
}

Result<std::unique_ptr<BlockFile>> OpenBlockFile(const KvTierOptions& options, int32_t block_size,
                                                 int64_t block_bytes, std::string identity) {
  Result<std::unique_ptr<BlockFile>> file = BlockFile::Open({.path = options.file_path,
                                                             .max_bytes = options.file_bytes,
                                                             .block_size = block_size,
                                                             .block_bytes = block_bytes,
                                                             .identity = std::move(identity),
                                                             .log = options.log});
  if (file.ok()) return file;
  if (file.status().code() != StatusCode::kUnavailable)
    return std::move(file).status().WithContext(
        "parameters 'kv_cache_disk_path' and 'kv_cache_disk_bytes'");
  options.log(StrCat("parameter 'kv_cache_disk_path': ", file.status().message(),
                     "; no KV blocks are kept on disk"));
  return std::unique_ptr<BlockFile>();
}

}  // namespace nereid::llm
