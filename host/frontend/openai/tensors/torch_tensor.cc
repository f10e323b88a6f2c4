// The archive is a ZIP file without compression: NAME/data.pkl, NAME/data/KEY and others. See
// APPNOTE.TXT of PKWARE for the archive and pickletools of Python for the instructions.
#include "host/frontend/openai/tensors/torch_tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

namespace nereid::openai {
namespace {

constexpr size_t kMaxEntries = 64;
constexpr size_t kMaxPickleBytes = size_t{1} << 16;
constexpr size_t kMaxValues = 4096;

Status NoTensor(std::string_view why) {
  return InvalidArgError("expected a tensor as torch.save writes it, got ", why);
}

// Reads little-endian numbers and texts from the front; an error leaves has_failed set.
class BytesReader {
 public:
  explicit BytesReader(std::string_view bytes) : rest_(bytes) {}

  std::string_view Take(size_t count) {
    has_failed_ |= count > rest_.size();
    const std::string_view taken = rest_.substr(0, has_failed_ ? 0 : count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  uint64_t TakeNumber(size_t num_bytes) {
    const std::string_view bytes = Take(num_bytes);
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.size(); ++i) number |= uint64_t{uint8_t(bytes[i])} << (8 * i);
    return number;
  }
  std::string_view TakeLine() {
    const size_t end = rest_.find('\n');
    has_failed_ |= end == std::string_view::npos;
    const std::string_view line = Take(has_failed_ ? 0 : end);
    Take(has_failed_ ? 0 : 1);
    return line;
  }
  bool has_failed() const { return has_failed_; }

 private:
  std::string_view rest_;
  bool has_failed_ = false;
};

using Entries = std::map<std::string_view, std::string_view>;  // contents by name

// The bytes of an entry, whose header is at `offset`.
std::optional<std::string_view> ContentAt(std::string_view file, uint64_t offset, uint64_t size) {
  if (offset > file.size()) return std::nullopt;
  BytesReader header(file.substr(offset));
  if (header.Take(4) != "PK\x03\x04") return std::nullopt;
  header.Take(22);
  const uint64_t name_size = header.TakeNumber(2), extra_size = header.TakeNumber(2);
  header.Take(name_size);
  header.Take(extra_size);
  const std::string_view content = header.Take(size);
  return header.has_failed() ? std::nullopt : std::optional(content);
}

Result<Entries> ReadArchive(std::string_view file) {
  constexpr size_t kEndBytes = 22;
  const size_t end = file.size() < kEndBytes ? std::string_view::npos : file.rfind("PK\x05\x06");
  if (!file.starts_with("PK\x03\x04") || end == std::string_view::npos ||
      file.size() - end < kEndBytes) {
    return NoTensor("no archive");
  }
  BytesReader directory_end(file.substr(end + 10));
  const uint64_t count = directory_end.TakeNumber(2);
  directory_end.TakeNumber(4);
  const uint64_t offset = directory_end.TakeNumber(4);
  if (directory_end.has_failed() || offset > file.size()) return NoTensor("a damaged archive");
  if (count > kMaxEntries) return NoTensor("an archive with too many files");
  BytesReader directory(file.substr(offset));
  Entries entries;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view magic = directory.Take(4);
    directory.Take(6);
    const uint64_t method = directory.TakeNumber(2);
    directory.Take(8);
    const uint64_t packed = directory.TakeNumber(4), size = directory.TakeNumber(4);
    const uint64_t name_size = directory.TakeNumber(2), extra_size = directory.TakeNumber(2);
    const uint64_t comment_size = directory.TakeNumber(2);
    directory.Take(8);
    const uint64_t local_offset = directory.TakeNumber(4);
    const std::string_view name = directory.Take(name_size);
    directory.Take(extra_size);
    directory.Take(comment_size);
    if (directory.has_failed() || magic != "PK\x01\x02" || method != 0 || packed != size) {
      return NoTensor("a damaged or compressed archive");
    }
    const std::optional<std::string_view> content = ContentAt(file, local_offset, size);
    if (!content) return NoTensor("a damaged archive");
    entries.emplace(name, *content);
  }
  return entries;
}

struct Value {
  enum class Kind { kMark, kNone, kInteger, kText, kGlobal, kTuple, kDict, kStorage, kTensor };
  Kind kind = Kind::kNone;
  int64_t integer = 0;        // also of booleans
  std::string_view text;      // of a text; of a global "module\nname"; of a storage its class
  std::string_view key;       // of a storage: the file's name
  std::vector<size_t> items;  // of a tuple; of a tensor: storage, offset, shape, strides
};

// Follows the instructions of a pickle as far as they describe a tensor.
class PickleReader {
 public:
  explicit PickleReader(std::string_view pickle) : reader_(pickle) {}

