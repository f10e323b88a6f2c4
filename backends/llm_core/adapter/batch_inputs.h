// The input tensors of a request by name, with access to each batch item. [instance thread]
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nereid/backend.h"

namespace nereid::llm {

// A batch item is a row. The request must outlive the object.
class BatchInputs {
 public:
  static Result<BatchInputs> Of(Request& request) {
    BatchInputs rows;
    rows.num_rows_ = std::max<int64_t>(1, request.batch_size());
    NEREID_ASSIGN_OR_RETURN(std::vector<TensorView> views, request.Inputs());
    for (TensorView& view : views) {
      std::string name = view.name();
      rows.views_.emplace(std::move(name), std::move(view));
    }
    return rows;
  }

  int64_t num_rows() const { return num_rows_; }
  TensorView* Find(std::string_view name) {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }

  // The elements of one row; empty if the input is absent.
  template <typename T>
  Result<std::span<const T>> Row(std::string_view name, int64_t row) {
    TensorView* view = Find(name);
    if (view == nullptr) return std::span<const T>();
    NEREID_ASSIGN_OR_RETURN(const std::span<const T> elements, Elements<T>(*view));
    if (elements.size() % num_rows_ != 0) {
      return InvalidArgError("input '", name, "': shape ", ToString(view->shape()),
                             " does not divide into ", num_rows_, " rows");
    }
    const size_t size = elements.size() / num_rows_;
    return elements.subspan(row * size, size);
  }

  // Sets `value` if the input is present.
  template <typename T, typename To>
  Status Scalar(std::string_view name, int64_t row, To& value) {
    NEREID_ASSIGN_OR_RETURN(const std::span<const T> elements, Row<T>(name, row));
    TensorView* view = Find(name);
    if (view == nullptr) return {};
    if (elements.size() != 1) {
      return InvalidArgError("input '", name, "': expected one value a row, got shape ",
                             ToString(view->shape()), " for ", num_rows_, " rows");
    }
    value = elements[0];
    return {};
  }

  // The text of one row, or nothing if the input is absent.
  Result<std::optional<std::string_view>> Text(std::string_view name, int64_t row) {
    TensorView* view = Find(name);
    if (view == nullptr) return std::optional<std::string_view>();
    NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view->Strings());
    if (static_cast<int64_t>(texts.size()) != num_rows_) {
      return InvalidArgError("input '", name, "': expected one value a row, got ", texts.size(),
                             " for ", num_rows_, " rows");
    }
    return std::optional(texts[row]);
  }

 private:
  // Releases of the TensorRT-LLM backend before 0.7 use UINT32 where later ones use INT32.
  template <typename T>
  static Result<std::span<const T>> Elements(TensorView& view) {
    if constexpr (std::is_same_v<T, int32_t>) {
      if (view.datatype() == DataType::kUint32) {
        NEREID_ASSIGN_OR_RETURN(const std::span<const uint32_t> elements, view.As<uint32_t>());
        return std::span(reinterpret_cast<const T*>(elements.data()), elements.size());
      }
    }
    return view.As<T>();
  }

  std::map<std::string, TensorView, std::less<>> views_;
  int64_t num_rows_ = 1;
};

}  // namespace nereid::llm
