#include "backends/llm_core/grammar/json_schema.h"

#include "tests/backends/llm_core/grammar/small_vocabulary.h"

namespace nereid::llm::grammar {
namespace {

Result<std::shared_ptr<const Grammar>> CompileSchema(const std::string& schema) {
  static const auto vocabulary = BytesAnd({"{\"", "\":", "\",\"", "\"}", "\"a\"", "}}", "],[",
                                           "abc", " \n ", "12", "1.", "\\u", "null"});
  return Grammar::FromJsonSchema(schema, vocabulary);
}

void Check(const std::string& schema, const std::vector<std::string>& valid,
           const std::vector<std::string>& invalid) {
  SCOPED_TRACE(schema);
  const auto grammar = CompileSchema(schema);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  for (const std::string& text : valid) EXPECT_TRUE(Accepts(*grammar, text)) << text;
  for (const std::string& text : invalid) EXPECT_FALSE(Accepts(*grammar, text)) << text;
}

std::string Refusal(const std::string& schema) {
  const auto grammar = CompileSchema(schema);
  EXPECT_FALSE(grammar.ok()) << schema;
  return grammar.status().message();
}

TEST(JsonSchema, AnySchemaAcceptsJsonAndNothingElse) {
  for (const char* schema : {"{}", "true"}) {
    Check(schema,
          {"null", "true", " -1.5e+3", "\"\\u00e9\\ud83d\\ude00\\n\"", "[1, {\"a\" : []}]", "{}",
           "\n{\"a\":1,\n\"b\":{\"a\":2}}"},
          {"nul", "01", "1.", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "[1,]", "{\"a\":1,}", "{a:1}",
           "{\"a\":1,\"a\":2}", "1 2", ""});
  }
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrderAndOthersBehind) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{}},
          "required":["b"]})";
  Check(schema,
        {R"({"b":""})", R"({"a":1,"b":"x"})", R"({"b":"x","z":1,"y":[]})",
         R"({"a":1,"b":"","c":null})"},
        {"{}", R"({"a":1})", R"({"a":1.5,"b":""})", R"({"b":"","b":""})", R"({"b":"","z":1,"z":2})",
         R"({"b":"","\u0062":1})", R"({"b":"","a":"x"})", "[]"});
  Check(R"({"type":"object","properties":{"a":{}},"additionalProperties":false})",
        {"{}", R"({"a":[]})"}, {R"({"b":1})", R"({"a":1,"b":1})"});
  Check(R"({"type":"object","required":["k"],"additionalProperties":{"type":"null"}})",
        {R"({"k":null})", R"({"k":null,"j":null})"}, {R"({"k":1})", "{}"});
}

TEST(JsonSchema, NamesInOtherSpellingsAreTheSameName) {
  Check(R"({"type":"object","properties":{"é":{"type":"integer"}}})",
        {"{\"\\u00E9\":1}", "{\"\xc3\xa9\":1}"},
        {"{\"\\u00e9\":\"x\"}", "{\"\xc3\xa9\":1,\"\\u00e9\":1}",
         "{\"z\xc3\xa9\":1,\"z\\u00e9\":1}"});
}

TEST(JsonSchema, CountsOfPropertiesCountDifferentNames) {
  Check(R"({"type":"object","minProperties":2,"maxProperties":3})",
        {R"({"a":1,"b":2})", R"({"a":1,"b":2,"c":3})"},
        {"{}", R"({"a":1})", R"({"a":1,"a":2})", R"({"a":1,"b":1,"c":1,"d":1})"});
}

TEST(JsonSchema, PatternsOfPropertiesChooseTheirSchemas) {
  Check(R"({"type":"object","patternProperties":{"^x":{"type":"integer"},"y$":{"minimum":3}},
           "additionalProperties":{"type":"string"}})",
        {R"({"xa":1})", R"({"xy":3,"b":"s","by":"s"})", R"({"zy":4.5})"},
        {R"({"xa":"s"})", R"({"xy":2})", R"({"xy":3.5})", R"({"b":1})"});
  Check(R"({"type":"object","propertyNames":{"maxLength":2}})", {R"({"ab":1})"}, {R"({"abc":1})"});
  // The last name that is allowed is followed by no comma.
  const auto few = CompileSchema(R"({"type":"object","propertyNames":{"enum":["p","q"]}})");
  Matcher matcher(*few);
  EXPECT_TRUE(matcher.Accept(R"({"p":1,"q":1)"));
  EXPECT_FALSE(matcher.Accept(","));
  EXPECT_TRUE(matcher.Accept("}"));
}

