// See classification.h.
#include "host/frontend/classification.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "nereid/bytes_codec.h"
#include "nereid/data_type.h"

namespace nereid {
namespace {

template <typename T>
bool IsNan(T value) {
  return value != value;
}

// Appends the classes of the `count` values from index `first` on.
template <typename T>
Status AppendBest(const InferResponse& response, uint32_t output_index, const void* base,
                  size_t first, size_t count, size_t num_classes, std::string& data) {
  // Copies the values: if other threads wrote to them during the sort, the order would be
  // inconsistent.
  std::vector<T> values(count);
  const size_t size_bytes = count * sizeof(T);
  if (count != 0) {
    std::memcpy(values.data(), static_cast<const char*>(base) + first * sizeof(T), size_bytes);
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::partial_sort(order.begin(), order.begin() + num_classes, order.end(),
                    [&](size_t left, size_t right) {
                      const T a = values[left];
                      const T b = values[right];
                      if (IsNan(a) != IsNan(b)) return IsNan(b);
                      if (a > b || b > a) return a > b;
                      return left < right;
                    });
  for (size_t rank = 0; rank < num_classes; ++rank) {
    const size_t index = order[rank];
    std::string text = std::to_string(values[index]);
    text.append(":").append(std::to_string(index));
    NEREID_ASSIGN_OR_RETURN(const char* label, response.ClassificationLabel(output_index, index));
    if (label != nullptr) text.append(":").append(label);
    NEREID_RETURN_IF_ERROR(AppendBytes(text, data));
  }
  return {};
}

template <typename T>
Result<ClassificationOutput> ClassifyAs(const InferResponse& response, uint32_t index,
                                        const OutputView& output, bool is_batched,
                                        uint64_t max_classes) {
  const size_t num_values = output.size_bytes / sizeof(T);
  const bool has_batch = is_batched && !output.shape.empty();
  const size_t batch_size = has_batch ? static_cast<size_t>(output.shape[0]) : 1;
  if (batch_size == 0 || num_values % batch_size != 0 || output.size_bytes % sizeof(T) != 0) {
    return InvalidArgError("output '", output.name, "': cannot classify ", output.size_bytes,
                           " bytes as a batch of ", batch_size);
  }
  const size_t values_per_element = num_values / batch_size;
  const size_t num_classes = std::min<uint64_t>(max_classes, values_per_element);
  ClassificationOutput classes;
  if (has_batch) classes.shape.push_back(static_cast<int64_t>(batch_size));
  classes.shape.push_back(static_cast<int64_t>(num_classes));
  for (size_t element = 0; element < batch_size; ++element) {
    NEREID_RETURN_IF_ERROR(AppendBest<T>(response, index, output.base, element * values_per_element,
                                         values_per_element, num_classes, classes.data));
  }
  return classes;
}

}  // namespace

Result<ClassificationOutput> Classify(const InferResponse& response, uint32_t index,
                                      const OutputView& output, bool is_batched,
                                      uint64_t max_classes) {
  const auto with = [&]<typename T>(std::type_identity<T>) {
    return ClassifyAs<T>(response, index, output, is_batched, max_classes);
  };
  switch (output.datatype) {
    case TRITONSERVER_TYPE_UINT8:
      return with(std::type_identity<uint8_t>());
    case TRITONSERVER_TYPE_UINT16:
      return with(std::type_identity<uint16_t>());
    case TRITONSERVER_TYPE_UINT32:
      return with(std::type_identity<uint32_t>());
    case TRITONSERVER_TYPE_UINT64:
      return with(std::type_identity<uint64_t>());
    case TRITONSERVER_TYPE_INT8:
      return with(std::type_identity<int8_t>());
    case TRITONSERVER_TYPE_INT16:
      return with(std::type_identity<int16_t>());
    case TRITONSERVER_TYPE_INT32:
      return with(std::type_identity<int32_t>());
    case TRITONSERVER_TYPE_INT64:
      return with(std::type_identity<int64_t>());
    case TRITONSERVER_TYPE_FP32:
      return with(std::type_identity<float>());
    case TRITONSERVER_TYPE_FP64:
      return with(std::type_identity<double>());
    default:
      return InvalidArgError("class result not available for output due to unsupported type '",
                             Name(static_cast<DataType>(output.datatype)), "'");
  }
}

}  // namespace nereid
