// Fuzzes the file of KV blocks. The first byte says what follows: 0: the file itself; else a list
// of five bytes each, slots that are written with any serial and parent (byte 0 even) or bytes of
// the file that change (odd). Arbitrary bytes must not crash. What is offered afterwards is a
// forest: each content comes after its parent, once, with whole lists of tokens.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unordered_set>

#include "backends/llm_core/kv_tiers/block_file.h"

namespace {

using nereid::llm::BlockFile;

constexpr int32_t kBlockSize = 4;
constexpr int64_t kBlockBytes = 64;
constexpr int64_t kMaxBytes = 4096 + 16 * 128;

const std::string& Path() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz_block_file_" + std::to_string(::getpid())))
          .string();
  return path;
}

std::unique_ptr<BlockFile> Open() {
  auto file = BlockFile::Open({.path = Path(),
                               .max_bytes = kMaxBytes,
                               .block_size = kBlockSize,
                               .block_bytes = kBlockBytes,
                               .identity = std::string(64, 'a'),
                               .log = [](const std::string&) {}});
  return file.ok() ? std::move(*file) : nullptr;
}

void WriteSlots(const uint8_t* data, size_t size) {
  const auto file = Open();
  if (file == nullptr) std::abort();
  for (; size >= 5; data += 5, size -= 5) {
    if (data[0] % 2 != 0) continue;
    const std::vector<std::byte> block(kBlockBytes, std::byte{data[4]});
    const uint64_t base = file->first_serial() - 1;
    // Also serials of other runs, and those that no run has yet.
    const uint64_t serial = data[2] < 250 ? base + data[2] : uint64_t{data[2]} << 56;
    const uint64_t parent = data[3] == 0 ? 0 : base + data[3];
    (void)file->Write(data[1] % file->num_slots(), {serial, parent, data[0], {1, 2, 3, data[4]}},
                      block);
  }
}

void ChangeBytes(const uint8_t* data, size_t size) {
  std::fstream file(Path(), std::ios::in | std::ios::out | std::ios::binary);
  for (; size >= 5; data += 5, size -= 5) {
    if (data[0] % 2 == 0) continue;
    file.seekp((data[1] | data[2] << 8) % kMaxBytes);
    file.put(static_cast<char>(data[3]));
  }
}

void Check(BlockFile& file) {
  std::unordered_set<uint64_t> known = {0};
  std::vector<std::byte> block(kBlockBytes);
  for (const BlockFile::Stored& stored : file.TakeStored()) {
    const auto& content = stored.content;
    if (stored.slot < 0 || stored.slot >= file.num_slots()) std::abort();
    if (content.token_ids.size() != kBlockSize) std::abort();
    if (content.serial >= file.first_serial() || !known.contains(content.parent)) std::abort();
    if (!known.insert(content.serial).second) std::abort();
    (void)file.Read(stored.slot, content.serial, block);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::filesystem::remove(Path());
  if (data[0] == 0) {
    std::ofstream(Path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  } else {
    WriteSlots(data + 1, size - 1);
    ChangeBytes(data + 1, size - 1);
  }
  if (const auto file = Open(); file != nullptr) Check(*file);
  std::filesystem::remove(Path());
  return 0;
}