TEST(JsonSchema, ArraysHoldTheirItems) {
  Check(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"type":"boolean"},
           "minItems":1,"maxItems":4})",
      {"[1]", "[1,null]", "[1 , null,true,false]"},
      {"[]", "[null]", "[1,2]", "[1,null,1]", "[1,null,true,true,true]"});
  Check(R"({"type":"array","items":false})", {"[]"}, {"[1]"});
  Check(R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})", {"[]", "[1]"},
        {"[1,1]"});
  Check(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, StringsHoldLengthsPatternsAndFormats) {
  Check(R"({"type":"string","minLength":2,"maxLength":3})",
        {R"("ab")", "\"\xf0\x9f\x98\x80\xc3\xa9\"", R"("\ud83d\ude00\n\u0041")"},
        {R"("a")", R"("abcd")", R"("\ud83d\ude00")"});
  Check(R"({"type":"string","pattern":"^a+\"$"})", {R"("aa\"")"}, {R"("aa")", R"("baa\"")"});
  Check(R"({"type":"string","pattern":"b","maxLength":3})", {R"("abc")"},
        {R"("abcd")", R"("aaa")"});
  Check(R"({"format":"date","type":"string"})", {R"("2024-02-29")", R"("1999-12-31")"},
        {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-1-1")"});
  Check(R"({"format":"ipv6","type":"string"})",
        {R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("::1.2.3.4")"},
        {R"("1::2::3")", R"("12345::")", R"(":1")"});
  Check(R"({"format":"unknown","type":"string"})", {R"("x")"}, {"1"});
}

TEST(JsonSchema, NumbersHoldTheirBounds) {
  Check(R"({"type":"integer","minimum":-3,"exclusiveMaximum":12,"multipleOf":3})", {"-3", "0", "9"},
        {"-6", "12", "4", "3.0", "1e1"});
  Check(R"({"type":"number","minimum":0.5,"maximum":2})", {"0.5", "1", "2.00", "1.99"},
        {"0.49", "2.01", "-1"});
}

TEST(JsonSchema, ValuesMustFitTheRulesBesideThem) {
  Check(R"({"type":"string","enum":["a",1,"abc"],"maxLength":2})", {R"("a")"}, {"1", R"("abc")"});
  Check(R"({"const":{"a":[1,"x"]}})", {R"({"a":[1,"x"]})", R"({ "a" : [ 1.0 , "x" ] })"}, {"{}"});
  Check(R"({"enum":[null,true,2.5]})", {"null", "true", "2.50"}, {"false", "2"});
}

TEST(JsonSchema, SchemasAreCombined) {
  Check(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", R"("a")"},
        {R"("ab")", "1.5"});
  Check(R"({"allOf":[{"type":"integer"},{"minimum":2}],"maximum":4})", {"3"}, {"1", "5", "2.5"});
  Check(
      R"({"allOf":[{"properties":{"a":{"type":"integer"}}},{"properties":{"a":{"minimum":3}}}],"type":"object"})",
      {R"({"a":3})"}, {R"({"a":2})", R"({"a":"x"})"});
  Check(R"({"oneOf":[{"properties":{"k":{"const":"x"},"v":{"type":"integer"}},"required":["k"]},
                     {"properties":{"k":{"const":"y"},"v":{"type":"null"}},"required":["k"]}],"type":"object"})",
        {R"({"k":"x","v":1})", R"({"k":"y","v":null})"}, {R"({"k":"x","v":null})", R"({"k":"z"})"});
  Check(R"({"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}})",
        {"{}", R"({"b":1})", R"({"a":1,"b":1})"}, {R"({"a":1})"});
  Check(R"({"type":["string","null"],"not":{"const":"x"}})", {"null", R"("y")"}, {R"("x")", "1"});
}

TEST(JsonSchema, RecursiveSchemasNest) {
  Check(
      R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#/$defs/n"}}},
            "required":["v"],"additionalProperties":false}},"$ref":"#/$defs/n"})",
      {R"({"v":1})", R"({"v":1,"c":[{"v":2,"c":[]},{"v":3}]})"}, {R"({"v":1,"c":[{"c":[]}]})"});
}

TEST(JsonSchema, RecursionThroughOneOfEnds) {
  const std::string schema =
      R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
          "a":{"type":"object","properties":{"p":{"$ref":"#"}},"required":["p"]},
          "b":{"type":"object","properties":{"p":{"$ref":"#"},"q":{}},"required":["p"]}}})";
  EXPECT_FALSE(Refusal(schema).empty());
}

