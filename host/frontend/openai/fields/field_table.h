// The fields of request bodies: one table, from which checks, texts of errors, the tensors of a
// model and the description of the API are made. Constant. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace nereid::openai {

enum class FieldKind : uint8_t {
  kBool,
  kInteger,
  kNumber,
  kText,
  kTextOrTexts,  // one text or a list of texts
  kTexts,
  kIntegers,
  kObject,
  kArray,
  kAny,  // the route reads it
};

enum class Handling : uint8_t {
  kTensor,    // becomes the model's input of the name `tensor`
  kRoute,     // the route's own code uses it
  kNoEffect,  // accepted; it changes nothing
  kRefused,   // `note` says why
};

// The routes that accept a field, as bits.
enum RouteSet : uint16_t {
  kChat = 1,
  kCompletions = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kMessages = 16,
  kResponses = 32,
  kLoadAdapter = 64,
  kUnloadAdapter = 128,
  kGenerate = kChat | kCompletions,
};

struct Field {
  std::string_view name;
  uint16_t routes;  // of RouteSet
  FieldKind kind;
  Handling handling;
  // For kTensor: the input that carries the value. A model without it refuses the field.
  std::string_view tensor = {};
  // Limits of a number, and of each number of a list. For a list of texts, `max` is the most texts.
  double min = 0;
  double max = 0;
  // JSON of a value that changes nothing; always accepted. Empty: there is none.
  std::string_view neutral = {};
  std::string_view note;  // what the field does, or why it is refused
};

std::span<const Field> Fields();

// Null if `route` knows no field of this name.
const Field* FindField(RouteSet route, std::string_view name);

// The field of `route` whose name is closest to `name`; empty if none is close.
std::string_view ClosestField(RouteSet route, std::string_view name);

// "a boolean", "an integer" and so on, for messages.
std::string_view Describe(FieldKind kind);

}  // namespace nereid::openai
