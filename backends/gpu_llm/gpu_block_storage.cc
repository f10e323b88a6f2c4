// Copies between a GPU's KV cache, pinned host memory and the file.
#include "backends/gpu_llm/gpu_block_storage.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace nereid::gpu {
namespace {

constexpr int64_t kSpareBytes = int64_t{64} << 20;  // for blocks on their way to the file
constexpr int64_t kMinSpares = 2, kMaxSpares = 4096;
constexpr size_t kMaxFetches = 64;

}  // namespace

Result<std::unique_ptr<GpuBlockStorage>> GpuBlockStorage::Create(
    const CacheBlocks& cache, int32_t device, cudaStream_t steps, int64_t host_bytes,
    std::unique_ptr<llm::BlockFile> file) {
  const int64_t block_bytes = cache.block_bytes();
  const int64_t num_places = std::min<int64_t>(host_bytes / block_bytes, int32_t{1} << 28);
  if (host_bytes > 0 && num_places == 0) {
    return InvalidArgError("parameter 'kv_cache_host_memory_bytes' is ", host_bytes,
                           ", expected 0 or at least ", block_bytes, ", the size of a KV block");
  }
  std::unique_ptr<GpuBlockStorage> storage(
      new GpuBlockStorage(cache, device, steps, std::move(file)));
  NEREID_RETURN_IF_ERROR(storage->Allocate(num_places));
  return storage;
}

Status GpuBlockStorage::Allocate(int64_t num_places) {
  const int64_t block_bytes = cache_.block_bytes();
  const int64_t num_spares =
      file_ == nullptr ? 0 : std::clamp(kSpareBytes / block_bytes, kMinSpares, kMaxSpares);
  const int64_t num_fetched = file_ == nullptr ? 0 : std::ssize(fetch_buffers_);
  const int64_t num_buffers = num_places + num_spares + num_fetched;
  if (num_buffers > 0) {
    Result<PinnedMemory> memory =
        PinnedMemory::Allocate(static_cast<size_t>(num_buffers * block_bytes));
    if (!memory.ok()) {
      (void)cudaGetLastError();
      return UnavailableError(
          "cannot allocate ", num_buffers, " blocks x ", block_bytes,
          " bytes of pinned host memory for the prefix cache: ", memory.status().message());
    }
    memory_ = std::move(*memory);
  }
  char* next = memory_.as<char>();
  const auto take = [&] { return std::exchange(next, next + block_bytes); };
  for (int64_t i = 0; i < num_places; ++i) places_.push_back(take());
  for (int64_t i = 0; i < num_spares; ++i) spares_.push_back(take());
  for (int64_t i = 0; i < num_fetched; ++i) {
    fetch_buffers_[i] = take();
    NEREID_ASSIGN_OR_RETURN(fetch_copied_[i], MakeEvent(cudaEventDisableTiming));
  }
  NEREID_ASSIGN_OR_RETURN(stores_, MakeStream());
  NEREID_ASSIGN_OR_RETURN(fetches_in_, MakeStream());
  NEREID_ASSIGN_OR_RETURN(steps_submitted_, MakeEvent());
  NEREID_ASSIGN_OR_RETURN(stores_submitted_, MakeEvent());
  writes_.emplace(static_cast<size_t>(num_spares + 1));
  fetches_.emplace(kMaxFetches);
  return {};
}

GpuBlockStorage::~GpuBlockStorage() {
  fetches_.reset();
  writes_.reset();
  (void)cudaSetDevice(device_);
  if (stores_) (void)cudaStreamSynchronize(stores_.get());
  if (fetches_in_) (void)cudaStreamSynchronize(fetches_in_.get());
}

std::vector<llm::BlockStorage::StoredBlock> GpuBlockStorage::TakeStored() {
  std::vector<StoredBlock> all;
  if (file_ == nullptr) return all;
  for (llm::BlockFile::Stored& stored : file_->TakeStored())
    all.push_back({first_file_place() + stored.slot, std::move(stored.content)});
  return all;
}

bool GpuBlockStorage::FileAccepts() const {
  if (file_ == nullptr || file_->has_failed()) return false;
  const std::lock_guard lock(mutex_);
  return !spares_.empty();
}

char* GpuBlockStorage::TakeSpare() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !spares_.empty(); });
  char* const buffer = spares_.back();
  spares_.pop_back();
  return buffer;
}

void GpuBlockStorage::ReturnSpare(char* buffer) {
  {
    const std::lock_guard lock(mutex_);
    spares_.push_back(buffer);
  }
  changed_.notify_all();
}

void GpuBlockStorage::Fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

void GpuBlockStorage::Store(int32_t from, int32_t to, const llm::BlockContent& content) {
  if (const Status status = StoreOrFail(from, to, content); !status.ok()) Fail(status);
}

Status GpuBlockStorage::StoreOrFail(int32_t from, int32_t to, const llm::BlockContent& content) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  if (to < first_file_place()) return CopyOut(from, BufferOf(to));
  const int32_t slot = to - first_file_place();
  char* const spare = TakeSpare();
  if (from >= cache_.num_blocks)
    return WriteLater(std::exchange(BufferOf(from), spare), slot, content);
  const Status status = CopyOut(from, spare);
  if (status.ok()) return WriteLater(spare, slot, content);
  ReturnSpare(spare);
  return status;
}

