// Guides of requests: their types, structural tags, and the compiler's threads and cache.
#include "backends/llm_core/grammar/guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "backends/llm_core/grammar/compiler.h"
#include "tests/backends/llm_core/grammar/small_vocabulary.h"
#include "tests/support/thread_creation_blocker.h"

namespace nereid::llm::grammar {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Grammar> Compiled(GuideType type, const std::string& text) {
  auto compiled = CompileGuide({type, text}, BytesAnd({"<f>", "{\"a\"", "ab"}));
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return std::move(compiled).value();
}

std::string ErrorOf(GuideType type, const std::string& text) {
  const auto compiled = CompileGuide({type, text}, BytesAnd({}));
  EXPECT_EQ(compiled.status().code(), StatusCode::kInvalidArg);
  return std::string(compiled.status().message());
}

TEST(GuideTest, TypesHaveTheNamesOfTensorRtLlm) {
  for (const char* name : {"json", "json_schema", "regex", "ebnf_grammar", "structural_tag"}) {
    EXPECT_EQ(NameOf(ParseGuideType(name).value()), name);
  }
  EXPECT_THAT(std::string(ParseGuideType("xml").status().message()),
              HasSubstr("'xml', expected one of json, json_schema, regex"));
}

TEST(GuideTest, ParametersSayWhatFieldsOfOpenAiSay) {
  const auto read = [](const char* name, const char* text) {
    const auto guide = ReadGuideParameter(name, text);
    if (!guide.ok()) return guide.status().message();
    return *guide ? std::string(NameOf((*guide)->type)) + " " + (*guide)->text : "none";
  };
  EXPECT_EQ(read("guided_json", "{}"), "json_schema {}");
  EXPECT_EQ(read("guided_regex", "a+"), "regex a+");
  EXPECT_EQ(read("guided_choice", "[\"a\"]"), "choice [\"a\"]");
  EXPECT_EQ(read("guided_grammar", "root ::= \"a\""), "ebnf_grammar root ::= \"a\"");
  EXPECT_EQ(read("response_format", R"({"type":"text"})"), "none");
  EXPECT_EQ(read("response_format", R"({"type":"json_object"})"),
            R"(json_schema {"type":"object"})");
  EXPECT_EQ(
      read("response_format", R"({"type":"json_schema","json_schema":{"schema":{"b":1,"a":2}}})"),
      R"(json_schema {"b":1,"a":2})");
  EXPECT_EQ(read("response_format", R"({"type":"yaml"})"),
            "type: 'yaml', expected text, json_object, json_schema or structural_tag");
  EXPECT_EQ(read("response_format", R"({"type":"json_schema"})"),
            "json_schema.schema: this field is required");
  EXPECT_EQ(read("response_format", "3"), "expected an object with a 'type'");
}

TEST(GuideTest, JsonIsAnObjectOrAList) {
  const auto grammar = Compiled(GuideType::kJson, "");
  EXPECT_TRUE(Accepts(grammar, "{\"a\": [1, null]}"));
  EXPECT_TRUE(Accepts(grammar, "[]"));
  EXPECT_FALSE(Accepts(grammar, "1"));
}

TEST(GuideTest, ChoicesAreAList) {
  const auto grammar = Compiled(GuideType::kChoice, R"(["yes", "no"])");
  EXPECT_TRUE(Accepts(grammar, "yes"));
  EXPECT_FALSE(Accepts(grammar, "yesno"));
  EXPECT_THAT(ErrorOf(GuideType::kChoice, "[1]"), HasSubstr("expected a JSON list of texts"));
}

TEST(GuideTest, WhatIsNotHeldIsTheClientsErrorToo) {
  EXPECT_THAT(ErrorOf(GuideType::kJsonSchema, R"({"uniqueItems": true})"),
              HasSubstr("guided_decoding_guide (json_schema): #: uniqueItems: "));
  EXPECT_THAT(ErrorOf(GuideType::kRegex, "(a)\\1"), HasSubstr("guided_decoding_guide (regex): "));
}

TEST(GuideTest, AGrammarThatNoTokenCanBeginIsAnError) {
  const auto vocabulary = Vocabulary::Make(std::vector<std::string>{"a", ""}, {1}).value();
  EXPECT_THAT(std::string(CompileGuide({GuideType::kRegex, "b"}, vocabulary).status().message()),
              HasSubstr("no token of the model's vocabulary can begin a text of it"));
}

TEST(StructuralTagTest, StructuresBeginWithTheirTriggers) {
  const auto grammar = Compiled(GuideType::kStructuralTag, R"({
      "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"},
                     {"begin": "<fun>", "schema": {"type": "boolean"}, "end": "."}],
      "triggers": ["<f"]})");
  EXPECT_TRUE(Accepts(grammar, ""));
  EXPECT_TRUE(Accepts(grammar, "free < text>"));
  EXPECT_TRUE(Accepts(grammar, "a<f>12</f>b<fun>true.<f> 3</f>"));
  EXPECT_FALSE(Accepts(grammar, "a<f>true</f>"));
  EXPECT_FALSE(Accepts(grammar, "a<f"));
  EXPECT_FALSE(Accepts(grammar, "a<fa"));
  EXPECT_FALSE(Accepts(grammar, "<f>1"));
}

