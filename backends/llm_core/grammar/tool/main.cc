// nereid-grammar: shows what a JSON schema, a regular expression or a grammar accepts.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/matcher.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "base/file_content.h"

namespace {

using nereid::Result;
using nereid::Status;
using nereid::llm::grammar::Grammar;
using nereid::llm::grammar::GrammarOptions;
using nereid::llm::grammar::Matcher;
using nereid::llm::grammar::Vocabulary;

constexpr char kHelp[] =
    R"(usage: nereid-grammar test (--schema FILE | --regex TEXT | --grammar FILE) --tokenizer DIR

Reads texts from standard input, one a line, drives each of them through the masks of the grammar
token by token, and prints one line of JSON for each:
  {"accepted": true, "compile_ms": 0.8, "mask_us_p50": 4.1, "mask_us_max": 310.2, "tokens": 21,
   "rejected_at": null}
rejected_at is the byte at which the first token begins that the grammar does not allow, or the
length of the text where it may not end there. If the grammar is refused, prints the reason and ends
with status 1. A schema that no text fits, which a server refuses, rejects each text here.

  --schema FILE          a JSON schema
  --regex TEXT           a regular expression that the whole text must match
  --grammar FILE         rules in EBNF (root ::= ...)
  --tokenizer DIR        a tokenizer file, or a folder that contains one
  --json-whitespace N    the longest run of white space between tokens of JSON (default 128, -1: no
                         limit)
)";

struct Arguments {
  std::string schema, regex, grammar, tokenizer;
  bool has_regex = false;
  GrammarOptions options{.allows_no_text = true};
};

// Whether --help stands alone or behind the command, where it is no value of an option.
bool AsksForHelp(int argc, char** argv) {
  const auto is_help = [&](int i) {
    return i < argc && (std::string_view(argv[i]) == "--help" || std::string_view(argv[i]) == "-h");
  };
  return is_help(1) || is_help(2);
}

Result<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  if (argc < 2 || std::string_view(argv[1]) != "test") {
    return nereid::InvalidArgError("expected the command 'test'");
  }
  for (int i = 2; i < argc; ++i) {
    std::string_view name = argv[i];
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      return nereid::InvalidArgError(name, " needs a value");
    }
    if (name == "--schema") {
      arguments.schema = value;
    } else if (name == "--regex") {
      arguments.regex = value;
      arguments.has_regex = true;
    } else if (name == "--grammar") {
      arguments.grammar = value;
    } else if (name == "--tokenizer") {
      arguments.tokenizer = value;
    } else if (name == "--json-whitespace") {
      int number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size() || number < -1) {
        return nereid::InvalidArgError("--json-whitespace: expected an integer from -1 up, got '",
                                       value, "'");
      }
      arguments.options.max_json_whitespace = number;
    } else {
      return nereid::InvalidArgError("unknown option '", name, "'");
    }
  }
  const int num_grammars =
      !arguments.schema.empty() + arguments.has_regex + !arguments.grammar.empty();
  if (num_grammars != 1) {
    return nereid::InvalidArgError("expected one of --schema, --regex and --grammar");
  }
  if (arguments.tokenizer.empty()) return nereid::InvalidArgError("--tokenizer is missing");
  return arguments;
}

Result<std::shared_ptr<const Grammar>> Compile(const Arguments& arguments,
                                               std::shared_ptr<const Vocabulary> vocabulary) {
  if (arguments.has_regex) {
    return Grammar::FromRegex(arguments.regex, std::move(vocabulary), arguments.options);
  }
  const bool is_schema = !arguments.schema.empty();
  NEREID_ASSIGN_OR_RETURN(
      const std::string text,
      nereid::ReadFile(is_schema ? arguments.schema : arguments.grammar, size_t{64} << 20));
  return is_schema ? Grammar::FromJsonSchema(text, std::move(vocabulary), arguments.options)
                   : Grammar::FromEbnf(text, std::move(vocabulary), arguments.options);
}

// The tokens of a text: those of the tokenizer, or, where it changes the text, the longest ones.
std::vector<int32_t> Tokens(const nereid::tokenizer::Tokenizer& tokenizer,
                            const Vocabulary& vocabulary, std::string_view text) {
  const auto ids = tokenizer.Encode(text, {.add_special_tokens = false});
  if (ids.ok()) {
    std::string again;
    for (const int32_t id : *ids) again += vocabulary.token(id);
    if (again == text) return *ids;
  }
  std::vector<int32_t> longest;
  while (!text.empty()) {
    const auto [token, size] = vocabulary.LongestToken(text);
    if (token < 0) return {};
    longest.push_back(token);
    text.remove_prefix(size);
  }
  return longest;
}

double MicrosecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

nlohmann::ordered_json Drive(const std::shared_ptr<const Grammar>& grammar,
                             const std::vector<int32_t>& tokens, std::string_view text) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  std::vector<double> times;
  size_t pos = 0;
  bool accepted = !tokens.empty() || text.empty();
  for (const int32_t token : tokens) {
    const auto begin = std::chrono::steady_clock::now();
    matcher.ComputeMask(mask);
    times.push_back(MicrosecondsSince(begin));
    accepted = mask[token / 32] >> (token % 32) & 1;
    if (!accepted || !(accepted = matcher.AcceptToken(token))) break;
    pos += grammar->vocabulary().token(token).size();
  }
  if (accepted) accepted = matcher.CanEnd();
  nlohmann::ordered_json line;
  line["accepted"] = accepted;
  std::sort(times.begin(), times.end());
  line["mask_us_p50"] = times.empty() ? 0.0 : times[times.size() / 2];
  line["mask_us_max"] = times.empty() ? 0.0 : times.back();
  line["tokens"] = tokens.size();
  line["rejected_at"] = accepted ? nlohmann::ordered_json() : nlohmann::ordered_json(pos);
  if (!matcher.status().ok()) line["error"] = matcher.status().message();
  return line;
}

Status Test(const Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const auto tokenizer,
                          nereid::tokenizer::Tokenizer::Load(arguments.tokenizer));
  std::vector<int32_t> end_ids;
  if (tokenizer->special_ids().eos) end_ids.push_back(*tokenizer->special_ids().eos);
  NEREID_ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary::Make(*tokenizer, end_ids));
  const auto begin = std::chrono::steady_clock::now();
  NEREID_ASSIGN_OR_RETURN(const auto grammar, Compile(arguments, vocabulary));
  const double compile_ms = MicrosecondsSince(begin) / 1000;
  for (std::string text; std::getline(std::cin, text);) {
    nlohmann::ordered_json line = Drive(grammar, Tokens(*tokenizer, *vocabulary, text), text);
    line["compile_ms"] = compile_ms;
    std::cout << line.dump() << '\n' << std::flush;
  }
  return Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (AsksForHelp(argc, argv)) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  const Result<Arguments> arguments = ParseArguments(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "nereid-grammar: %s\n%s", arguments.status().message().c_str(), kHelp);
    return 2;
  }
  const Status status = Test(*arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "nereid-grammar: %s\n", status.message().c_str());
  return 1;
}