TEST(JsonSchema, NumbersThatDoublesRoundToAnotherSideOfABoundAreNotGenerated) {
  Check(R"({"type":"number","exclusiveMaximum":0.5})", {"0.4999", "-3"},
        {"0.49999999999999999999"});
  EXPECT_EQ(Refusal(R"({"enum":[18446744073709551617]})"),
            "#: a number of the schema is too large");
  EXPECT_EQ(Refusal(R"({"enum":[[1,1]],"uniqueItems":true})"), "no text fits the grammar");
}

TEST(JsonSchema, WhatLeadsNowhereIsNeverBegun) {
  // Property b cannot exist, so no text begins its name.
  Check(R"({"type":"object","properties":{"a":{},"b":false},"additionalProperties":false})",
        {R"({"a":1})"}, {R"({"b)"});
  const auto recursive = CompileSchema(
      R"({"type":"object","properties":{"a":{"$ref":"#"}},"additionalProperties":false})");
  ASSERT_TRUE(recursive.ok());
  EXPECT_TRUE(Accepts(*recursive, R"({"a":{"a":{}}})"));
  EXPECT_EQ(Refusal(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
            "no text fits the grammar");
  EXPECT_EQ(Refusal("false"), "no text fits the grammar");
}

TEST(JsonSchema, ConditionsChooseOneOfTwoSchemas) {
  Check(R"({"type":"object","properties":{"k":{"enum":["x","y"]},"v":{}},"required":["k"],
           "if":{"properties":{"k":{"const":"x"}},"required":["k"]},
           "then":{"required":["v"]},"else":{"properties":{"v":false}}})",
        {R"({"k":"x","v":1})", R"({"k":"y"})"}, {R"({"k":"x"})", R"({"k":"y","v":1})"});
  Check(R"({"if":{"type":"string"},"then":{"maxLength":1}})", {"1", R"("a")"}, {R"("ab")"});
}

TEST(JsonSchema, ASchemaOfAConditionHoldsWhereItIsSaidAgain) {
  Check(R"({"anyOf":[{"$ref":"#/$defs/d"}],"if":{"type":"null","$ref":"#/$defs/d"},
           "else":{"type":["array","string"]},"$defs":{"d":{"type":"string"}}})",
        {"\"a\""}, {"[1]", "[]", "null", "1"});
}

TEST(JsonSchema, ExactlyOneBranchOfOneOfIsValid) {
  Check(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5", R"("x")"}, {"2", "1.5"});
  Check(R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],
           "properties":{"a":{},"b":{}}})",
        {R"({"a":1})", R"({"b":1})"}, {R"({"a":1,"b":1})", "{}"});
}

TEST(JsonSchema, NegationsHoldWhateverFailsAKeyword) {
  Check(R"({"not":{"minimum":3}})", {"2.9"}, {"3", R"("x")"});
  Check(R"({"type":"number","not":{"type":"integer"}})", {"1.5"}, {"1", "1.0"});
  Check(R"({"type":"number","not":{"enum":[0,1.5]}})", {"1", "-1.5"}, {"0", "-0", "1.50"});
  Check(R"({"type":"array","not":{"const":[1,"x"]}})", {"[]", "[1]", R"([2,"x"])", R"([1,"x",1])"},
        {R"([1,"x"])"});
  Check(R"({"type":"object","not":{"const":{"a":1}}})", {"{}", R"({"a":2})", R"({"b":1})"},
        {R"({"a":1})"});
  Check(R"({"type":"array","not":{"items":{"type":"integer"}}})", {R"([1,"x"])"}, {"[]", "[1,2]"});
  Check(R"({"type":"object","not":{"properties":{"a":{"type":"integer"}},"required":["a"]}})",
        {"{}", R"({"a":"x"})"}, {R"({"a":1})"});
  Check(R"({"not":{"not":{"type":"null"}}})", {"null"}, {"1"});
  Check(R"({"type":"number","multipleOf":0.25,"not":{"multipleOf":0.5}})", {"0.25", "1.75"},
        {"0.5", "1", "0.3"});
}

TEST(JsonSchema, ItemsAreCounted) {
  Check(R"({"type":"array","contains":{"type":"null"}})", {"[null]", "[1,null,2]"}, {"[]", "[1]"});
  Check(R"({"type":"array","contains":{"minimum":5},"minContains":1,"maxContains":2,"maxItems":3,
           "items":{"type":"integer"}})",
        {"[5]", "[1,6,7]"}, {"[]", "[1]", "[5,6,7]", "[5,1,1,1]"});
}