TEST(StructuralTagTest, FormatsNest) {
  const auto grammar = Compiled(GuideType::kStructuralTag, R"({"type": "structural_tag", "format":
      {"type": "sequence", "elements": [
        {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"},
        {"type": "or", "elements": [{"type": "const_string", "value": "x"},
                                    {"type": "regex", "pattern": "[0-9]*"}]},
        {"type": "tags_with_separator", "separator": ", ", "at_least_one": true, "tags": [
          {"type": "tag", "begin": "[", "content": {"type": "json_schema", "json_schema":
              {"type": "object", "properties": {"b": {"type": "integer"},
                                                "a": {"type": "integer"}}}}, "end": "]"}]}]}})");
  EXPECT_TRUE(Accepts(grammar, "<t>a < b</t>x[{}]"));
  EXPECT_TRUE(Accepts(grammar, "<t></t>12[{}], [{\"b\": 1, \"a\": 2}]"));
  EXPECT_FALSE(Accepts(grammar, "<t></t></t>x[{}]"));  // any_text ends with the first end
  EXPECT_FALSE(Accepts(grammar, "<t></t>"));
  EXPECT_FALSE(Accepts(grammar, "<t></t>x[{}], "));
  EXPECT_FALSE(Accepts(grammar, "<t></t>[{\"a\": 1, \"b\": 2}]"));  // the order of the schema
}

TEST(StructuralTagTest, TagsMayBeRequiredAndMayEndTheText) {
  const std::string tags = R"("triggers": ["<"], "tags": [
      {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "!"}]}})";
  const auto at_least_one =
      Compiled(GuideType::kStructuralTag,
               R"({"format": {"type": "triggered_tags", "at_least_one": true, )" + tags);
  EXPECT_TRUE(Accepts(at_least_one, "<a>b!c<a>!"));
  EXPECT_FALSE(Accepts(at_least_one, ""));
  EXPECT_FALSE(Accepts(at_least_one, "c<a>b!"));
  const auto only_one =
      Compiled(GuideType::kStructuralTag,
               R"({"format": {"type": "triggered_tags", "stop_after_first": true, )" + tags);
  EXPECT_TRUE(Accepts(only_one, "b<a>b!"));
  EXPECT_FALSE(Accepts(only_one, "b<a>b!c"));
}

