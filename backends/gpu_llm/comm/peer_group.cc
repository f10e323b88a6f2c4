// Peer access is switched on and stays: other models of the process may use it too.
#include "backends/gpu_llm/comm/peer_group.h"

#include <cstring>

namespace nereid::gpu {
namespace {

// Of one wait for another GPU: longer than a step's first launch of its kernels takes.
constexpr uint64_t kLimitNs = 30'000'000'000;

// Puts the calling thread's device back.
class DeviceScope {
 public:
  DeviceScope() { (void)cudaGetDevice(&device_); }
  ~DeviceScope() { (void)cudaSetDevice(device_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int device_ = 0;
};

Status OpenPeers(const std::vector<int32_t>& devices) {
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
        return UnsupportedError("GPU ", device, " can not reach the memory of GPU ", peer,
                                ": gpu_llm shares a model only among GPUs that can (NVLink)");
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
  NEREID_RETURN_IF_ERROR(OpenPeers({devices.begin(), devices.end()}));
  std::unique_ptr<PeerGroup> group(new PeerGroup(devices));
  NEREID_RETURN_IF_ERROR(group->Initialize());
  return group;
}

Status PeerGroup::Initialize() {
  NEREID_ASSIGN_OR_RETURN(control_, PinnedMemory::Allocate(sizeof(PeerControl)));
  std::memset(control_.as<void>(), 0, sizeof(PeerControl));
  all_.count = count();
  all_.control = control_.as<PeerControl>();
  all_.limit_ns = kLimitNs;
  const int64_t mail_bytes = int64_t{2} * count() * kMailTiles * kPeerThreads * 16;
  const int64_t flag_bytes = int64_t{4} * kPeerBlocks * count();
  const int64_t turn_bytes = int64_t{4} * (2 * kMailTiles + kPeerBlocks);
  for (int32_t rank = 0; rank < count(); ++rank) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(devices_[rank]));
    NEREID_ASSIGN_OR_RETURN(DeviceMemory memory,
                            DeviceMemory::Allocate(2 * mail_bytes + flag_bytes + turn_bytes,
                                                   "what GPUs send each other"));
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(memory.data(), 0, memory.size_bytes()));
    NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    all_.mail[rank] = memory.as<uint4>();
    all_.row_mail[rank] = reinterpret_cast<uint4*>(memory.as<char>() + mail_bytes);
    all_.flags[rank] = reinterpret_cast<uint32_t*>(memory.as<char>() + 2 * mail_bytes);
    memory_.push_back(std::move(memory));
  }
  return {};
}

void PeerGroup::Share(int32_t rank, const Buffers& buffers) {
  all_.parts[rank] = buffers.parts;
  all_.residual[rank] = buffers.residual;
  all_.normed[rank] = buffers.normed;
  all_.last_tokens[rank] = buffers.last_tokens;
  if (rank == 0) all_.logits = buffers.logits;
}

const Peers& PeerGroup::peers(int32_t rank) {
  Peers& peers = peers_[rank];
  if (peers.count == 0) {
    peers = all_;
    peers.rank = rank;
    peers.mail_turns = all_.flags[rank] + int64_t{kPeerBlocks} * count();
    peers.row_mail_turns = peers.mail_turns + kMailTiles;
    peers.meet_turns = peers.row_mail_turns + kMailTiles;
  }
  return peers;
}

void PeerGroup::Stop() {
  __atomic_store_n(&control_.as<PeerControl>()->stops, 1u, __ATOMIC_RELEASE);
  meeting_.Break();
}

Status PeerGroup::status() const {
  const auto* control = control_.as<PeerControl>();
  if (__atomic_load_n(&control->stops, __ATOMIC_ACQUIRE) == 0) return {};
  for (int32_t rank = 0; rank < count(); ++rank) {
    if (__atomic_load_n(&control->was_late[rank], __ATOMIC_ACQUIRE) != 0) {
      return InternalError("GPU ", devices_[rank], " has waited for another GPU of the model for ",
                           kLimitNs / 1'000'000'000, " seconds");
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