TEST(JsonSchema, WhatNoKeywordHasEvaluatedIsHeld) {
  Check(R"({"type":"object","properties":{"a":{}},"anyOf":[{"properties":{"b":{"type":"integer"}}},
           {"properties":{"c":{"type":"integer"}}}],"unevaluatedProperties":false})",
        {"{}", R"({"a":1,"b":1})", R"({"b":1,"c":1})"}, {R"({"d":1})", R"({"b":"x"})"});
  Check(R"({"allOf":[{"properties":{"a":{}}},{"unevaluatedProperties":false}],"type":"object"})",
        {"{}"}, {R"({"a":1})"});
  Check(R"({"type":"array","prefixItems":[{}],"allOf":[{"prefixItems":[{},{"type":"null"}]}],
           "unevaluatedItems":false})",
        {"[]", "[1,null]"}, {"[1,null,1]", "[1,1]"});
  // What `contains` counts is evaluated, also by a schema inside of allOf.
  Check(R"({"type":"array","prefixItems":[true],"contains":{"type":"string"},
           "unevaluatedItems":false})",
        {R"([1,"x"])", R"(["x"])", R"(["x","y","z"])"}, {"[1]", R"([1,"x",2])", "[]"});
  Check(R"({"type":"array","allOf":[{"contains":{"multipleOf":2}},{"contains":{"multipleOf":3}}],
           "items":{"type":"integer"},"unevaluatedItems":false})",
        {"[2,3]", "[5,6]"}, {"[2]"});
  Check(R"({"type":"array","allOf":[{"contains":{"enum":[2,4]}},{"contains":{"enum":[3]}}],
           "unevaluatedItems":{"enum":[null]}})",
        {"[2,3,4]", "[3,null,2]"}, {"[2,3,1]", "[2,4]"});
  Check(R"({"type":"array","contains":{"const":"a"},"minContains":0,"maxContains":2,
           "unevaluatedItems":{"type":"null"}})",
        {"[]", R"(["a",null,"a"])"}, {R"(["b"])", R"(["a","a","a"])"});
  // It is so since draft 2020-12.
  const std::string rest = R"("type":"array","contains":{"type":"string"},
                              "unevaluatedItems":{"type":"string","maxLength":1}})";
  Check("{" + rest, {R"(["xy"])", R"(["x"])"}, {"[1]", R"(["xy",1])"});
  Check(R"({"$schema":"https://json-schema.org/draft/2019-09/schema",)" + rest, {R"(["x"])"},
        {R"(["xy"])", "[1]"});
}

TEST(JsonSchema, WhatNoKeywordHasEvaluatedMayBeNegated) {
  Check(R"({"type":"object","not":{"properties":{"a":{}},"unevaluatedProperties":false}})",
        {R"({"b":1})", R"({"a":1,"b":1})"}, {"{}", R"({"a":1})"});
  Check(R"({"type":"object","not":{"required":["a"],"unevaluatedProperties":{"type":"null"}}})",
        {"{}", R"({"b":null})", R"({"a":1})"}, {R"({"a":null})"});
  // What a branch evaluates counts where the branch is valid, whichever else is.
  Check(R"({"type":"object","not":{"unevaluatedProperties":false,
           "anyOf":[true,{"properties":{"a":{"type":"integer"}}},{"required":["b"],
                     "patternProperties":{"^b":true}}]}})",
        {R"({"a":"x"})", R"({"c":1})", R"({"a":1,"bb":1})"},
        {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1,"bb":2})"});
  Check(R"({"type":"object","not":{"unevaluatedProperties":false,
           "if":{"required":["a"]},"then":{"properties":{"a":true,"b":true}}}})",
        {R"({"b":1})", R"({"a":1,"c":1})"}, {"{}", R"({"a":1,"b":1})"});
  // A negation evaluates nothing for the schema around it, and two of them hold as none does.
  Check(R"({"type":"object","unevaluatedProperties":false,"properties":{"a":true},
           "not":{"not":{"properties":{"b":true},"unevaluatedProperties":false}}})",
        {"{}"}, {R"({"a":1})", R"({"b":1})"});
  Check(R"({"type":"object","not":{"not":{"allOf":[{"properties":{"b":true}}],
           "unevaluatedProperties":false}}})",
        {"{}", R"({"b":1})"}, {R"({"a":1})"});
  Check(R"({"type":"array","not":{"prefixItems":[true],"unevaluatedItems":{"type":"string"}}})",
        {R"([1,"x",2])"}, {"[]", "[1]", R"([1,"x"])"});
  Check(R"({"type":"array","not":{"contains":{"type":"string"},"unevaluatedItems":false}})",
        {R"(["x",1])", "[]", "[1]"}, {R"(["x"])", R"(["x","y"])"});
  Check(R"({"type":"object","oneOf":[{"properties":{"a":true},"unevaluatedProperties":false},
           {"properties":{"b":true},"unevaluatedProperties":false}]})",
        {R"({"a":1})", R"({"b":1})"}, {"{}", R"({"a":1,"b":1})", R"({"c":1})"});
}

