#include "host/core/cache/cache_key.h"

#include <algorithm>
#include <vector>

#include "base/blake2b.h"

namespace nereid {
namespace {

void AddNumber(Blake2b* hash, uint64_t number) {
  hash->Add(&number, sizeof(number));
}

// With its length, so that no two lists of texts are one text.
void AddText(Blake2b* hash, const std::string& text) {
  AddNumber(hash, text.size());
  hash->Add(text);
}

bool AddContent(Blake2b* hash, const InputTensor& input) {
  AddNumber(hash, input.byte_size);
  for (const InputBuffer& buffer : input.buffers) {
    if (buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return false;
    hash->Add(buffer.base, buffer.attributes.byte_size);
  }
  return true;
}

}  // namespace

std::optional<std::string> CacheKey(const InferRequest& request) {
  Blake2b hash;
  AddText(&hash, request.plan().model_namespace);
  AddText(&hash, request.plan().model_name);
  AddNumber(&hash, static_cast<uint64_t>(request.plan().model_version));
  std::vector<const InputTensor*> inputs;
  for (size_t i = 0; i < request.num_inputs(); ++i) {
    if (!request.input(i).policy_buffers.empty()) return std::nullopt;
    inputs.push_back(&request.input(i));
  }
  std::sort(inputs.begin(), inputs.end(),
            [](const InputTensor* a, const InputTensor* b) { return a->name < b->name; });
  AddNumber(&hash, inputs.size());
  for (const InputTensor* input : inputs) {
    AddText(&hash, input->name);
    AddNumber(&hash, static_cast<uint64_t>(input->data_type));
    AddNumber(&hash, input->shape.size());
    hash.Add(input->shape.data(), input->shape.size() * sizeof(int64_t));
    if (!AddContent(&hash, *input)) return std::nullopt;
  }
  std::vector<std::string> outputs;
  for (size_t i = 0; i < request.num_outputs(); ++i) outputs.push_back(request.output_name(i));
  std::sort(outputs.begin(), outputs.end());
  AddNumber(&hash, outputs.size());
  for (const std::string& output : outputs) AddText(&hash, output);
  return hash.HexDigest();
}

}  // namespace nereid
