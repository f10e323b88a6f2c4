// Runs a checkpoint over prompts for Python tests, on every instruction set of this machine.
//
//   logits_driver DIRECTORY [MAX_POSITIONS [NUM_GREEDY [ROWS]]]
//
// Standard input: one prompt per line, as token ids separated by spaces. Standard output: for each
// instruction set and prompt, a line {"isa", "argmax": at every position, "logits": of the last
// position, "greedy": the next tokens, "greedy_log_probs"}. The logits of a prompt that is run
// token by token must have the same bits; otherwise the exit status is 2. For a rejected
// checkpoint, the output is {"error"} and the exit status is 3. ROWS is a file of embeddings as
// floats; id vocab_size + r of a prompt is its row r, as inputs_embeds of transformers.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::cpu {
namespace {

Result<std::unique_ptr<CpuExecutor>> Load(const std::string& directory, const OpTable& ops,
                                          int32_t max_positions) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::Checkpoint::Open(directory));
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel model,
                          llm::ReadDecoder(*checkpoint, /*supports_quantized=*/true));
  CpuExecutorOptions options;
  options.num_threads = 2;
  options.max_num_sequences = 1;
  options.max_positions = max_positions;
  options.ops = &ops;
  return CpuExecutor::Create(std::move(checkpoint), std::move(model), options);
}

// The embeddings of a prompt's ids above the vocabulary.
llm::PromptEmbeddings EmbeddingsOf(const CpuExecutor& executor, const std::vector<int32_t>& prompt,
                                   const std::string& file) {
  llm::PromptEmbeddings embeddings;
  embeddings.vocab_size = executor.spec().vocab_size;
  embeddings.hidden_size = executor.spec().hidden_size;
  embeddings.is_table = false;
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  embeddings.rows.resize(bytes.size() / sizeof(float));
  std::memcpy(embeddings.rows.data(), bytes.data(), embeddings.rows.size() * sizeof(float));
  embeddings.extra_ids.resize(embeddings.rows.size() / static_cast<size_t>(embeddings.hidden_size));
  for (const int32_t id : prompt) {
    embeddings.row_of.push_back(embeddings.is_virtual(id) ? id - embeddings.vocab_size : -1);
  }
  return embeddings;
}

// Logits of the last `num_logits` of `tokens`, which follow `num_cached` tokens of a sequence with
// `num_in_all` tokens and a prompt of `num_prompt`.
std::vector<float> Run(CpuExecutor& executor, std::span<const int32_t> tokens, int32_t num_cached,
                       int32_t num_logits, int32_t num_in_all, int32_t num_prompt,
                       const llm::PromptEmbeddings* embeddings) {
  std::vector<int32_t> table(executor.limits().num_blocks);
  std::iota(table.rbegin(), table.rend(), 0);
  llm::StepBatch batch;
  batch.token_ids.assign(tokens.begin(), tokens.end());
  llm::BatchEntry& sequence = batch.entries.emplace_back();
  sequence.num_tokens = static_cast<int32_t>(tokens.size());
  sequence.num_cached = num_cached;
  sequence.block_table = table;
  sequence.uses_long_rope = executor.limits().long_rope_positions > 0 &&
                            num_in_all > executor.limits().long_rope_positions;
  sequence.num_logits = num_logits;
  sequence.num_prompt = num_prompt;
  sequence.prompt_embeddings = embeddings;
  if (!executor.Submit(batch).ok() || !executor.Collect().ok()) std::abort();
  return {executor.logits().begin(), executor.logits().end()};
}

// Whether the bits of the last logits are independent of the prompt's chunks.
bool IsInvariant(CpuExecutor& executor, const std::vector<int32_t>& prompt,
                 const llm::PromptEmbeddings& embeddings, std::span<const float> expected) {
  std::vector<float> last;
  const auto length = static_cast<int32_t>(prompt.size());
  for (int32_t i = 0; i < length; ++i) {
    last = Run(executor, std::span(prompt).subspan(i, 1), i, 1, length, length, &embeddings);
  }
  return std::memcmp(last.data(), expected.data(), expected.size_bytes()) == 0;
}

int Answer(CpuExecutor& executor, std::string_view isa, const std::vector<int32_t>& prompt,
           int num_greedy, const std::string& rows) {
  const llm::PromptEmbeddings embeddings = EmbeddingsOf(executor, prompt, rows);
  const auto length = static_cast<int32_t>(prompt.size());
  const int64_t vocab = executor.limits().vocab_size;
  const std::vector<float> all = Run(executor, prompt, 0, length, length, length, &embeddings);
  const std::span<const float> last = std::span(all).last(vocab);
  if (!IsInvariant(executor, prompt, embeddings, last)) {
    std::printf("{\"error\": \"%s: the logits depend on the chunks\"}\n", std::string(isa).c_str());
    return 2;
  }
  nlohmann::json answer = {{"isa", isa}, {"logits", std::vector<float>(last.begin(), last.end())}};
  for (int32_t position = 0; position < length; ++position) {
    answer["argmax"].push_back(llm::ArgMax(std::span(all).subspan(position * vocab, vocab)));
  }
  std::vector<int32_t> tokens = prompt;
  const auto take = [&](std::span<const float> logits) {
    tokens.push_back(llm::ArgMax(logits));
    return llm::LogProb(logits, tokens.back());
  };
  float log_prob = take(last);
  answer["greedy"] = nlohmann::json::array();
  for (int step = 0; step < num_greedy; ++step) {
    answer["greedy"].push_back(tokens.back());
    answer["greedy_log_probs"].push_back(log_prob);
    const auto in_all = static_cast<int32_t>(tokens.size());
    // When a sequence grows beyond the short rope, its cached keys cannot be used.
    const int32_t num_cached = in_all == executor.limits().long_rope_positions + 1 ? 0 : in_all - 1;
    const std::vector<float> next = Run(executor, std::span(tokens).subspan(num_cached), num_cached,
                                        1, in_all, length, &embeddings);
    log_prob = take(next);
  }
  std::printf("%s\n", answer.dump().c_str());
  return 0;
}

int Main(int argc, char** argv) {
  const int32_t max_positions = argc > 2 ? std::atoi(argv[2]) : 0;
  const int num_greedy = argc > 3 ? std::atoi(argv[3]) : 0;
  const std::string rows = argc > 4 ? argv[4] : "";
  std::vector<std::vector<int32_t>> prompts;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    prompts.emplace_back(std::istream_iterator<int32_t>(words), std::istream_iterator<int32_t>());
  }
  for (const OpTable* ops : AvailableOps()) {
    const Result<std::unique_ptr<CpuExecutor>> loaded = Load(argv[1], *ops, max_positions);
    if (!loaded.ok()) {
      std::printf("%s\n", nlohmann::json{{"error", loaded.status().message()}}.dump().c_str());
      return 3;
    }
    for (const std::vector<int32_t>& prompt : prompts) {
      if (const int failed = Answer(**loaded, ops->isa, prompt, num_greedy, rows)) return failed;
    }
  }
  return 0;
}

}  // namespace
}  // namespace nereid::cpu

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: logits_driver DIRECTORY [MAX_POSITIONS [NUM_GREEDY [ROWS]]]\n");
    return 64;
  }
  return nereid::cpu::Main(argc, argv);
}
