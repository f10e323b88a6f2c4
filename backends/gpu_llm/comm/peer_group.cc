// Peer access is enabled and never disabled, because other models of the process may use it.
#include "backends/gpu_llm/comm/peer_group.h"

#include <cstring>

namespace nereid::gpu {
namespace {

// Timeout of one wait for another GPU: longer than the first launch of a step's kernels takes.
constexpr uint64_t kTimeoutNs = 30'000'000'000;

// Restores the calling thread's current device.
class DeviceScope {
 public:
  DeviceScope() { (void)cudaGetDevice(&device_); }
  ~DeviceScope() { (void)cudaSetDevice(device_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_ = 0;
};

Status EnablePeerAccess(const std::vector<int32_t>& devices) {
  int count = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  for (const int32_t device : devices) {
    if (device >= count) {
      return InvalidArgError("gpu_device_ids names GPU ", device, ", expected 0 to ", count - 1);
    }
  }
  for (const int32_t device : devices) {
    for (const int32_t peer : devices) {
      if (peer == device) continue;
      int can_access = 0;
      NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceCanAccessPeer(&can_access, device, peer));
      if (can_access == 0) {
        return UnsupportedError(
            "GPU ", device, " can not access the memory of GPU ", peer,
            ": gpu_llm divides a model only among GPUs with peer access (NVLink)");
      }
      NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
      } else {
        NEREID_RETURN_IF_ERROR(CudaStatus(enabled, "cudaDeviceEnablePeerAccess"));
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PeerGroup>> PeerGroup::Create(std::span<const int32_t> devices) {
  const DeviceScope scope;
  NEREID_RETURN_IF_ERROR(EnablePeerAccess({devices.begin(), devices.end()}));
  std::unique_ptr<PeerGroup> group(new PeerGroup(devices));
  NEREID_RETURN_IF_ERROR(group->Initialize());
  return group;
}

Status PeerGroup::Initialize() {
  NEREID_ASSIGN_OR_RETURN(control_, PinnedMemory::Allocate(sizeof(PeerControl)));
  std::memset(control_.as<void>(), 0, sizeof(PeerControl));
  template_.count = count();
  template_.control = control_.as<PeerControl>();
  template_.timeout_ns = kTimeoutNs;
  const int64_t packet_bytes = int64_t{2} * count() * kPacketTiles * kPeerThreads * 16;
  const int64_t flag_bytes = int64_t{4} * kPeerBlocks * count();
  const int64_t epoch_bytes = int64_t{4} * (2 * kPacketTiles + kPeerBlocks);
  for (int32_t rank = 0; rank < count(); ++rank) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(devices_[rank]));
    NEREID_ASSIGN_OR_RETURN(DeviceMemory memory,
                            DeviceMemory::Allocate(2 * packet_bytes + flag_bytes + epoch_bytes,
                                                   "the peer packet buffers"));
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(memory.data(), 0, memory.size_bytes()));
    NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    template_.packet_buffers[rank] = memory.as<uint4>();
    template_.norm_packet_buffers[rank] =
        reinterpret_cast<uint4*>(memory.as<char>() + packet_bytes);
    template_.flags[rank] = reinterpret_cast<uint32_t*>(memory.as<char>() + 2 * packet_bytes);
    memory_.push_back(std::move(memory));
  }
  return {};
}

void PeerGroup::RegisterBuffers(int32_t rank, const Buffers& buffers) {
  template_.partials[rank] = buffers.partials;
  template_.residual[rank] = buffers.residual;
  template_.normed[rank] = buffers.normed;
  template_.last_tokens[rank] = buffers.last_tokens;
  if (rank == 0) template_.logits = buffers.logits;
}

const Peers& PeerGroup::peers(int32_t rank) {
  Peers& peers = peers_[rank];
  if (peers.count == 0) {
    peers = template_;
    peers.rank = rank;
    peers.packet_epochs = template_.flags[rank] + int64_t{kPeerBlocks} * count();
    peers.norm_packet_epochs = peers.packet_epochs + kPacketTiles;
    peers.barrier_epochs = peers.norm_packet_epochs + kPacketTiles;
  }
  return peers;
}

void PeerGroup::Stop() {
  __atomic_store_n(&control_.as<PeerControl>()->is_stopped, 1u, __ATOMIC_RELEASE);
  barrier_.Break();
}

Status PeerGroup::status() const {
  const auto* control = control_.as<PeerControl>();
  if (__atomic_load_n(&control->is_stopped, __ATOMIC_ACQUIRE) == 0) return {};
  for (int32_t rank = 0; rank < count(); ++rank) {
    if (__atomic_load_n(&control->timed_out[rank], __ATOMIC_ACQUIRE) != 0) {
      return InternalError("GPU ", devices_[rank], " has waited for another GPU of the model for ",
                           kTimeoutNs / 1'000'000'000, " seconds");
    }
  }
  return UnavailableError("another GPU of the model has failed");
}

int64_t PeerGroup::memory_bytes() const {
  int64_t sum = 0;
  for (const DeviceMemory& memory : memory_) sum += static_cast<int64_t>(memory.size_bytes());
  return sum;
}

}  // namespace nereid::gpu
