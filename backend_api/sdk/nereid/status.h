/// \file
/// Status and Result<T>: how all C++ code of the project reports errors. Independent of the C API:
/// the codes have the values of TRITONSERVER_Error_Code, and error.h converts. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace nereid {

enum class StatusCode : uint32_t {
  kUnknown = 0,
  kInternal = 1,
  kNotFound = 2,
  kInvalidArg = 3,
  kUnavailable = 4,
  kUnsupported = 5,
  kAlreadyExists = 6,
  kCancelled = 7,
};

/// Concatenates streamable values into one string; used to format messages.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

/// The outcome of an operation. Invariant: ok() iff rep_ is null, so that success costs a null
/// pointer.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : rep_(std::make_unique<Rep>(Rep{code, std::move(message)})) {}
  Status(const Status& other) : rep_(other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) rep_ = other.rep_ ? std::make_unique<Rep>(*other.rep_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  static Status Ok() { return {}; }

  bool ok() const { return rep_ == nullptr; }
  /// Meaningful only if !ok().
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kUnknown; }
  const std::string& message() const {
    static const std::string kEmpty;
    return rep_ ? rep_->message : kEmpty;
  }
  /// The same code with `context` and ": " before the message; Ok stays Ok.
  Status WithContext(std::string_view context) && {
    if (rep_) rep_->message = StrCat(context, ": ", rep_->message);
    return std::move(*this);
  }

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

template <typename... Args>
Status InternalError(const Args&... args) {
  return {StatusCode::kInternal, StrCat(args...)};
}
template <typename... Args>
Status NotFoundError(const Args&... args) {
  return {StatusCode::kNotFound, StrCat(args...)};
}
template <typename... Args>
Status InvalidArgError(const Args&... args) {
  return {StatusCode::kInvalidArg, StrCat(args...)};
}
template <typename... Args>
Status UnavailableError(const Args&... args) {
  return {StatusCode::kUnavailable, StrCat(args...)};
}
template <typename... Args>
Status UnsupportedError(const Args&... args) {
  return {StatusCode::kUnsupported, StrCat(args...)};
}
template <typename... Args>
Status AlreadyExistsError(const Args&... args) {
  return {StatusCode::kAlreadyExists, StrCat(args...)};
}
template <typename... Args>
Status CancelledError(const Args&... args) {
  return {StatusCode::kCancelled, StrCat(args...)};
}

/// A value, or the Status that explains its absence (never Ok).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<1>, std::move(value)) {}  // NOLINT: implicit by intent
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {}  // NOLINT

  bool ok() const { return state_.index() == 1; }
  /// Ok if there is a value.
  Status status() const& { return ok() ? Status() : std::get<0>(state_); }
  Status status() && { return ok() ? Status() : std::get<0>(std::move(state_)); }

  /// Require ok().
  T& value() & { return std::get<1>(state_); }
  const T& value() const& { return std::get<1>(state_); }
  T&& value() && { return std::get<1>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace nereid

#define NEREID_CONCAT_INNER(a, b) a##b
#define NEREID_CONCAT(a, b) NEREID_CONCAT_INNER(a, b)

/// Returns `expr`, a Status, from the enclosing function (of type Status or Result<U>) if it is not
/// Ok.
#define NEREID_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                      \
    if (::nereid::Status nereid_status = (expr); !nereid_status.ok()) return nereid_status; \
  } while (false)

/// Assigns the value of `expr`, a Result<T>, to `lhs`. If there is none, returns its Status from
/// the enclosing function.
#define NEREID_ASSIGN_OR_RETURN(lhs, expr) \
  NEREID_ASSIGN_OR_RETURN_IMPL(NEREID_CONCAT(nereid_result_, __LINE__), lhs, expr)
#define NEREID_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return std::move(result).status();  \
  lhs = std::move(result).value()