  Result<Value> Read() {
    while (true) {
      const char instruction = static_cast<char>(reader_.TakeNumber(1));
      if (reader_.has_failed() || values_.size() > kMaxValues) return NoTensor("a damaged pickle");
      if (instruction == '.') break;
      if (!Follow(instruction)) return NoTensor("a pickle of something else");
    }
    if (stack_.size() != 1 || Top().kind != Value::Kind::kTensor) {
      return NoTensor("a pickle of something else");
    }
    return Top();
  }
  const Value& at(size_t index) const { return values_[index]; }

 private:
  using Kind = Value::Kind;

  Value& Top() { return values_[stack_.back()]; }
  bool Push(Value value) {
    stack_.push_back(values_.size());
    values_.push_back(std::move(value));
    return true;
  }
  bool PushInteger(int64_t number) { return Push({.kind = Kind::kInteger, .integer = number}); }

  bool Follow(char instruction) {
    switch (instruction) {
      case '\x80':  // PROTO
        reader_.Take(1);
        return true;
      case 'c': {  // GLOBAL
        const std::string_view module = reader_.TakeLine(), name = reader_.TakeLine();
        if (reader_.has_failed()) return false;
        return Push(
            {.kind = Kind::kGlobal, .text = {module.data(), module.size() + 1 + name.size()}});
      }
      case 'q':  // BINPUT
        return Remember(reader_.TakeNumber(1));
      case 'r':  // LONG_BINPUT
        return Remember(reader_.TakeNumber(4));
      case 'h':  // BINGET
        return Recall(reader_.TakeNumber(1));
      case 'j':  // LONG_BINGET
        return Recall(reader_.TakeNumber(4));
      case '(':  // MARK
        return Push({.kind = Kind::kMark});
      case 'N':
        return Push({.kind = Kind::kNone});
      case '\x88':  // NEWTRUE
        return PushInteger(1);
      case '\x89':  // NEWFALSE
        return PushInteger(0);
      case 'K':  // BININT1
        return PushInteger(static_cast<int64_t>(reader_.TakeNumber(1)));
      case 'M':  // BININT2
        return PushInteger(static_cast<int64_t>(reader_.TakeNumber(2)));
      case 'J':  // BININT
        return PushInteger(static_cast<int32_t>(reader_.TakeNumber(4)));
      case '\x8a':  // LONG1
        return PushLong(reader_.TakeNumber(1));
      case 'X':  // BINUNICODE
        return Push({.kind = Kind::kText, .text = reader_.Take(reader_.TakeNumber(4))});
      case ')':
        return Push({.kind = Kind::kTuple});
      case '\x85':
      case '\x86':
      case '\x87':
        return MakeTuple(static_cast<size_t>(uint8_t(instruction) - 0x84));
      case 't':
        return MakeTuple(CountToMark());
      case 'Q':  // BINPERSID
        return MakeStorage();
      case 'R':  // REDUCE
        return Reduce();
      default:
        return false;
    }
  }

  bool PushLong(uint64_t num_bytes) {
    if (num_bytes > 8) return false;
    const uint64_t number = reader_.TakeNumber(num_bytes);
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    return PushInteger(static_cast<int64_t>(number));
  }
  bool Remember(uint64_t place) {
    if (stack_.empty() || place > kMaxValues) return false;
    memo_[place] = stack_.back();
    return true;
  }
  bool Recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end() || stack_.size() > kMaxValues) return false;
    stack_.push_back(found->second);
    return true;
  }
  // The values above the mark, plus one for it; too many if there is none.
  size_t CountToMark() const {
    for (size_t i = stack_.size(); i-- > 0;) {
      if (values_[stack_[i]].kind == Kind::kMark) return stack_.size() - i;
    }
    return stack_.size() + 1;
  }
  bool MakeTuple(size_t count) {
    if (count > stack_.size()) return false;
    Value tuple{.kind = Kind::kTuple};
    tuple.items.assign(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    const bool has_mark = !tuple.items.empty() && at(tuple.items[0]).kind == Kind::kMark;
    if (has_mark) tuple.items.erase(tuple.items.begin());
    return Push(std::move(tuple));
  }
  // ("storage", class, key, device, number of elements)
  bool MakeStorage() {
    if (stack_.empty() || Top().kind != Kind::kTuple || Top().items.size() != 5) return false;
    const std::vector<size_t> items = Top().items;
    const Value &tag = at(items[0]), &storage = at(items[1]), &key = at(items[2]);
    if (tag.text != "storage" || storage.kind != Kind::kGlobal || key.kind != Kind::kText) {
      return false;
    }
    constexpr std::string_view kModule = "torch\n";
    if (!storage.text.starts_with(kModule)) return false;
    const Value value{
        .kind = Kind::kStorage, .text = storage.text.substr(kModule.size()), .key = key.text};
    stack_.pop_back();
    return Push(value);
  }
  // OrderedDict() for the tensor's hooks, and the tensor itself.
  bool Reduce() {
    if (stack_.size() < 2) return false;
    const Value arguments = Top();
    stack_.pop_back();
    const Value function = Top();
    stack_.pop_back();
    if (function.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) return false;
    if (function.text == "collections\nOrderedDict") {
      return arguments.items.empty() && Push({.kind = Kind::kDict});
    }
    if (function.text != "torch._utils\n_rebuild_tensor_v2" || arguments.items.size() < 4) {
      return false;
    }
    Value tensor{.kind = Kind::kTensor};
    tensor.items.assign(arguments.items.begin(), arguments.items.begin() + 4);
    return Push(std::move(tensor));
  }

  BytesReader reader_;
  std::vector<Value> values_;
  std::vector<size_t> stack_;  // indexes of values_
  std::map<uint64_t, size_t> memo_;
};

std::optional<std::vector<int64_t>> Integers(const PickleReader& pickle, const Value& tuple) {
  if (tuple.kind != Value::Kind::kTuple) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const size_t item : tuple.items) {
    const Value& value = pickle.at(item);
    if (value.kind != Value::Kind::kInteger || value.integer < 0) return std::nullopt;
    numbers.push_back(value.integer);
  }
  return numbers;
}