TEST(StructuralTagTest, SpecialTokensStandForTheirNames) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.resize(260);  // 256 to 258: special tokens; 259 ends a generation
  const auto vocabulary =
      Vocabulary::Make(tokens, {259}, {{256, "<call>"}, {257, "</call>"}, {258, "<c"}}).value();
  constexpr char kTag[] = R"({"special_tokens":true,"format":{"type":"tag","begin":"<call>x",
      "content":{"type":"json_schema","json_schema":{"type":"string"}},"end":"</call>"}})";
  const auto grammar = *CompileGuide({GuideType::kStructuralTag, kTag}, vocabulary);
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(vocabulary->num_mask_words());
  const auto accept = [&](int32_t token) {
    matcher.ComputeMask(mask);
    EXPECT_EQ(MaskHas(mask, token), matcher.AcceptToken(token)) << token;
    return MaskHas(mask, token);
  };
  EXPECT_FALSE(accept('<'));
  EXPECT_FALSE(accept(258));
  EXPECT_FALSE(accept(0xFF));  // nothing spells a special token
  EXPECT_TRUE(accept(256) && accept('x') && accept('"') && accept('a'));
  EXPECT_FALSE(accept(256));  // no text contains it
  EXPECT_FALSE(accept(0xFF));
  EXPECT_TRUE(accept('"') && accept(257));
  EXPECT_TRUE(matcher.MustEnd());
  // Without the flag, and in other grammars, they have no text.
  for (const Guide& guide :
       {Guide{GuideType::kStructuralTag, std::string(kTag).replace(1, 22, "")},
        Guide{GuideType::kRegex, "[^a]+"}, Guide{GuideType::kJsonSchema, "{}"}}) {
    const auto plain = CompileGuide(guide, vocabulary);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    Matcher(*plain).ComputeMask(mask);
    for (int32_t token = 256; token < 259; ++token) EXPECT_FALSE(MaskHas(mask, token));
  }
}

