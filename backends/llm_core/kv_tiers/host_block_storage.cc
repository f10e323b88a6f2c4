// Copies between the KV cache, host memory and the file.
#include "backends/llm_core/kv_tiers/host_block_storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace nereid::llm {
namespace {

constexpr size_t kMaxCopies = 4096;  // queued; each is a block of the KV cache or of host memory
constexpr int64_t kMaxQueuedFileBytes = int64_t{64} << 20;
constexpr size_t kMaxFetches = 64;

}  // namespace

Result<std::unique_ptr<HostBlockStorage>> HostBlockStorage::Create(
    const BlockMemory* memory, int64_t host_bytes, std::unique_ptr<BlockFile> file) {
  std::unique_ptr<HostBlockStorage> storage(new HostBlockStorage(memory, std::move(file)));
  const int64_t block_bytes = memory->block_bytes();
  const int64_t num_places = std::min<int64_t>(host_bytes / block_bytes, int32_t{1} << 28);
  if (host_bytes > 0 && num_places == 0) {
    return InvalidArgError("parameter 'kv_cache_host_memory_bytes' is ", host_bytes,
                           ", expected 0 or at least ", block_bytes, ", the size of a KV block");
  }
  if (num_places > 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(num_places * block_bytes),
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return UnavailableError("cannot allocate ", num_places, " blocks x ", block_bytes,
                              " bytes of host memory for the prefix cache: ", std::strerror(errno));
    }
    storage->host_ = static_cast<std::byte*>(data);
    storage->num_host_places_ = static_cast<int32_t>(num_places);
  }
  storage->writes_.emplace(
      static_cast<size_t>(std::clamp<int64_t>(kMaxQueuedFileBytes / block_bytes, 1, 4096)));
  storage->copies_.emplace(kMaxCopies);
  storage->fetches_.emplace(kMaxFetches);
  return storage;
}

HostBlockStorage::~HostBlockStorage() {
  fetches_.reset();
  copies_.reset();
  writes_.reset();
  if (host_ != nullptr) ::munmap(host_, static_cast<size_t>(host_bytes()));
}

std::vector<BlockStorage::StoredBlock> HostBlockStorage::TakeStored() {
  std::vector<StoredBlock> all;
  if (file_ == nullptr) return all;
  for (BlockFile::Stored& stored : file_->TakeStored())
    all.push_back({first_file_place() + stored.slot, std::move(stored.content)});
  return all;
}

std::span<std::byte> HostBlockStorage::HostPlace(int32_t place) const {
  const int64_t block_bytes = memory_->block_bytes();
  return {host_ + (place - memory_->num_blocks()) * block_bytes, static_cast<size_t>(block_bytes)};
}

bool HostBlockStorage::FileAccepts() const {
  return file_ != nullptr && !file_->has_failed() && !writes_->is_full();
}

void HostBlockStorage::Store(int32_t from, int32_t to, const BlockContent& content) {
  copies_->Push([this, from, to, content] {
    const bool is_block = from < memory_->num_blocks();
    if (to < first_file_place()) {
      memory_->ReadBlock(from, HostPlace(to));
      return;
    }
    std::vector<std::byte> bytes(static_cast<size_t>(memory_->block_bytes()));
    if (is_block) {
      memory_->ReadBlock(from, bytes);
    } else {
      const std::span<const std::byte> place = HostPlace(from);
      std::copy(place.begin(), place.end(), bytes.begin());
    }
    const int32_t slot = to - first_file_place();
    writes_->Push([this, slot, content, bytes = std::move(bytes)] {
      (void)file_->Write(slot, content, bytes);
    });
  });
}

void HostBlockStorage::Fetch(uint64_t ticket, std::vector<Transfer> transfers) {
  ++num_open_;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t copies_before = copies_->num_pushed();
  fetches_->Push([this, ticket, begin, copies_before, transfers = std::move(transfers)] {
    copies_->WaitFor(copies_before);
    // A place of the file may still wait to be written.
    const bool reads_file =
        std::any_of(transfers.begin(), transfers.end(),
                    [this](const auto& each) { return each.from >= first_file_place(); });
    if (reads_file) writes_->WaitFor(writes_->num_pushed());
    Fetched fetched;
    Run(ticket, transfers, fetched);
    const auto took = std::chrono::steady_clock::now() - begin;
    fetched.seconds = std::chrono::duration<double>(took).count();
    {
      const std::lock_guard lock(mutex_);
      fetched_.push_back(std::move(fetched));
    }
    ended_.notify_all();
  });
}

void HostBlockStorage::Run(uint64_t ticket, const std::vector<Transfer>& transfers,
                           Fetched& fetched) const {
  fetched.ticket = ticket;
  std::vector<std::byte> bytes;
  for (const Transfer& transfer : transfers) {
    if (transfer.from < first_file_place()) {
      memory_->WriteBlock(transfer.block, HostPlace(transfer.from));
      continue;
    }
    bytes.resize(static_cast<size_t>(memory_->block_bytes()));
    if (file_->Read(transfer.from - first_file_place(), transfer.serial, bytes)) {
      memory_->WriteBlock(transfer.block, bytes);
    } else {
      fetched.lost.push_back(transfer.from);
    }
  }
}

std::vector<BlockStorage::Fetched> HostBlockStorage::Collect(bool waits) {
  std::unique_lock lock(mutex_);
  if (waits && num_open_ > 0) ended_.wait(lock, [this] { return !fetched_.empty(); });
  num_open_ -= static_cast<int32_t>(fetched_.size());
  return std::exchange(fetched_, {});
}

void HostBlockStorage::Finish() {
  FinishReads();
  writes_->WaitFor(writes_->num_pushed());
}

}  // namespace nereid::llm
