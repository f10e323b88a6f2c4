// See objects.h.
#include "backends/tokenizer/lib/chat/jinja/objects.h"

namespace nereid::tokenizer::jinja {

std::optional<Value> LoopObject::Attribute(std::string_view name) {
  if (elements_ == nullptr) return std::nullopt;
  const auto size = static_cast<int64_t>(elements_->size());
  const auto index = static_cast<int64_t>(index_);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(int64_t{depth_} + 1);
  if (name == "depth0") return Value(int64_t{depth_});
  if (name == "previtem") {
    return index > 0 ? (*elements_)[index_ - 1] : Value::Undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? (*elements_)[index_ + 1] : Value::Undefined("there is no next item");
  }
  return std::nullopt;
}

void LoopObject::End() {
  elements_ = nullptr;
  scope_.reset();
}

Result<Value> LoopObject::Call(Interpreter& interpreter, Arguments arguments) {
  if (!statement_.is_recursive) {
    return InvalidArgError("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1 || scope_ == nullptr) {
    return InvalidArgError("loop(): expected 1 argument, got ", arguments.positional.size());
  }
  return interpreter.RunLoop(statement_, scope_, arguments.positional[0], depth_ + 1);
}

Result<Value> LoopObject::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) return InvalidArgError("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value LoopObject::IsChanged(Arguments arguments) {
  Value current{List(std::move(arguments.positional), ListForm::kTuple)};
  const bool is_changed = !last_changed_.has_value() || !IsEqual(*last_changed_, current);
  last_changed_ = std::move(current);
  return Value(is_changed);
}

}  // namespace nereid::tokenizer::jinja