TEST(StructuralTagTest, ErrorsNameThePath) {
  const auto error = [](const std::string& text) {
    return ErrorOf(GuideType::kStructuralTag, text);
  };
  EXPECT_THAT(error("{"), HasSubstr("line 1"));
  EXPECT_THAT(error("{}"), HasSubstr("#: expected 'structures'"));
  EXPECT_THAT(error(R"({"format": {"type": "cat"}})"), HasSubstr("#/format: type 'cat'"));
  EXPECT_THAT(error(R"({"format": {"type": "sequence", "elements": [{"type": "regex"}]}})"),
              HasSubstr("#/format/elements/0: expected 'pattern'"));
  EXPECT_THAT(
      error(R"({"structures": [{"begin": "a", "schema": {}, "end": ""}], "triggers": ["b"]})"),
      HasSubstr("#/tags/0: no trigger begins 'a'"));
  EXPECT_THAT(error(R"({"format": {"type": "json_schema",
                        "json_schema": {"items": {"uniqueItems": true}}}})"),
              HasSubstr("#/format/json_schema: #/items: uniqueItems: "));
  EXPECT_THAT(error("{\"format\":" + std::string(100'000, '[')), HasSubstr("512"));
}

// The guide of a tag of arguments in this notation.
std::string Arguments(const std::string& notation, const char* schema = R"({"type": "object"})") {
  return StrCat(R"({"format": {"type": "arguments", "json_schema": )", schema, R"(, "notation": )",
                notation, "}}");
}

TEST(StructuralTagTest, ArgumentsAreWrittenInTheirNotation) {
  constexpr char kTagged[] = R"({"excluded": [";"], "members": {"begin": "<", "end": ";", "kinds": [
      {"types": ["string"], "begin": ">", "is_text": true}, {"types": ["number"], "begin": ">"}]}})";
  const auto grammar = Compiled(GuideType::kStructuralTag, Arguments(kTagged, R"({"type": "object",
      "properties": {"n": {"type": ["string", "integer"]}, "e": {"const": "3"}},
      "required": ["n"], "additionalProperties": {"type": "integer"}})"));
  for (const char* const text : {"<n>a\nb;", "<n>3;<x>-4;", "<n>;", "<n>\"3\";<y>1;<x>1;"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  // A text that looks like a number is one, also where only a text is valid.
  for (const char* const text : {"", "<x>1;", "<n>3 ;", "<n>[;", "<n>a;<e>3;", "<n>a;<x>1;<x>2;",
                                 "<n>a;<x>b;", "<n>null;"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  constexpr char kBare[] = R"({"quote": "'", "has_bare_names": true, "has_small_numbers": true})";
  const auto bare = Compiled(GuideType::kStructuralTag, Arguments(kBare));
  for (const char* const text : {"{}", R"({a:'"\',b:{c:[1e9,null]}})"}) {
    EXPECT_TRUE(Accepts(bare, text)) << text;
  }
  for (const char* const text : {"{'a':1}", "{a:\"x\"}", "{a:1e100}", "{a:1,a:2}", "{a:'x''}"}) {
    EXPECT_FALSE(Accepts(bare, text)) << text;
  }
}

TEST(StructuralTagTest, WhatANotationCannotWriteIsRefused) {
  const auto error = [](const std::string& notation, const char* schema = "{}") {
    return ErrorOf(GuideType::kStructuralTag, Arguments(notation, schema));
  };
  const std::string path = "guided_decoding_guide (structural_tag): #/format/notation";
  EXPECT_EQ(error("3"), path + ": expected an object");
  EXPECT_EQ(error(R"({"quote": 1})"), path + "/quote: expected a text");
  EXPECT_EQ(error(R"({"excluded": "a"})"), path + "/excluded: expected a list of texts");
  EXPECT_EQ(error(R"({"members": {}})"), path + "/members/kinds: expected a list");
  EXPECT_EQ(error(R"({"members": {"kinds": [1]}})"),
            path + "/members/kinds/types: expected a list of types");
  EXPECT_EQ(error(R"({"members": {"kinds": [{"types": ["string"], "begin": "=",
                      "is_text": true}]}})"),
            path + "/members/kinds/is_text: expected false, as members have no end");
  EXPECT_EQ(error(R"({"members": {"kinds": [1, 2, 3, 4, 5, 6, 7, 8, 9]}})"),
            path + "/members/kinds: expected at most 8, got 9");
  const std::string python =
      R"({"has_identifiers": true, "members": {"kinds": [{"types": ["number"], "begin": "="}]}})";
  EXPECT_THAT(error(python, R"({"type": "object", "properties": {"a-b": {}}})"),
              HasSubstr("'a-b' cannot be the name of an argument"));
  EXPECT_THAT(error(python, R"({"enum": [{}]})"),
              HasSubstr("#: enum: whole arguments cannot be listed in these calls"));
  EXPECT_THAT(error(R"({"quote": "'"})", R"({"type": "array", "uniqueItems": true,
                                            "items": {"type": "integer"}})"),
              HasSubstr("items that must differ cannot be enforced in these calls"));
}

class GrammarCompilerTest : public ::testing::Test {
 protected:
  // The result of one guide.
  GrammarCompiler::Compiled Get(GrammarCompiler& compiler, const std::string& regex) {
    std::promise<GrammarCompiler::Compiled> promise;
    compiler.Compile({GuideType::kRegex, regex},
                     [&](const GrammarCompiler::Compiled& result) { promise.set_value(result); });
    return promise.get_future().get();
  }
  static GrammarCompiler::VocabularySource Bytes() {
    return [] { return Result<std::shared_ptr<const Vocabulary>>(BytesAnd({})); };
  }
};

