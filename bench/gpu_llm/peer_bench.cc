// Sums over GPUs, as a model's layers ask for them: one behind the other on a stream each, from a
// recorded graph, by mail and by meeting (kernels/rows/peer.h); and sums of rows with their norm.
//
//   gpu_peer_bench [--gpus 0,1] [--sizes 8192,16384,...] [--hidden 8192] [--rows 1,2,4,...]
//   sizes: bytes of bf16; rows: of `hidden` elements
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/model/sharding.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSums = 64;  // of a graph
constexpr int kRepeats = 10;

struct Rank {
  gpu::Stream stream;
  gpu::DeviceMemory parts, residual, normed;
  gpu::Graph graph;
};

// What is measured, of one GPU.
using Sum = std::function<void(const gpu::Peers& peers, cudaStream_t stream)>;

Status Record(gpu::PeerGroup& group, std::vector<Rank>& ranks, const Sum& sum) {
  for (int32_t rank = 0; rank < group.count(); ++rank) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(group.devices()[rank]));
    cudaStream_t stream = ranks[rank].stream.get();
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kSums; ++i) sum(group.peers(rank), stream);
    cudaGraph_t nodes = nullptr;
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamEndCapture(stream, &nodes));
    cudaGraphExec_t executable = nullptr;
    NEREID_RETURN_IF_CUDA_ERROR(cudaGraphInstantiate(&executable, nodes, 0));
    (void)cudaGraphDestroy(nodes);
    ranks[rank].graph = gpu::Graph(executable);
  }
  return {};
}

// Microseconds of one sum, the least of several graphs.
Result<double> Measure(gpu::PeerGroup& group, std::vector<Rank>& ranks, const Sum& sum) {
  NEREID_RETURN_IF_ERROR(Record(group, ranks, sum));
  double least = 1e30;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = Clock::now();
    for (int32_t rank = 0; rank < group.count(); ++rank) {
      NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(group.devices()[rank]));
      for (int i = 0; i < 4; ++i)
        NEREID_RETURN_IF_CUDA_ERROR(
            cudaGraphLaunch(ranks[rank].graph.get(), ranks[rank].stream.get()));
    }
    for (Rank& rank : ranks) NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(rank.stream.get()));
    const std::chrono::duration<double> took = Clock::now() - start;
    least = std::min(least, 1e6 * took.count() / (4 * kSums));
  }
  NEREID_RETURN_IF_ERROR(group.status());
  return least;
}

// Of both ways; 0 where it does not go by mail.
struct Times {
  double mail = 0.0, meet = 0.0;
};
Result<Times> MeasureBoth(gpu::PeerGroup& group, std::vector<Rank>& ranks, bool has_mail,
                          const std::function<Sum(gpu::SumPath)>& sum) {
  Times times;
  if (has_mail) {
    NEREID_ASSIGN_OR_RETURN(times.mail, Measure(group, ranks, sum(gpu::SumPath::kMail)));
  }
  NEREID_ASSIGN_OR_RETURN(times.meet, Measure(group, ranks, sum(gpu::SumPath::kMeet)));
  return times;
}

Status Run(const std::vector<int32_t>& devices, const std::vector<int64_t>& sizes,
           const std::vector<int64_t>& rows, int hidden) {
  NEREID_ASSIGN_OR_RETURN(const auto group, gpu::PeerGroup::Create(devices));
  std::vector<Rank> ranks(devices.size());
  if (hidden <= 0 || hidden % 8 != 0 || hidden > gpu::kMaxSumRowSize) {
    return InvalidArgError("--hidden is ", hidden, ", expected a multiple of 8 up to ",
                           gpu::kMaxSumRowSize);
  }
  int64_t most_bytes = int64_t{2} * hidden;  // of the norm's weights too
  for (const int64_t size : sizes) most_bytes = std::max(most_bytes, size);
  for (const int64_t count : rows) most_bytes = std::max(most_bytes, 2 * count * hidden);
  const auto most = static_cast<size_t>(most_bytes);
  for (int32_t rank = 0; rank < group->count(); ++rank) {
    Rank& own = ranks[rank];
    NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(devices[rank]));
    NEREID_ASSIGN_OR_RETURN(own.stream, gpu::MakeStream());
    NEREID_ASSIGN_OR_RETURN(own.parts, gpu::DeviceMemory::Allocate(most, "parts"));
    NEREID_ASSIGN_OR_RETURN(own.residual, gpu::DeviceMemory::Allocate(most, "the residual"));
    NEREID_ASSIGN_OR_RETURN(own.normed, gpu::DeviceMemory::Allocate(most, "rows"));
    for (const gpu::DeviceMemory* memory : {&own.parts, &own.residual, &own.normed})
      NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(memory->data(), 0x3c, most));
    NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    group->Share(rank, {own.parts.as<__nv_bfloat16>(), own.residual.as<__nv_bfloat16>(),
                        own.normed.as<__nv_bfloat16>()});
  }
  std::printf("%d GPUs; bytes: by mail us, by meeting us (GB/s of the message)\n", group->count());
  for (const int64_t size : sizes) {
    NEREID_ASSIGN_OR_RETURN(
        const Times times, MeasureBoth(*group, ranks, size / 2 <= gpu::PeerMailElements(),
                                       [&](gpu::SumPath path) -> Sum {
                                         return [=](const gpu::Peers& peers, cudaStream_t stream) {
                                           gpu::SumOverPeers(peers, size / 2,
                                                             gpu::SumInto::kResidual, path, stream);
                                         };
                                       }));
    std::printf("%10lld: %8.2f %8.2f (%.0f)\n", static_cast<long long>(size), times.mail,
                times.meet, static_cast<double>(size) / times.meet / 1e3);
  }
  if (!rows.empty()) std::printf("rows of %d with their norm\n", hidden);
  for (const int64_t count : rows) {
    const bool has_mail = count <= gpu::kMailTiles && count * hidden <= gpu::PeerMailElements();
    NEREID_ASSIGN_OR_RETURN(
        const Times times, MeasureBoth(*group, ranks, has_mail, [&](gpu::SumPath path) -> Sum {
          return [=, &ranks](const gpu::Peers& peers, cudaStream_t stream) {
            // Weights: any that are there.
            const auto* weight = ranks[static_cast<size_t>(peers.rank)].parts.as<__nv_bfloat16>();
            gpu::SumRows(peers, {weight, static_cast<int>(count), hidden, 1e-5f}, path, stream);
          };
        }));
    std::printf("%10lld: %8.2f %8.2f\n", static_cast<long long>(count), times.mail, times.meet);
  }
  return {};
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size(); at = std::min(text.size(), text.find(',', at)) + 1)
    numbers.push_back(std::atoll(text.c_str() + at));
  return numbers;
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {
      {"--gpus", "0,1"},
      {"--sizes",
       "2,8192,16384,65536,131072,262144,524288,1048576,4194304,16777216,67108864,134217728"},
      {"--hidden", "8192"},
      {"--rows", "1,2,4,8,16,32,64"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  const auto devices = gpu::ParseDeviceIds(given["--gpus"]);
  if (!devices.ok()) {
    std::printf("error: %s\n", devices.status().message().c_str());
    return 1;
  }
  const Status status = Run(*devices, Numbers(given["--sizes"]), Numbers(given["--rows"]),
                            std::atoi(given["--hidden"].c_str()));
  if (!status.ok()) std::printf("error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
