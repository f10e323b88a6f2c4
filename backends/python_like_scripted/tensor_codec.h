// Tensors and responses between the C API and messages. Short tensors travel inside the message,
// others through shared memory: an input is copied into it once, an output out of it once, if it is
// not lent.
// [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/python_like_scripted/gpu_region.h"
#include "backends/python_like_scripted/loans.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/offers.h"
#include "backends/python_like_scripted/shared_region.h"
#include "nereid/request.h"
#include "nereid/response.h"

namespace nereid::scripted {

// Shorter tensors travel inside their message.
inline constexpr size_t kInlineBytes = 8192;

// A tensor in a message: its bytes in the message, in a block, or in memory of a GPU.
struct PackedTensor {
  std::string_view name;
  DataType datatype = DataType::kInvalid;
  std::vector<int64_t> shape;
  std::string_view inline_bytes;
  std::optional<Block> block;
  bool is_handed_back = false;  // the block is one of the host's, which the worker will give back
  bool is_lent = false;         // the client gives the block back
  std::optional<GpuPlace> gpu;

  // Of memory of the host.
  std::string_view bytes() const {
    if (!block.has_value()) return inline_bytes;
    return {reinterpret_cast<const char*>(block->data()), block->size_bytes};
  }
};

// Views into the message that they were read from.
struct PackedParameter {
  std::string_view name;
  enum class Kind { kText, kInt, kBool, kDouble } kind = Kind::kText;
  std::string_view text;
  int64_t number = 0;
  double real = 0;
};
struct PackedResponse {
  std::vector<PackedTensor> outputs;
  std::optional<Status> error;
  std::vector<PackedParameter> parameters;
  GpuRegion* gpu = nullptr;  // of outputs that lie on a GPU
  Loans* loans = nullptr;    // null: everything is copied

  bool MayLend(const PackedTensor& output) const;

  // Gives the blocks back to the worker.
  void Release() const;
};

// (name, type, shape, data). The block that it takes, if any, joins `blocks`; an error leaves a
// part of the tensor in the message. What lies in one of the `offers` stays there. So does what
// lies in memory of a GPU with `gpu`, else it is copied to the host's.
Status WriteTensor(const TensorView& tensor, SharedRegion& region, Offers& offers, GpuRegion* gpu,
                   std::vector<Block>& blocks, MarshalWriter& writer);
// The same of bytes in memory of a GPU that `block` names; the worker gives it back.
void WriteGpuTensor(const char* name, TRITONSERVER_DataType datatype,
                    std::span<const int64_t> shape, const GpuBlock& block, MarshalWriter& writer);
// The same of bytes that lie in a block of `region`, or short ones anywhere.
void WriteTensor(const char* name, TRITONSERVER_DataType datatype, std::span<const int64_t> shape,
                 std::string_view bytes, const Block* block, MarshalWriter& writer);

// Checks that type, shape and size agree; faults go to the reader. What the worker got from the
// host and hands back uncopied lies in `to_worker`, and is taken only where that is not null. It
// and memory of a GPU stay as they are until the worker hears that the message was handled.
PackedTensor ReadTensor(MarshalReader& reader, SharedRegion& region,
                        SharedRegion* to_worker = nullptr);
std::vector<PackedParameter> ReadParameters(MarshalReader& reader);
PackedResponse ReadResponse(MarshalReader& reader, SharedRegion& region,
                            SharedRegion* to_worker = nullptr);

// Copies outputs and parameters to what the client gets, in the memory where it wants them, or
// lends the outputs; PackedResponse::Release gives the other blocks back.
Status FillResponse(PackedResponse& packed, Response& response);

}  // namespace nereid::scripted