TEST_F(GrammarCompilerTest, EqualGuidesAreCompiledOnce) {
  GrammarCompiler compiler(Bytes());
  const auto first = Get(compiler, "a+");
  EXPECT_EQ(first.value(), Get(compiler, "a+").value());
  EXPECT_NE(first.value(), Get(compiler, "b+").value());
  EXPECT_FALSE(Get(compiler, "(").ok());
  EXPECT_FALSE(Get(compiler, "(").ok());
  EXPECT_EQ(compiler.counts().num_compiled, 3u);
  EXPECT_EQ(compiler.counts().num_found, 2u);
  EXPECT_EQ(compiler.counts().num_cached, 3u);
}

TEST_F(GrammarCompilerTest, AGuideIsRefusedWhileTheSystemStartsNoThread) {
  GrammarCompiler compiler(Bytes());
  {
    const ThreadCreationBlocker blocker;
    const auto refused = Get(compiler, "a+");
    EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
    EXPECT_THAT(refused.status().message(), HasSubstr("the system starts no thread"));
  }
  EXPECT_TRUE(Get(compiler, "a+").ok());
}

TEST_F(GrammarCompilerTest, TheLeastRecentlyUsedAreDroppedBeyondTheBudget) {
  GrammarCompiler compiler(Bytes(), {.max_cached = 2});
  const auto first = Get(compiler, "a+");
  (void)Get(compiler, "b+");
  (void)Get(compiler, "a+");
  (void)Get(compiler, "c+");
  EXPECT_EQ(compiler.counts().num_cached, 2u);
  EXPECT_EQ(first.value(), Get(compiler, "a+").value());
  (void)Get(compiler, "b+");
  EXPECT_EQ(compiler.counts().num_compiled, 4u);
  GrammarCompiler none(Bytes(), {.max_cache_bytes = 1});
  EXPECT_TRUE(Get(none, "a+").ok());
  EXPECT_EQ(none.counts().num_cached, 0u);
}

TEST_F(GrammarCompilerTest, GuidesWaitTogetherUpToABound) {
  std::promise<void> may_go_on;
  std::shared_future<void> go_on = may_go_on.get_future().share();
  std::vector<Status> results;
  std::mutex mutex;
  const auto keep = [&](const GrammarCompiler::Compiled& result) {
    const std::lock_guard lock(mutex);
    results.push_back(result.status());
  };
  std::promise<void> begun;
  {
    GrammarCompiler compiler(
        [&] {
          begun.set_value();
          go_on.wait();
          return Result<std::shared_ptr<const Vocabulary>>(BytesAnd({}));
        },
        {.num_threads = 1, .max_waiting = 1});
    compiler.Compile({GuideType::kRegex, "a"}, keep);
    begun.get_future().wait();
    compiler.Compile({GuideType::kRegex, "a"}, keep);
    compiler.Compile({GuideType::kRegex, "b"}, keep);
    compiler.Compile({GuideType::kRegex, "c"}, keep);  // too many
    {
      const std::lock_guard lock(mutex);
      ASSERT_EQ(results.size(), 1u);
      EXPECT_EQ(results[0].code(), StatusCode::kUnavailable);
    }
    std::promise<void> done;
    compiler.Compile({GuideType::kRegex, "a"}, [&](const auto&) { done.set_value(); });
    may_go_on.set_value();
    done.get_future().wait();
  }
  // "b" was compiled, or its request was answered when the compiler ended.
  ASSERT_EQ(results.size(), 4u);
  EXPECT_TRUE(results[1].ok());
  EXPECT_TRUE(results[2].ok());
  EXPECT_TRUE(results[3].ok() || results[3].code() == StatusCode::kUnavailable);
}

TEST_F(GrammarCompilerTest, WithoutATokenizerEveryGuideFails) {
  GrammarCompiler compiler([]() -> Result<std::shared_ptr<const Vocabulary>> {
    return NotFoundError("no tokenizer.json");
  });
  for (const char* regex : {"a", "b"}) {
    EXPECT_EQ(Get(compiler, regex).status().message(),
              "guided_decoding_guide needs a tokenizer: no tokenizer.json");
  }
}

}  // namespace
}  // namespace nereid::llm::grammar
