#include "host/core/request/trace_tensors.h"

#include <cstring>
#include <vector>

#include "host/core/observe/trace.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/infer_response.h"

namespace nereid::core {
namespace {

bool IsOnHost(const InputBuffers& buffers) {
  for (const InputBuffer& buffer : buffers) {
    if (buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return false;
  }
  return true;
}

std::vector<char> Join(const InputBuffers& buffers, uint64_t byte_size) {
  std::vector<char> joined;
  joined.reserve(byte_size);
  for (const InputBuffer& buffer : buffers) {
    const char* base = static_cast<const char*>(buffer.base);
    joined.insert(joined.end(), base, base + buffer.attributes.byte_size);
  }
  return joined;
}

void TraceInput(InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                const InputTensor& input) {
  TracedTensor traced{input.name.c_str(),
                      static_cast<TRITONSERVER_DataType>(input.data_type),
                      nullptr,
                      input.byte_size,
                      {input.shape.data(), input.shape.size()}};
  std::vector<char> joined;
  if (input.buffers.empty()) return;
  if (input.buffers.size() == 1) {
    traced.base = input.buffers[0].base;
    traced.memory_type = input.buffers[0].attributes.memory_type;
    traced.memory_type_id = input.buffers[0].attributes.memory_type_id;
  } else if (IsOnHost(input.buffers)) {
    joined = Join(input.buffers, input.byte_size);
    traced.base = joined.data();
  } else {
    return;  // several buffers on a GPU cannot be reported as one pointer
  }
  trace->ReportTensor(activity, traced);
}

}  // namespace

void TraceInputs(InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                 const InferRequest& request) {
  if (!trace->reports_tensors()) return;
  for (size_t i = 0; i < request.num_inputs(); ++i) TraceInput(trace, activity, request.input(i));
}

void TraceOutputs(InferenceTrace* trace, const InferResponse& response) {
  if (!trace->reports_tensors()) return;
  for (size_t i = 0; i < response.num_outputs(); ++i) {
    OutputTensor& output = *response.output(i);
    const BufferAttributes& attributes = output.attributes();
    trace->ReportTensor(TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT,
                        {output.name().c_str(),
                         static_cast<TRITONSERVER_DataType>(output.data_type()),
                         output.base(),
                         attributes.byte_size,
                         {output.shape().data(), output.shape().size()},
                         attributes.memory_type,
                         attributes.memory_type_id});
  }
}

}  // namespace nereid::core