bool IsContiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (shape.size() != strides.size()) return false;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    if (shape[i] > 0 && expected > std::numeric_limits<int64_t>::max() / shape[i]) return false;
    expected *= shape[i];
  }
  return true;
}

size_t ElementBytes(std::string_view storage) {
  if (storage == "FloatStorage") return 4;
  return storage == "HalfStorage" || storage == "BFloat16Storage" ? 2 : 0;
}

float HalfToFloat(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 31;
  const auto fraction = static_cast<float>(bits & 1023);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024.0f + fraction, exponent - 25);
  return fraction == 0.0f ? sign * std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

Result<TorchTensor> ReadTorchTensor(std::string_view file) {
  NEREID_ASSIGN_OR_RETURN(const Entries entries, ReadArchive(file));
  constexpr std::string_view kPickle = "/data.pkl";
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.ends_with(kPickle);
  });
  if (found == entries.end()) return NoTensor("an archive without data.pkl");
  if (found->second.size() > kMaxPickleBytes) return NoTensor("a pickle that is too long");
  const std::string folder(found->first.substr(0, found->first.size() - kPickle.size()));
  const auto order = entries.find(folder + "/byteorder");
  if (order != entries.end() && order->second != "little") return NoTensor("big-endian numbers");
  PickleReader pickle(found->second);
  NEREID_ASSIGN_OR_RETURN(const Value value, pickle.Read());
  const Value &storage = pickle.at(value.items[0]), &offset = pickle.at(value.items[1]);
  const auto shape = Integers(pickle, pickle.at(value.items[2]));
  const auto strides = Integers(pickle, pickle.at(value.items[3]));
  if (storage.kind != Value::Kind::kStorage || offset.kind != Value::Kind::kInteger || !shape ||
      !strides) {
    return NoTensor("a pickle of something else");
  }
  const size_t element = ElementBytes(storage.text);
  if (element == 0) {
    return InvalidArgError("a tensor of ", storage.text.substr(0, 64),
                           ", expected FloatStorage, HalfStorage or BFloat16Storage");
  }
  if (!IsContiguous(*shape, *strides)) {
    return InvalidArgError("a tensor that is not contiguous, expected that of contiguous()");
  }
  const auto content = entries.find(StrCat(folder, "/data/", storage.key));
  if (content == entries.end()) return NoTensor("an archive without the tensor's numbers");
  uint64_t count = 1;  // cannot overflow, because the strides are those of the shape
  for (const int64_t dim : *shape) count *= static_cast<uint64_t>(dim);
  const uint64_t available = content->second.size() / element;
  const auto first = static_cast<uint64_t>(offset.integer);
  if (offset.integer < 0 || first > available || count > available - first) {
    return InvalidArgError("a tensor of ", count, " numbers whose file has ", available);
  }
  return TorchTensor{std::string(storage.text), *shape,
                     content->second.substr(first * element, count * element)};
}

std::vector<float> FloatsOf(const TorchTensor& tensor) {
  const size_t element = ElementBytes(tensor.storage);
  std::vector<float> numbers(tensor.bytes.size() / element);
  if (element == 4) {
    if (!numbers.empty()) std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
    return numbers;
  }
  const bool is_brain = tensor.storage == "BFloat16Storage";
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, sizeof(bits));
    numbers[i] = is_brain ? std::bit_cast<float>(uint32_t{bits} << 16) : HalfToFloat(bits);
  }
  return numbers;
}

}  // namespace nereid::openai
