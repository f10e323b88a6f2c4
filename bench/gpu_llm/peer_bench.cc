// Measures all-reduces over GPUs as in a model's layers: consecutive launches on one stream for
// each GPU, in a CUDA graph, with the one-shot and the two-shot algorithm
// (kernels/comm/all_reduce.h); and all-reduces of rows with their norm.
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
#include "bench/gpu_llm/number_list.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSums = 64;  // in a graph
constexpr int kRepeats = 10;

struct Rank {
  gpu::Stream stream;
  gpu::DeviceMemory partials, residual, normed;
  gpu::Graph graph;
};

// The measured operation, launched on one GPU.
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

// Microseconds of one all-reduce: the minimum of several graphs.
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

// Microseconds with both algorithms; 0 if one-shot does not support the size.
struct Times {
  double one_shot = 0.0, two_shot = 0.0;
};
Result<Times> MeasureBoth(gpu::PeerGroup& group, std::vector<Rank>& ranks, bool fits_one_shot,
                          const std::function<Sum(gpu::AllReduceAlgorithm)>& sum) {
  Times times;
  if (fits_one_shot) {
    NEREID_ASSIGN_OR_RETURN(times.one_shot,
                            Measure(group, ranks, sum(gpu::AllReduceAlgorithm::kOneShot)));
  }
  NEREID_ASSIGN_OR_RETURN(times.two_shot,
                          Measure(group, ranks, sum(gpu::AllReduceAlgorithm::kTwoShot)));
  return times;
}

Status Run(const std::vector<int32_t>& devices, const std::vector<int64_t>& sizes,
           const std::vector<int64_t>& rows, int hidden) {
  NEREID_ASSIGN_OR_RETURN(const auto group, gpu::PeerGroup::Create(devices));
  std::vector<Rank> ranks(devices.size());
  if (hidden <= 0 || hidden % 8 != 0 || hidden > gpu::kMaxAllReduceNormSize) {
    return InvalidArgError("--hidden is ", hidden, ", expected a multiple of 8 up to ",
                           gpu::kMaxAllReduceNormSize);
  }
  int64_t most_bytes = int64_t{2} * hidden;  // also used as the norm's weights
  for (const int64_t size : sizes) most_bytes = std::max(most_bytes, size);
  for (const int64_t count : rows) most_bytes = std::max(most_bytes, 2 * count * hidden);
  const auto most = static_cast<size_t>(most_bytes);
  for (int32_t rank = 0; rank < group->count(); ++rank) {
    Rank& own = ranks[rank];
    NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(devices[rank]));
    NEREID_ASSIGN_OR_RETURN(own.stream, gpu::MakeStream());
    NEREID_ASSIGN_OR_RETURN(own.partials, gpu::DeviceMemory::Allocate(most, "partials"));
    NEREID_ASSIGN_OR_RETURN(own.residual, gpu::DeviceMemory::Allocate(most, "the residual"));
    NEREID_ASSIGN_OR_RETURN(own.normed, gpu::DeviceMemory::Allocate(most, "rows"));
    for (const gpu::DeviceMemory* memory : {&own.partials, &own.residual, &own.normed})
      NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(memory->data(), 0x3c, most));
    NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    group->RegisterBuffers(rank, {.partials = own.partials.as<__nv_bfloat16>(),
                                  .residual = own.residual.as<__nv_bfloat16>(),
                                  .normed = own.normed.as<__nv_bfloat16>()});
  }
  std::printf("%d GPUs; bytes: one-shot us, two-shot us (GB/s of the message)\n", group->count());
  for (const int64_t size : sizes) {
    NEREID_ASSIGN_OR_RETURN(const Times times,
                            MeasureBoth(*group, ranks, size / 2 <= gpu::MaxOneShotElements(),
                                        [&](gpu::AllReduceAlgorithm algorithm) -> Sum {
                                          return [=](const gpu::Peers& peers, cudaStream_t stream) {
                                            gpu::AllReduce(peers, size / 2,
                                                           gpu::AllReduceTarget::kResidual,
                                                           algorithm, stream);
                                          };
                                        }));
    std::printf("%10lld: %8.2f %8.2f (%.0f)\n", static_cast<long long>(size), times.one_shot,
                times.two_shot, static_cast<double>(size) / times.two_shot / 1e3);
  }
  if (!rows.empty()) std::printf("rows of %d with their norm\n", hidden);
  for (const int64_t count : rows) {
    const bool fits_one_shot =
        count <= gpu::kPacketTiles && count * hidden <= gpu::MaxOneShotElements();
    NEREID_ASSIGN_OR_RETURN(
        const Times times,
        MeasureBoth(*group, ranks, fits_one_shot, [&](gpu::AllReduceAlgorithm algorithm) -> Sum {
          return [=, &ranks](const gpu::Peers& peers, cudaStream_t stream) {
            // The values of the weights do not matter.
            const auto* weight =
                ranks[static_cast<size_t>(peers.rank)].partials.as<__nv_bfloat16>();
            gpu::AllReduceNorm(peers,
                               {.weight = weight,
                                .num_rows = static_cast<int>(count),
                                .hidden_size = hidden,
                                .epsilon = 1e-5f},
                               algorithm, stream);
          };
        }));
    std::printf("%10lld: %8.2f %8.2f\n", static_cast<long long>(count), times.one_shot,
                times.two_shot);
  }
  return {};
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
  const Status status =
      Run(*devices, NumbersOf<int64_t>(given["--sizes"]), NumbersOf<int64_t>(given["--rows"]),
          std::atoi(given["--hidden"].c_str()));
  if (!status.ok()) std::printf("error: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
