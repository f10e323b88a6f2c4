// The requests of one Execute. An author loops over them, or works on the batch as a whole: inputs
// gathered into one block along the batch dimension, outputs scattered back. Requests that are
// still here and unanswered when Execute returns are finished by the SDK; those taken out belong
// to their taker. [instance thread, during Execute]
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
#include "nereid/execution.h"
#include "nereid/request.h"
#include "nereid/tensor_view.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

// One input of all open requests, row after row.
template <typename T>
struct Gathered {
  std::span<const T> elements;  // lives as long as the batch
  std::vector<int64_t> shape;   // the first dimension counts the rows of the batch
};

class Batch {
 public:
  // Takes the requests over from the host. `instance` outlives them.
  Batch(std::span<TRITONBACKEND_Request* const> handles, const InstanceContext& instance)
      : instance_(instance) {
    std::vector<int64_t> rows(handles.size(), 1);
    uint64_t batch_size = 0;
    for (size_t i = 0; i < handles.size(); ++i) {
      if (is_batching()) rows[i] = RowsOf(handles[i]);
      batch_size += static_cast<uint64_t>(rows[i]);
    }
    execution_ = std::make_shared<Execution>(instance, batch_size);
    requests_.reserve(handles.size());
    for (size_t i = 0; i < handles.size(); ++i) {
      requests_.emplace_back(ResponseSender(handles[i], instance, execution_), rows[i]);
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // ---- one by one

  size_t size() const { return requests_.size(); }
  Request& operator[](size_t index) { return requests_[index]; }
  auto begin() { return requests_.begin(); }
  auto end() { return requests_.end(); }
  const InstanceContext& instance() const { return instance_; }

  // For a backend that answers later, on threads of its own: the requests leave the batch, Execute
  // may return at once. Each is to be finished or failed by its taker.
  std::vector<Request> Take() {
    requests_.swap(taken_);
    return std::move(taken_);
  }

  // ---- as a whole: over the requests that were not failed yet

  // Rows of the open requests: the first dimension of what Gather gives and Output takes.
  int64_t num_rows() const {
    int64_t rows = 0;
    for (const Request& request : requests_) rows += request.is_open() ? request.num_rows() : 0;
    return rows;
  }

  // INVALID_ARG when requests differ in the dimensions after the first, or one lacks the input.
  // Without copying when there is one request. UNSUPPORTED for several requests of a model that
  // does not batch.
  template <TensorElement T>
  Result<Gathered<T>> Gather(const char* name) {
    NEREID_ASSIGN_OR_RETURN(GatheredBytes gathered, GatherViews(name, kDataTypeOf<T>));
    Gathered<T> result;
    result.shape = std::move(gathered.shape);
    if (gathered.views.size() == 1) {
      NEREID_ASSIGN_OR_RETURN(result.elements, gathered.views[0]->template As<T>());
    } else {
      NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Join(gathered.views));
      result.elements = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    execution_->MarkInputsRead();
    return result;
  }
  struct GatheredStrings {
    std::vector<std::string_view> elements;
    std::vector<int64_t> shape;
  };
  // The same for a BYTES input.
  Result<GatheredStrings> GatherStrings(const char* name) {
    NEREID_ASSIGN_OR_RETURN(GatheredBytes gathered, GatherViews(name, DataType::kBytes));
    GatheredStrings result{{}, std::move(gathered.shape)};
    for (TensorView* view : gathered.views) {
      NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> strings, view->Strings());
      result.elements.insert(result.elements.end(), strings.begin(), strings.end());
    }
    execution_->MarkInputsRead();
    return result;
  }

  // Memory for an output of the whole batch, not initialised; scattered to the requests that want
  // it when Execute returns. The first dimension of `shape` is num_rows(), where the model batches.
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_RETURN_IF_ERROR(CheckRows("output", name, shape));
    if (Request* only = OnlyOpenRequest()) return only->Output<T>(name, shape);
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape, sizeof(T)));
    Scattered& output = scattered_.emplace_back(name, kDataTypeOf<T>, shape, OpenRequests());
    output.bytes = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T));
    return std::span(reinterpret_cast<T*>(output.bytes.get()), count);
  }
  // The same for a BYTES output, `elements` in the order of rows.
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

  // Scatters the outputs and finishes every open request, with the error when `status` is one. The
  // SDK calls it when Execute has returned; calling it earlier is legal, later ones do nothing.
  void Complete(const Status& status) {
    if (!requests_.empty()) execution_->MarkComputed();
    for (Scattered& output : scattered_) {
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
  struct Scattered {
    Scattered(const char* name, DataType datatype, ShapeView shape, std::vector<Request*> requests)
        : name(name),
          datatype(datatype),
          shape(shape.begin(), shape.end()),
          requests(std::move(requests)) {}
    std::string name;
    DataType datatype;
    std::vector<int64_t> shape;
    std::vector<Request*> requests;  // whose rows it holds; some may be answered by now
    std::unique_ptr<std::byte[]> bytes;
    std::vector<std::string> strings;  // of a BYTES output, instead of bytes
  };
  struct GatheredBytes {
    std::vector<TensorView*> views;
    std::vector<int64_t> shape;
  };

  bool is_batching() const { return instance_.model().config().max_batch_size() > 0; }

  // What cannot be read counts as one row here and fails where the author reads it.
  static int64_t RowsOf(TRITONBACKEND_Request* request) {
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
    if (!shape.empty() && shape[0] == num_rows()) return {};
    return InvalidArgError(what, " '", name, "': expected ", num_rows(),
                           " as the first dimension, got shape ", ToString(shape));
  }

  Result<GatheredBytes> GatherViews(const char* name, DataType datatype) {
    GatheredBytes gathered;
    for (const Request& request : requests_) {
      if (!request.is_open()) continue;
      NEREID_ASSIGN_OR_RETURN(TensorView view, request.Input(name));
      NEREID_RETURN_IF_ERROR(view.Expect(datatype));
      NEREID_RETURN_IF_ERROR(Stack(view, gathered));
      views_.push_back(std::make_unique<TensorView>(std::move(view)));
      gathered.views.push_back(views_.back().get());
    }
    NEREID_RETURN_IF_ERROR(CheckRows("input", name, gathered.shape));
    return gathered;
  }

  // Adds the rows of one more request to the shape of the whole.
  static Status Stack(const TensorView& view, GatheredBytes& gathered) {
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

  Result<std::span<const std::byte>> Join(const std::vector<TensorView*>& views) {
    size_t size_bytes = 0;
    for (const TensorView* view : views) size_bytes += view->size_bytes();
    joined_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_bytes));
    std::span<std::byte> target(joined_.back().get(), size_bytes);
    for (const TensorView* view : views) {
      NEREID_RETURN_IF_ERROR(view->CopyTo(target));
      target = target.subspan(view->size_bytes());
    }
    return std::span<const std::byte>(joined_.back().get(), size_bytes);
  }

  // A request that cannot take its part fails alone.
  static void Scatter(Scattered& output) {
    size_t first = 0;
    for (Request* request : output.requests) {
      output.shape[0] = request->num_rows();
      const Result<size_t> count = ElementCount(output.shape);
      if (request->is_open() && count.ok()) {
        const Status status = ScatterTo(*request, output, first, *count);
        if (!status.ok()) (void)request->Fail(status);
      }
      if (count.ok()) first += *count;
    }
  }
  // `first` is the first element of the request's part.
  static Status ScatterTo(Request& request, Scattered& output, size_t first, size_t count) {
    NEREID_ASSIGN_OR_RETURN(Response * response, request.TheResponse());
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
  std::shared_ptr<Execution> execution_;
  std::vector<Request> requests_, taken_;
  std::vector<std::unique_ptr<TensorView>> views_;    // of the gathered inputs
  std::vector<std::unique_ptr<std::byte[]>> joined_;  // their blocks
  std::vector<Scattered> scattered_;
};

}  // namespace sdk
}  // namespace nereid
