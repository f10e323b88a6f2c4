// Reads and writes the header of the file and the blocks in its slots, with their checksums.
#include "backends/llm_core/kv_tiers/block_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

namespace nereid::llm {
namespace {

constexpr char kBlockFileMagic[8] = {'N', 'R', 'D', 'K', 'V', 'B', 'L', 'K'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 64;
// Serials of one process. The next one begins above them, so that it never names other content like
// content in the file.
constexpr int kSerialBits = 40;
constexpr uint64_t kMaxRuns = uint64_t{1} << (63 - kSerialBits);

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Detects damage, not intent: whoever may write the file may write anything.
uint64_t Checksum(const void* data, size_t size, uint64_t state = 0x9e3779b97f4a7c15u) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t lanes[4] = {state, state ^ 0xc2b2ae3d27d4eb4fu, state ^ 0x165667b19e3779f9u, ~state};
  const auto mix = [](uint64_t lane, uint64_t word) {
    const auto product = static_cast<unsigned __int128>(lane ^ word) * 0xff51afd7ed558ccdu;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (word << 1);
  };
  size_t i = 0;
  for (; i + 32 <= size; i += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + i, sizeof(words));
    for (int lane = 0; lane < 4; ++lane) lanes[lane] = mix(lanes[lane], words[lane]);
  }
  uint64_t sum = size;
  for (; i < size; ++i) sum = mix(sum, bytes[i]);
  for (const uint64_t lane : lanes) sum = mix(sum, lane);
  return sum;
}

bool ReadAll(int fd, void* to, size_t size, int64_t offset) {
  auto* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(fd, bytes, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
    offset += got;
  }
  return true;
}

bool WriteAll(int fd, const void* from, size_t size, int64_t offset) {
  const auto* bytes = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = ::pwrite(fd, bytes, size, offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    size -= static_cast<size_t>(put);
    offset += put;
  }
  return true;
}

}  // namespace

struct BlockFile::FileHeader {
  char magic[8];
  uint32_t version;
  int32_t block_size;
  int64_t block_bytes;
  uint64_t run;  // how often the file was opened
  char identity[64];
  uint64_t checksum;  // of the bytes before
};

struct BlockFile::SlotHeader {
  uint64_t serial;
  uint64_t parent;
  uint64_t salt;
  uint64_t payload_checksum;
  uint64_t checksum;  // of the members before, and of the token ids
};

Result<std::unique_ptr<BlockFile>> BlockFile::Open(BlockFileOptions options) {
  UniqueFd fd(::open(options.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) {
    return UnavailableError("cannot open '", options.path, "': ", std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return InvalidArgError("'", options.path, "' is not a regular file");
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return UnavailableError("'", options.path, "' is used by another model or process");
  }
  std::unique_ptr<BlockFile> file(new BlockFile(std::move(options), std::move(fd)));
  NEREID_RETURN_IF_ERROR(file->Initialize());
  return file;
}

Status BlockFile::Initialize() {
  payload_offset_ = RoundUp(
      static_cast<int64_t>(sizeof(SlotHeader)) + 4 * int64_t{options_.block_size}, kAlignment);
  slot_bytes_ = RoundUp(payload_offset_ + options_.block_bytes, kAlignment);
  const int64_t num_slots = (options_.max_bytes - kPage) / slot_bytes_;
  if (num_slots < 1) {
    return InvalidArgError(options_.max_bytes, " bytes hold no KV block, expected at least ",
                           kPage + slot_bytes_);
  }
  num_slots_ = static_cast<int32_t>(std::min<int64_t>(num_slots, int32_t{1} << 26));
  uint64_t run = 0;
  NEREID_ASSIGN_OR_RETURN(const bool is_usable, CheckHeader(run));
  if (!is_usable && ::ftruncate(fd_.get(), 0) != 0) {
    return UnavailableError("cannot empty '", options_.path, "': ", std::strerror(errno));
  }
  first_serial_ = ((run + 1) << kSerialBits) | 1;
  NEREID_RETURN_IF_ERROR(WriteHeader(run + 1));
  if (is_usable) ReadSlots();
  // What lies behind the last slot is of a larger file.
  struct stat status {};
  if (::fstat(fd_.get(), &status) == 0 && status.st_size > SlotOffset(num_slots_) &&
      ::ftruncate(fd_.get(), SlotOffset(num_slots_)) != 0) {
    return UnavailableError("cannot shorten '", options_.path, "': ", std::strerror(errno));
  }
  return {};
}

Result<bool> BlockFile::CheckHeader(uint64_t& run) const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) {
    return UnavailableError("cannot read '", options_.path, "': ", std::strerror(errno));
  }
  if (status.st_size == 0) return false;
  FileHeader header = {};
  const bool is_read = ReadAll(fd_.get(), &header, sizeof(header), 0);
  if (std::memcmp(header.magic, kBlockFileMagic,
                  std::min<size_t>(sizeof(kBlockFileMagic), status.st_size)) != 0) {
    return InvalidArgError("'", options_.path, "' is not a file of KV blocks; it is left as it is");
  }
  const auto start_over = [&](const std::string& why) {
    options_.log(StrCat("'", options_.path, "' ", why, ": its content is dropped"));
    return false;
  };
  if (!is_read || header.checksum != Checksum(&header, offsetof(FileHeader, checksum)))
    return start_over("has a damaged header");
  if (header.version != kVersion || header.run + 2 >= kMaxRuns)
    return start_over(StrCat("has version ", header.version, ", expected ", kVersion));
  if (header.block_size != options_.block_size || header.block_bytes != options_.block_bytes ||
      std::string_view(header.identity, sizeof(header.identity)) != options_.identity) {
    return start_over("is of another checkpoint or another format of the KV cache");
  }
  run = header.run;
  return true;
}

