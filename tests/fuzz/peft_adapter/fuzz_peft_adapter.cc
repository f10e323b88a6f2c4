// Fuzzes the files of a LoRA adapter in PEFT's format: adapter_config.json, a zero byte, and
// adapter_model.safetensors. Arbitrary bytes must not crash. An accepted adapter has matrices of
// the model's sizes and finite numbers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "backends/llm_core/model/architecture.h"

namespace {

using namespace nereid::llm;

constexpr int32_t kMaxRank = 4;

LoraTargets MakeTargets() {
  const Checkpoint checkpoint = Checkpoint::FromParts(
      "model",
      R"({"model_type":"llama","vocab_size":8,"hidden_size":4,"intermediate_size":6,
          "num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,
          "max_position_embeddings":32,"tie_word_embeddings":true,"eos_token_id":3})",
      "", {});
  const auto model = ReadDecoderSpec(checkpoint);
  if (!model.ok()) std::abort();
  return LoraTargets::Of(model->map, model->spec.num_layers());
}

void CheckMatrix(const LoraMatrix& matrix, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(matrix.At(i))) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const LoraTargets targets = MakeTargets();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\0');
  if (end == std::string_view::npos) return 0;
  const auto tensors = ParseSafetensors({data + end + 1, size - end - 1}, "input");
  if (!tensors.ok()) return 0;
  const auto adapter = MakePeftAdapter("a", text.substr(0, end), *tensors, targets, kMaxRank);
  if (!adapter.ok()) return 0;
  if ((*adapter)->max_rank() < 1 || (*adapter)->max_rank() > kMaxRank) std::abort();
  for (const WeightKind kind : {WeightKind::kQ, WeightKind::kK, WeightKind::kV, WeightKind::kGate,
                                WeightKind::kUp, WeightKind::kDown, WeightKind::kAttentionOut}) {
    const LoraDelta* const delta = (*adapter)->Find(0, kind);
    const LoraModule* const module = targets.FindMatrix(0, kind);
    if (delta == nullptr) continue;
    if (module == nullptr || delta->rank() < 1 || delta->rank() > kMaxRank) std::abort();
    CheckMatrix(delta->a, delta->rank() * module->columns);
    CheckMatrix(delta->b, module->rows * delta->rank());
  }
  return 0;
}