TEST(JsonSchema, ReferencesAreResolvedAgainstTheNearestIdentifier) {
  Check(R"({"$id":"http://x/a/root.json","type":"array","items":{"$ref":"int.json"},
           "$defs":{"i":{"$id":"int.json","$ref":"#n","$defs":{"n":{"$anchor":"n","type":"integer"}}}}})",
        {"[1]"}, {R"(["x"])"});
  // A constant has no identifiers.
  EXPECT_EQ(Refusal(R"({"$ref":"z.json","const":{"$id":"z.json"}})"),
            "#: $ref: 'z.json' is not inside of the schema");
}

TEST(JsonSchema, ItemsThatMustDiffer) {
  Check(R"({"type":"array","uniqueItems":true,"items":{"type":["string","null"],"maxLength":3}})",
        {"[]", R"(["a","b",null])", R"(["","é"])"},
        {R"(["a","a"])", R"(["a","\u0061"])", "[\"\xc3\xa9\",\"\\u00e9\"]", "[null,null]"});
  Check(R"({"type":"array","uniqueItems":true,"items":{"type":"number"}})",
        {"[1,2,10,1.5]", "[0,-1,0.1]"}, {"[1,1.0]", "[0,-0]", "[0.5,0.50]", "[-0,2,0.0]", "[1,1]"});
  Check(R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b",1,1.0]},"minItems":3})",
        {R"(["b",1,"a"])"}, {R"(["a","b"])", R"(["a","b",1,1])", R"(["a","b",1,"a"])"});
  Check(R"({"type":"array","uniqueItems":true,"prefixItems":[{"type":"boolean"},
           {"type":"boolean"}],"items":false})",
        {"[true,false]", "[false]"}, {"[true,true]", "[true,false,null]"});
  Check(R"({"items":{"type":"array","uniqueItems":true,"items":{"type":"integer"}}})",
        {"[[1,2],[1,2],[12,1]]"}, {"[[1,2],[1,1]]"});
  // The last value that is left is followed by no comma.
  const auto few =
      CompileSchema(R"({"type":"array","uniqueItems":true,"items":{"type":"boolean"}})");
  Matcher matcher(*few);
  EXPECT_TRUE(matcher.Accept("[true,false"));
  EXPECT_FALSE(matcher.Accept(","));
  EXPECT_TRUE(matcher.Accept("]"));
  EXPECT_EQ(Refusal(R"({"type":"array","uniqueItems":true,
                       "prefixItems":[{"enum":[1]},{"enum":[1,2]},{"enum":[2,1]}]})"),
            "#: uniqueItems: items that must differ cannot be enforced: some have few values, and "
            "others have other ones");
}

TEST(JsonSchema, NegationsAboutAnyPropertyHold) {
  Check(R"({"type":"object","not":{"additionalProperties":{"type":"integer"},
           "properties":{"a":{}}}})",
        {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"b":1,"c":1.5})", R"({"b":1,"c":1.5,"d":2})"},
        {"{}", R"({"a":"x"})", R"({"b":1})", R"({"a":"x","b":1})"});
  Check(R"({"type":"object","not":{"patternProperties":{"^x":{"type":"integer"}}}})",
        {R"({"xa":"s"})", R"({"a":1,"x":null})", R"({"xa":1,"xb":"s"})"},
        {"{}", R"({"xa":1})", R"({"a":"s"})"});
  Check(R"({"type":"object","not":{"propertyNames":{"maxLength":2}},"maxProperties":2})",
        {R"({"abc":1})", R"({"a":1,"abc":1})"}, {"{}", R"({"a":1,"b":1})", R"({"ab":1})"});
  // One property may be the one of both demands.
  Check(R"({"type":"object","maxProperties":1,
           "allOf":[{"not":{"propertyNames":{"pattern":"^a"}}},
                    {"not":{"additionalProperties":{"type":"string"}}}]})",
        {R"({"b":1})"}, {"{}", R"({"a":1})", R"({"b":"x"})"});
  Check(R"({"if":{"additionalProperties":{"type":"string"}},"then":{"maxProperties":1}})",
        {R"({"a":"x"})", R"({"a":1,"b":"x"})", "3"}, {R"({"a":"x","b":"y"})"});
}

