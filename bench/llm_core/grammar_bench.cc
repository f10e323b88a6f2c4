// Measures grammars of JSON schemas: compiling one with its first mask, and each further mask.
//   grammar_bench TOKENIZER < cases.jsonl
// A line of the input is {"name": ..., "schema": {...}, "instances": [text, ...], "valid": [true,
// ...], "tokens": [[id, ...], ...]}. A line of the output is {"name", "compile_us", "mask_us":
// [...], "accepted": [...], "max_work", "error"}; max_work is that of one mask (MatcherLimits).
// Times are those of the thread, so that other work of the machine counts little.
#include <time.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/matcher.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace {

using namespace nereid::llm::grammar;

double ThreadMicroseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

nlohmann::json Measure(const nlohmann::ordered_json& one,
                       const std::shared_ptr<const Vocabulary>& vocabulary) {
  nlohmann::json out{{"name", one["name"]}};
  const std::string schema = one["schema"].dump();
  std::vector<uint32_t> mask(vocabulary->num_mask_words());
  const double begin = ThreadMicroseconds();
  const auto grammar = Grammar::FromJsonSchema(schema, vocabulary);
  if (!grammar.ok()) {
    out["error"] = grammar.status().message();
    out["compile_us"] = ThreadMicroseconds() - begin;
    return out;
  }
  uint64_t max_work = 0;
  const auto compute_mask = [&](Matcher& matcher) {
    const uint64_t before = matcher.work_left();
    matcher.ComputeMask(mask);
    max_work = std::max(max_work, before - matcher.work_left());
  };
  Matcher first(*grammar);
  compute_mask(first);
  out["compile_us"] = ThreadMicroseconds() - begin;
  out["mask_us"] = nlohmann::json::array();
  out["accepted"] = nlohmann::json::array();
  for (const auto& tokens : one["tokens"]) {
    Matcher matcher(*grammar);
    bool accepted = true;
    for (const auto& each : tokens) {
      const auto token = each.get<int32_t>();
      const double before = ThreadMicroseconds();
      compute_mask(matcher);
      out["mask_us"].push_back(ThreadMicroseconds() - before);
      accepted = (mask[token / 32] >> (token % 32) & 1) != 0 && matcher.AcceptToken(token);
      if (!accepted) break;
    }
    out["accepted"].push_back(accepted && matcher.CanEnd());
    if (!matcher.status().ok()) out["error"] = matcher.status().message();
  }
  out["max_work"] = max_work;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = nereid::tokenizer::Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << '\n';
    return 1;
  }
  std::vector<int32_t> end_ids;
  if (const auto eos = (*tokenizer)->special_ids().eos) end_ids.push_back(*eos);
  const auto vocabulary = Vocabulary::Make(**tokenizer, end_ids).value();
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Measure(nlohmann::ordered_json::parse(line), vocabulary).dump() << std::endl;
  }
  return 0;
}