Status GpuBlockStorage::CopyOut(int32_t block, char* to) {
  if (!std::exchange(follows_steps_, true)) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(steps_submitted_.get(), steps_));
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stores_.get(), steps_submitted_.get(), 0));
  }
  has_stores_ = true;
  return cache_.Read(block, to, stores_.get());
}

Status GpuBlockStorage::WriteLater(char* buffer, int32_t slot, const llm::BlockContent& content) {
  NEREID_ASSIGN_OR_RETURN(Event made, MakeEvent());
  const auto has_bytes = std::make_shared<const Event>(std::move(made));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(has_bytes->get(), stores_.get()));
  writes_->Push([this, buffer, slot, content, has_bytes] {
    (void)cudaSetDevice(device_);
    const Status copied = CudaStatus(cudaEventSynchronize(has_bytes->get()), "a copy of KV blocks");
    if (copied.ok()) {
      const std::span<const char> bytes(buffer, static_cast<size_t>(cache_.block_bytes()));
      (void)file_->Write(slot, content, std::as_bytes(bytes));
    } else {
      Fail(copied);
    }
    ReturnSpare(buffer);
  });
  return {};
}

Status GpuBlockStorage::BeginStep() {
  follows_steps_ = false;
  {
    const std::lock_guard lock(mutex_);
    NEREID_RETURN_IF_ERROR(failure_);
  }
  if (!std::exchange(has_stores_, false)) return {};
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(stores_submitted_.get(), stores_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(steps_, stores_submitted_.get(), 0));
  return {};
}

Result<GpuBlockStorage::Before> GpuBlockStorage::RecordBefore() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  Before before;
  NEREID_ASSIGN_OR_RETURN(before.steps, MakeEvent());
  NEREID_ASSIGN_OR_RETURN(before.stores, MakeEvent());
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(before.steps.get(), steps_));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(before.stores.get(), stores_.get()));
  return before;
}

void GpuBlockStorage::Fetch(uint64_t ticket, std::vector<Transfer> transfers) {
  ++num_open_;
  Result<Before> recorded = RecordBefore();
  if (!recorded.ok()) Fail(recorded.status());
  const auto before =
      std::make_shared<const Before>(recorded.ok() ? std::move(*recorded) : Before());
  std::vector<CopyIn> copies;
  bool reads_file = false;
  for (const Transfer& transfer : transfers) {
    const bool is_in_file = transfer.from >= first_file_place();
    reads_file |= is_in_file;
    copies.push_back({transfer, is_in_file ? nullptr : BufferOf(transfer.from)});
  }
  // A place of the file may still wait to be written.
  const uint64_t writes_before = reads_file ? writes_->num_pushed() : 0;
  fetches_->Push([this, ticket, before, writes_before, copies = std::move(copies)] {
    if (writes_before > 0) writes_->WaitFor(writes_before);
    Fetched fetched;
    fetched.ticket = ticket;
    RunFetch(*before, copies, fetched);
    {
      const std::lock_guard lock(mutex_);
      fetched_.push_back(std::move(fetched));
    }
    changed_.notify_all();
  });
}

void GpuBlockStorage::RunFetch(const Before& before, const std::vector<CopyIn>& copies,
                               Fetched& fetched) {
  (void)cudaSetDevice(device_);
  Status status;
  for (const Event* event : {&before.steps, &before.stores})
    if (status.ok() && *event)
      status = CudaStatus(cudaEventSynchronize(event->get()), "a step before a fetch");
  // The step that ran when the fetch began would have delayed a computation, too.
  const auto begin = std::chrono::steady_clock::now();
  if (status.ok()) status = CopyInAll(copies, fetched);
  fetched.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!status.ok()) Fail(status);
}

Status GpuBlockStorage::CopyInAll(const std::vector<CopyIn>& copies, Fetched& fetched) {
  size_t num_read = 0;  // from the file
  for (const auto& [transfer, buffer] : copies) {
    if (buffer != nullptr) {
      NEREID_RETURN_IF_ERROR(cache_.Write(transfer.block, buffer, fetches_in_.get()));
      continue;
    }
    const size_t which = num_read++ % std::size(fetch_buffers_);
    if (num_read > std::size(fetch_buffers_)) {
      NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(fetch_copied_[which].get()));
    }
    const std::span<char> bytes(fetch_buffers_[which], static_cast<size_t>(cache_.block_bytes()));
    if (file_->Read(transfer.from - first_file_place(), transfer.serial,
                    std::as_writable_bytes(bytes))) {
      NEREID_RETURN_IF_ERROR(cache_.Write(transfer.block, bytes.data(), fetches_in_.get()));
    } else {
      fetched.lost.push_back(transfer.from);
    }
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(fetch_copied_[which].get(), fetches_in_.get()));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(fetches_in_.get()));
  return {};
}

std::vector<llm::BlockStorage::Fetched> GpuBlockStorage::Collect(bool waits) {
  std::unique_lock lock(mutex_);
  if (waits && num_open_ > 0) changed_.wait(lock, [this] { return !fetched_.empty(); });
  num_open_ -= static_cast<int32_t>(fetched_.size());
  return std::exchange(fetched_, {});
}

void GpuBlockStorage::Finish() {
  (void)cudaSetDevice(device_);
  (void)cudaStreamSynchronize(stores_.get());
  writes_->WaitFor(writes_->num_pushed());
}

}  // namespace nereid::gpu