Status BlockFile::WriteHeader(uint64_t run) {
  FileHeader header = {};
  std::memcpy(header.magic, kBlockFileMagic, sizeof(kBlockFileMagic));
  header.version = kVersion;
  header.block_size = options_.block_size;
  header.block_bytes = options_.block_bytes;
  header.run = run;
  std::memcpy(header.identity, options_.identity.data(),
              std::min(options_.identity.size(), sizeof(header.identity)));
  header.checksum = Checksum(&header, offsetof(FileHeader, checksum));
  if (WriteAll(fd_.get(), &header, sizeof(header), 0) && ::fdatasync(fd_.get()) == 0) return {};
  return UnavailableError("cannot write '", options_.path, "': ", std::strerror(errno));
}

int64_t BlockFile::SlotOffset(int32_t slot) const {
  return kPage + slot * slot_bytes_;
}

bool BlockFile::ReadSlotHeader(int32_t slot, SlotHeader& header,
                               std::vector<int32_t>& token_ids) const {
  token_ids.resize(options_.block_size);
  const size_t num_bytes = token_ids.size() * sizeof(int32_t);
  if (!ReadAll(fd_.get(), &header, sizeof(header), SlotOffset(slot)) || header.serial == 0 ||
      !ReadAll(fd_.get(), token_ids.data(), num_bytes, SlotOffset(slot) + sizeof(header))) {
    return false;
  }
  const uint64_t sum = Checksum(&header, offsetof(SlotHeader, checksum));
  return header.checksum == Checksum(token_ids.data(), num_bytes, sum);
}

void BlockFile::ReadSlots() {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return;
  const int64_t num_there =
      std::clamp<int64_t>((status.st_size - kPage + slot_bytes_ - 1) / slot_bytes_, 0, num_slots_);
  std::vector<Stored> all;
  for (int32_t slot = 0; slot < num_there; ++slot) {
    SlotHeader header = {};
    Stored stored;
    if (!ReadSlotHeader(slot, header, stored.content.token_ids)) continue;
    if (header.serial >= first_serial_ || header.parent >= header.serial) continue;
    stored.slot = slot;
    stored.content.serial = header.serial;
    stored.content.parent = header.parent;
    stored.content.salt = header.salt;
    all.push_back(std::move(stored));
  }
  // A parent always has a lower serial than what follows it.
  std::stable_sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    return a.content.serial < b.content.serial;
  });
  std::unordered_set<uint64_t> known = {0};
  for (Stored& stored : all) {
    if (known.contains(stored.content.serial) || !known.contains(stored.content.parent)) continue;
    known.insert(stored.content.serial);
    stored_.push_back(std::move(stored));
  }
}

bool BlockFile::Write(int32_t slot, const BlockContent& content, std::span<const std::byte> block) {
  if (has_failed()) return false;
  SlotHeader header = {content.serial, content.parent, content.salt,
                       Checksum(block.data(), block.size()), 0};
  const size_t num_bytes = content.token_ids.size() * sizeof(int32_t);
  const uint64_t sum = Checksum(&header, offsetof(SlotHeader, checksum));
  header.checksum = Checksum(content.token_ids.data(), num_bytes, sum);
  std::vector<std::byte> head(sizeof(header) + num_bytes);
  std::memcpy(head.data(), &header, sizeof(header));
  std::memcpy(head.data() + sizeof(header), content.token_ids.data(), num_bytes);
  if (WriteAll(fd_.get(), block.data(), block.size(), SlotOffset(slot) + payload_offset_) &&
      WriteAll(fd_.get(), head.data(), head.size(), SlotOffset(slot))) {
    return true;
  }
  const std::string why = std::strerror(errno);
  if (!has_failed_.exchange(true)) {
    options_.log(StrCat("cannot write '", options_.path, "': ", why,
                        "; no further KV blocks are written to it"));
  }
  return false;
}

bool BlockFile::Read(int32_t slot, uint64_t serial, std::span<std::byte> block) const {
  SlotHeader header = {};
  std::vector<int32_t> token_ids;
  const bool is_there = ReadSlotHeader(slot, header, token_ids) && header.serial == serial;
  if (is_there &&
      ReadAll(fd_.get(), block.data(), block.size(), SlotOffset(slot) + payload_offset_) &&
      Checksum(block.data(), block.size()) == header.payload_checksum) {
    return true;
  }
  options_.log(
      StrCat("'", options_.path, "': slot ", slot, " is damaged; its tokens are computed again"));
  return false;
}

}  // namespace nereid::llm