TEST(JsonSchema, ASchemaWithoutValuesMayBeAGrammarWithoutTexts) {
  const auto vocabulary = BytesAnd({});
  const auto grammar = Grammar::FromJsonSchema("false", vocabulary, {.allows_no_text = true});
  ASSERT_TRUE(grammar.ok());
  EXPECT_FALSE(Accepts(*grammar, "1"));
  EXPECT_FALSE(Accepts(*grammar, ""));
}

// The examples of the specification, and of the suite of the JSON Schema project.
TEST(JsonSchema, DynamicReferencesLeadToTheOutermostAnchor) {
  const std::string tree = R"("tree":{"$id":"tree","$dynamicAnchor":"node","type":"object",
      "properties":{"data":true,"children":{"type":"array","items":{"$dynamicRef":"#node"}}}})";
  Check(R"({"$id":"http://x/strict","$dynamicAnchor":"node","$ref":"tree",
           "unevaluatedProperties":false,"$defs":{)" +
            tree + "}}",
        {R"({"children":[{"data":1}]})"}, {R"({"children":[{"daat":1}]})", R"({"daat":1})"});
  Check(R"({"$id":"http://x/loose","$ref":"tree","$defs":{)" + tree + "}}",
        {R"({"children":[{"daat":1}]})"}, {R"({"children":[1]})"});
  // Each list has the items of the schema that refers to it.
  Check(R"({"$id":"http://x/lists","properties":{"s":{"$ref":"strings"},"n":{"$ref":"numbers"}},
           "$defs":{
             "list":{"$id":"list","type":"array","items":{"$dynamicRef":"#t"},
                     "$defs":{"t":{"$dynamicAnchor":"t"}}},
             "strings":{"$id":"strings","$ref":"list",
                        "$defs":{"t":{"$dynamicAnchor":"t","type":"string"}}},
             "numbers":{"$id":"numbers","$ref":"list",
                        "$defs":{"t":{"$dynamicAnchor":"t","not":{"type":"string"}}}}}})",
        {R"({"s":["a"],"n":[1,null]})"}, {R"({"s":[1]})", R"({"n":["a"]})"});
  const std::string recursive = R"("$schema":"https://json-schema.org/draft/2019-09/schema",
      "$id":"http://x/outer","$defs":{"in":{"$id":"in","$recursiveAnchor":true,
      "type":["array","string"],"items":{"$recursiveRef":"#"}}},"$ref":"in","maxItems":1)";
  Check("{" + recursive + "}", {R"([["a","b"]])", R"(["a"])"}, {R"(["a","b"])", "[1]"});
  Check(R"({"$recursiveAnchor":true,)" + recursive + "}", {R"([["a"]])"},
        {R"([["a","b"]])", R"(["a","b"])"});
}

TEST(JsonSchema, WhatCannotBeEnforcedIsRefusedByName) {
  EXPECT_EQ(Refusal(R"({"properties":{"a":{"type":"array","uniqueItems":true}}})"),
            "#/properties/a: uniqueItems: items that must differ cannot be enforced: they may be "
            "arrays or objects");
  EXPECT_EQ(Refusal(R"({"not":{"uniqueItems":true}})"),
            "#/not: uniqueItems: its negation cannot be enforced");
  EXPECT_EQ(Refusal(R"({"$ref":"#"})"), "#: $ref: the schema refers to itself without end");
  EXPECT_EQ(Refusal(R"({"$ref":"http://x/y"})"),
            "#: $ref: 'http://x/y' is not inside of the schema");
  EXPECT_EQ(Refusal(R"({"type":"string","pattern":"(a)\\1"})"),
            "#: pattern: a back-reference at byte 3 of the pattern cannot be enforced");
  EXPECT_EQ(Refusal(R"({"type":"text"})"), "#: type: unknown type \"text\"");
  // Where the type excludes it, a keyword does not matter.
  EXPECT_TRUE(CompileSchema(R"({"type":"string","uniqueItems":true})").ok());
}

}  // namespace
}  // namespace nereid::llm::grammar
