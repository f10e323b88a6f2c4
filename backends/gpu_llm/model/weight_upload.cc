// Each thread has a stream and two pinned buffers: one is filled while the other is on its way.
#include "gpu_llm/model/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "gpu_llm/cuda/stream.h"

namespace nereid::gpu {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;

struct Chunk {
  const WeightPart* part;
  int64_t first_row, num_rows;
};

uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float HalfToFloat(uint16_t half) {
  const uint32_t bits = uint32_t{half & 0x7fffu} << 13;
  float magnitude;
  std::memcpy(&magnitude, &bits, 4);
  magnitude *= 0x1p112f;
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

uint16_t ElementAsBf16(const uint8_t* data, llm::DataType type, int64_t index) {
  if (type == llm::DataType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return ToBf16(value);
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return type == llm::DataType::kBF16 ? bits : ToBf16(HalfToFloat(bits));
}

void Convert(const Chunk& chunk, uint16_t* to) {
  const llm::TensorView& tensor = chunk.part->weight->tensor;
  const llm::WeightSource& source = chunk.part->weight->source;
  const int64_t columns = chunk.part->columns;
  const int64_t stored_columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  for (int64_t row = chunk.first_row; row < chunk.first_row + chunk.num_rows;
       ++row, to += columns) {
    const int64_t stored =
        source.first_row + row / source.group_rows * source.group_stride + row % source.group_rows;
    if (!source.transposed && tensor.type == llm::DataType::kBF16) {
      std::memcpy(to, tensor.bytes.data() + stored * stored_columns * 2, columns * 2);
      continue;
    }
    for (int64_t column = 0; column < columns; ++column) {
      to[column] = ElementAsBf16(
          tensor.bytes.data(), tensor.type,
          source.transposed ? column * stored_columns + stored : stored * stored_columns + column);
    }
  }
}

// Groups are whole rows of the destination's pitch: one copy of two dimensions.
cudaError_t Copy(const Chunk& chunk, const uint16_t* from, const DeviceMemory& memory,
                 cudaStream_t stream) {
  const WeightPart& part = *chunk.part;
  const int64_t row_bytes = part.columns * 2;
  if (part.group_rows == part.rows) {
    return cudaMemcpyAsync(memory.as<char>() + part.offset * 2 + chunk.first_row * row_bytes, from,
                           chunk.num_rows * row_bytes, cudaMemcpyHostToDevice, stream);
  }
  return cudaMemcpy2DAsync(memory.as<char>() + part.offset * 2 +
                               chunk.first_row / part.group_rows * part.group_stride * row_bytes,
                           part.group_stride * row_bytes, from, part.group_rows * row_bytes,
                           part.group_rows * row_bytes, chunk.num_rows / part.group_rows,
                           cudaMemcpyHostToDevice, stream);
}

Status UploadSome(const std::vector<Chunk>& chunks, std::atomic<size_t>& next, int64_t buffer_bytes,
                  const DeviceMemory& memory, int device) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  NEREID_ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  NEREID_ASSIGN_OR_RETURN(const PinnedMemory pinned, PinnedMemory::Allocate(2 * buffer_bytes));
  Event done[2];
  for (Event& event : done) {
    NEREID_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  for (int turn = 0;; turn ^= 1) {
    const size_t i = next.fetch_add(1);
    if (i >= chunks.size()) break;
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(done[turn].get()));
    auto* buffer = pinned.as<uint16_t>() + turn * buffer_bytes / 2;
    Convert(chunks[i], buffer);
    NEREID_RETURN_IF_CUDA_ERROR(Copy(chunks[i], buffer, memory, stream.get()));
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(done[turn].get(), stream.get()));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
  return {};
}

}  // namespace

Status UploadWeights(const std::vector<WeightPart>& parts, const DeviceMemory& memory) {
  std::vector<Chunk> chunks;
  int64_t buffer_bytes = 0;
  for (const WeightPart& part : parts) {
    if (part.weight == nullptr) return InternalError("a weight of the decoder is not mapped");
    const int64_t unit = part.group_rows == part.rows ? 1 : part.group_rows;
    const int64_t rows = std::max(unit, kChunkBytes / (part.columns * 2) / unit * unit);
    for (int64_t row = 0; row < part.rows; row += rows) {
      chunks.push_back({&part, row, std::min(rows, part.rows - row)});
      buffer_bytes = std::max(buffer_bytes, chunks.back().num_rows * part.columns * 2);
    }
  }
  int device = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  const size_t num_threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failure;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(num_threads, chunks.size()); ++i) {
    threads.emplace_back([&] {
      if (Status status = UploadSome(chunks, next, buffer_bytes, memory, device); !status.ok()) {
        next = chunks.size();
        const std::lock_guard lock(mutex);
        failure = std::move(status);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace nereid::gpu
