/// \file
/// The requests of one call of Execute. A backend loops over them, or works on the batch as a
/// whole: Gather joins the inputs along the batch dimension, Output and SetStrings scatter the
/// outputs back. When Execute returns, the SDK finishes every request that is still in the batch
/// and unanswered. The owner of a request that was taken out with Take() answers it. [instance
/// thread, during Execute]
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/request.h"
#include "nereid/response_sender.h"
#include "nereid/tensor_view.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

/// One input of all open requests, concatenated along the batch dimension.
template <typename T>
struct Gathered {
  std::span<const T> elements;  ///< valid as long as the batch
  std::vector<int64_t> shape;   ///< shape[0] is Batch::batch_size()
};

class Batch {
 public:
  /// Takes the requests over from the host. `instance` outlives them.
  Batch(std::span<TRITONBACKEND_Request* const> handles, const InstanceContext& instance)
      : instance_(instance) {
    std::vector<int64_t> rows(handles.size(), 1);
    uint64_t batch_size = 0;
    for (size_t i = 0; i < handles.size(); ++i) {
      if (is_batching()) rows[i] = BatchSizeOf(handles[i]);
      batch_size += static_cast<uint64_t>(rows[i]);
    }
    execution_ = std::make_shared<ExecutionStatistics>(instance, batch_size);
    requests_.reserve(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      requests_.emplace_back(ResponseSender(handles[i], instance, execution_), rows[i]);
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // ---- requests one by one

  size_t size() const { return requests_.size(); }
  Request& operator[](size_t index) { return requests_[index]; }
  auto begin() { return requests_.begin(); }
  auto end() { return requests_.end(); }
  const InstanceContext& instance() const { return instance_; }

  /// Moves the requests out of the batch, for a backend that answers later on threads of its own;
  /// Execute may return at once. The caller finishes or fails each request.
  std::vector<Request> Take() {
    requests_.swap(taken_);
    return std::move(taken_);
  }

  // ---- the batch as a whole: the requests that are still open

  /// The sum of the open requests' batch sizes: shape[0] of what Gather returns and Output takes.
  int64_t batch_size() const {
    int64_t rows = 0;
    for (const Request& request : requests_) rows += request.is_open() ? request.batch_size() : 0;
    return rows;
  }

  /// Does not copy when the batch has one request. INVALID_ARG if a request lacks the input or if
  /// the requests differ in a dimension after the first. UNSUPPORTED for several requests of a
  /// model that does not batch.
  template <TensorElement T>
  Result<Gathered<T>> Gather(const char* name) {
    NEREID_ASSIGN_OR_RETURN(GatheredViews gathered, GatherViews(name, kDataTypeOf<T>));
    Gathered<T> result;
    result.shape = std::move(gathered.shape);
    if (gathered.views.size() == 1) {
      NEREID_ASSIGN_OR_RETURN(result.elements, gathered.views[0]->template As<T>());
    } else {
      NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Concatenate(gathered.views));
      result.elements = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    execution_->MarkInputsRead();
    return result;
  }
  struct GatheredStrings {
    std::vector<std::string_view> elements;
    std::vector<int64_t> shape;
  };
  /// The same for a BYTES input.
  Result<GatheredStrings> GatherStrings(const char* name) {
    NEREID_ASSIGN_OR_RETURN(GatheredViews gathered, GatherViews(name, DataType::kBytes));
    GatheredStrings result{{}, std::move(gathered.shape)};
    for (TensorView* view : gathered.views) {
      NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> strings, view->Strings());
      result.elements.insert(result.elements.end(), strings.begin(), strings.end());
    }
    execution_->MarkInputsRead();
    return result;
  }

  /// Uninitialised memory for an output of the whole batch. When Execute returns, the SDK scatters
  /// it to the requests that asked for the output. Where the model batches, shape[0] is
  /// batch_size().
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_RETURN_IF_ERROR(CheckRows("output", name, shape));
    if (Request* only = OnlyOpenRequest()) return only->Output<T>(name, shape);
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape, sizeof(T)));
    ScatteredOutput& output = scattered_.emplace_back(name, kDataTypeOf<T>, shape, OpenRequests());
    output.bytes = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T));
    return std::span(reinterpret_cast<T*>(output.bytes.get()), count);
  }
  /// The same for a BYTES output, with the elements in row-major order.
  Status SetStrings(const char* name, ShapeView shape, std::vector<std::string> elements) {
    NEREID_RETURN_IF_ERROR(CheckRows("output", name, shape));
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape));
    if (count != elements.size()) {
      return InvalidArgError("output '", name, "': expected ", count, " elements for shape ",
                             ToString(shape), ", got ", elements.size());
    }
    if (Request* only = OnlyOpenRequest()) return only->SetStrings(name, shape, elements);
    scattered_.emplace_back(name, DataType::kBytes, shape, OpenRequests()).strings =
        std::move(elements);
    return {};
  }

  /// Scatters the outputs and finishes every open request, with an error response if `status` is an
  /// error. The SDK calls it after Execute. A backend may call it earlier; further calls do
  /// nothing.
  void Complete(const Status& status) {
    if (!requests_.empty()) execution_->MarkComputed();
    for (ScatteredOutput& output : scattered_) {
      if (status.ok()) Scatter(output);
    }
    scattered_.clear();
    execution_.reset();
    for (Request& request : requests_) {
      if (!request.is_open()) continue;
      const Status sent = status.ok() ? request.Finish() : request.Fail(status);
      if (!sent.ok()) {
        LogError(StrCat("model '", instance_.model().name(),
                        "': a response could not be sent: ", sent.message()));
      }
    }
  }

 private:
  struct ScatteredOutput {
    ScatteredOutput(const char* name, DataType datatype, ShapeView shape,
                    std::vector<Request*> requests)
        : name(name),
          datatype(datatype),
          shape(shape.begin(), shape.end()),
          requests(std::move(requests)) {}
    std::string name;
    DataType datatype;
    std::vector<int64_t> shape;
    /// The requests whose rows the output has; some may be answered meanwhile.
    std::vector<Request*> requests;
    std::unique_ptr<std::byte[]> bytes;
    std::vector<std::string> strings;  ///< of a BYTES output, instead of bytes
  };
  struct GatheredViews {
    std::vector<TensorView*> views;
    std::vector<int64_t> shape;
  };

  bool is_batching() const { return instance_.model().config().max_batch_size() > 0; }

  /// 1 if the first input cannot be read; the backend gets the error when it reads the input
  /// itself.
  static int64_t BatchSizeOf(TRITONBACKEND_Request* request) {
    TRITONBACKEND_Input* input = nullptr;
    const int64_t* shape = nullptr;
    uint32_t num_dims = 0;
    if (!ToStatus(TRITONBACKEND_RequestInputByIndex(request, 0, &input)).ok() ||
        !ToStatus(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &num_dims, nullptr,
                                                nullptr))
             .ok() ||
        num_dims == 0) {
      return 1;
    }
    return shape[0];
  }

  std::vector<Request*> OpenRequests() {
    std::vector<Request*> open;
    for (Request& request : requests_) {
      if (request.is_open()) open.push_back(&request);
    }
    return open;
  }
  Request* OnlyOpenRequest() {
    if (requests_.size() == 1) return requests_[0].is_open() ? &requests_[0] : nullptr;
    const std::vector<Request*> open = OpenRequests();
    return open.size() == 1 ? open[0] : nullptr;
  }

  Status CheckRows(const char* what, const char* name, std::span<const int64_t> shape) const {
    if (!is_batching()) {
      if (requests_.size() <= 1) return {};
      return UnsupportedError(what, " '", name, "': model '", instance_.model().name(),
                              "' does not batch; expected 1 request, got ", requests_.size());
    }
    if (!shape.empty() && shape[0] == batch_size()) return {};
    return InvalidArgError(what, " '", name, "': expected ", batch_size(),
                           " as the first dimension, got shape ", ToString(shape));
  }

  Result<GatheredViews> GatherViews(const char* name, DataType datatype) {
    GatheredViews gathered;
    for (const Request& request : requests_) {
      if (!request.is_open()) continue;
      NEREID_ASSIGN_OR_RETURN(TensorView view, request.Input(name));
      NEREID_RETURN_IF_ERROR(view.Expect(datatype));
      NEREID_RETURN_IF_ERROR(AppendShape(view, gathered));
      views_.push_back(std::make_unique<TensorView>(std::move(view)));
      gathered.views.push_back(views_.back().get());
    }
    NEREID_RETURN_IF_ERROR(CheckRows("input", name, gathered.shape));
    return gathered;
  }

  /// Adds the rows of one more request to the gathered shape.
  static Status AppendShape(const TensorView& view, GatheredViews& gathered) {
    const std::span<const int64_t> shape = view.shape();
    if (gathered.views.empty()) {
      gathered.shape.assign(shape.begin(), shape.end());
      return {};
    }
    bool is_alike = !shape.empty() && shape.size() == gathered.shape.size();
    for (size_t i = 1; is_alike && i < shape.size(); ++i) is_alike = shape[i] == gathered.shape[i];
    if (!is_alike) {
      return InvalidArgError("input '", view.name(), "': requests of one batch differ: expected ",
                             ToString(gathered.views[0]->shape()), ", got ", ToString(shape));
    }
    gathered.shape[0] += shape[0];
    return {};
  }

  Result<std::span<const std::byte>> Concatenate(const std::vector<TensorView*>& views) {
    size_t size_bytes = 0;
    for (const TensorView* view : views) size_bytes += view->size_bytes();
    concatenated_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_bytes));
    std::span<std::byte> target(concatenated_.back().get(), size_bytes);
    for (const TensorView* view : views) {
      NEREID_RETURN_IF_ERROR(view->CopyTo(target));
      target = target.subspan(view->size_bytes());
    }
    return std::span<const std::byte>(concatenated_.back().get(), size_bytes);
  }

  /// If a request's share of the output cannot be written, only this request fails.
  static void Scatter(ScatteredOutput& output) {
    size_t first = 0;
    for (Request* request : output.requests) {
      output.shape[0] = request->batch_size();
      const Result<size_t> count = ElementCount(output.shape);
      if (request->is_open() && count.ok()) {
        const Status status = ScatterTo(*request, output, first, *count);
        if (!status.ok()) (void)request->Fail(status);
      }
      if (count.ok()) first += *count;
    }
  }
  /// `first` is the index of the request's first element in the output.
  static Status ScatterTo(Request& request, ScatteredOutput& output, size_t first, size_t count) {
    NEREID_ASSIGN_OR_RETURN(Response * response, request.GetOrCreateResponse());
    if (output.datatype == DataType::kBytes) {
      return response->SetStrings(output.name.c_str(), output.shape,
                                  std::span(output.strings).subspan(first, count));
    }
    const size_t element_bytes = ByteSize(output.datatype);
    NEREID_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                            response->OutputBytes(output.name.c_str(), output.datatype,
                                                  output.shape, count * element_bytes));
    if (count == 0) return {};
    std::memcpy(target.data(), output.bytes.get() + first * element_bytes, target.size());
    return {};
  }

  const InstanceContext& instance_;
  std::shared_ptr<ExecutionStatistics> execution_;
  std::vector<Request> requests_, taken_;
  std::vector<std::unique_ptr<TensorView>> views_;  ///< of the gathered inputs
  std::vector<std::unique_ptr<std::byte[]>>
      concatenated_;  ///< the concatenated bytes of the gathered inputs
  std::vector<ScatteredOutput> scattered_;
};

}  // namespace nereid
