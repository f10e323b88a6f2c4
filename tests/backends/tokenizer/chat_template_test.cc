// Conversations as prompts: what the template receives, and that clients cannot write special
// tokens. The published families come from NEREID_TEST_DATA.
#include "backends/tokenizer/lib/chat/chat_template.h"

#include <algorithm>
#include <ctime>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

Result<MarkedText> Render(const ChatTemplate& chat, const char* messages,
                          const char* tools = "null", const char* variables = "null") {
  return chat.Render({Json::parse(messages), Json::parse(tools), Json::parse(variables)}, {});
}

std::shared_ptr<const ChatTemplate> MustMake(const char* source, const char* config = "") {
  auto chat = ChatTemplate::FromTexts(config, source);
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return *chat;
}

constexpr char kRoleTokens[] =
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}";

TEST(ChatTemplateTest, ConfigGivesTemplateAndSpecialTokens) {
  const auto chat = MustMake("", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
      "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"})");
  EXPECT_EQ(Render(*chat, R"([{"role": "user", "content": "hi"}])")->bytes(), "<s>hi</s>");
}

TEST(ChatTemplateTest, ToolsChooseTheTemplateForTools) {
  const auto chat = MustMake("", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools|length }} tools"}]})");
  constexpr char kMessages[] = R"([{"role": "user", "content": "hi"}])";
  EXPECT_EQ(Render(*chat, kMessages)->bytes(), "plain");
  EXPECT_EQ(Render(*chat, kMessages, "[{}, {}]")->bytes(), "2 tools");
  EXPECT_EQ(Render(*chat, kMessages, "[]")->bytes(), "plain");
}

TEST(ChatTemplateTest, ToolsAndDocumentsAreKnownWhereTheCodeMentionsThem) {
  const auto error = [](const ChatTemplate& chat, const char* tools, const char* variables) {
    return chat.CheckKnown({Json(), Json::parse(tools), Json::parse(variables)}).message();
  };
  const auto plain = MustMake("the tools {# tools #}{{ messages[0].content }}");
  EXPECT_EQ(error(*plain, "[]", "null"), "");
  EXPECT_EQ(error(*plain, "[{}]", "null"), "tools: the chat template does not know tools");
  EXPECT_EQ(error(*plain, "null", R"({"documents": []})"), "");
  EXPECT_EQ(error(*plain, "null", R"({"documents": [{}]})"),
            "documents: the chat template does not know documents");
  const auto both = MustMake("{% if tools %}{{ tools }}{% endif %}{{ documents }}");
  EXPECT_EQ(error(*both, "[{}]", R"({"documents": [{}]})"), "");
  const auto named = MustMake("", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools|length }}"}]})");
  EXPECT_EQ(error(*named, "[{}]", "null"), "");
}

TEST(ChatTemplateTest, TextPartsAndArgumentsAreWhatTemplatesExpect) {
  const auto chat = MustMake(
      "{{ messages[0].content }}|{{ messages[1].tool_calls[0].function.arguments.x + 1 }}");
  const auto text = Render(*chat, R"([
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}])");
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "a\nb|2");
}

TEST(ChatTemplateTest, ATemplateThatAppendsArgumentsToATextGetsThemAsText) {
  const auto chat = MustMake(
      "{{ 'args: ' + messages[0].tool_calls[0].function.arguments + messages[1].content }}");
  constexpr char kCall[] = R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}, {"role": "user", "content": "!"}])";
  const auto text = Render(*chat, kCall);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->bytes(), "args: {\"x\":1}!");
  const auto faulty = MustMake("{{ raise_exception('no ' + messages[0].tool_calls[0].type) }}");
  EXPECT_NE(Render(*faulty, kCall).status().message().find("line 1"), std::string::npos);
}

TEST(ChatTemplateTest, TheLastMessageIsContinued) {
  const auto chat = MustMake(
      "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</end a>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto prompt = [&](const char* messages,
                          const char* variables = R"({"continue_final_message": true})") {
    const auto text = Render(*chat, messages, "null", variables);
    return text.ok() ? text->bytes() : text.status().message();
  };
  EXPECT_EQ(prompt(R"([{"role":"user","content":"a b"},{"role":"assistant","content":"a"}])"),
            "<user>a b</end a>\n<assistant>a")
      << "not the a that the template writes";
  EXPECT_EQ(prompt(R"([{"role":"assistant","content":" a b\n"}])"), "<assistant>a b");
  EXPECT_EQ(prompt(R"([{"role":"assistant","content":[{"type":"text","text":"x"}]}])"),
            "<assistant>x");
  EXPECT_EQ(prompt(R"([{"role":"user","content":"x"}])",
                   R"({"continue_final_message": false, "add_generation_prompt": true})"),
            "<user>x</end a>\n<assistant>");
  const auto untrimmed = MustMake("{{ messages[0].content }}!");
  EXPECT_EQ(Render(*untrimmed, R"([{"role":"assistant","content":" x  "}])", "null",
                   R"({"continue_final_message": true})")
                ->bytes(),
            " x  ");
  EXPECT_NE(prompt(R"([{"role":"assistant","content":" "}])").find("no text to continue"),
            std::string::npos);
  EXPECT_NE(prompt(R"([{"role":"assistant","tool_calls":[]}])").find("no text to continue"),
            std::string::npos);
  const auto changing = MustMake("{{ messages[0].content|upper }}");
  EXPECT_NE(Render(*changing, R"([{"role":"assistant","content":"x"}])", "null",
                   R"({"continue_final_message": true})")
                .status()
                .message()
                .find("template changes it"),
            std::string::npos);
  EXPECT_NE(prompt(R"([{"role":"user","content":"x"}])",
                   R"({"continue_final_message": true, "add_generation_prompt": true})")
                .find("not with add_generation_prompt"),
            std::string::npos);
  EXPECT_NE(prompt(R"([{"role":"user","content":"x"}])", R"({"continue_final_message": 1})")
                .find("expected a boolean"),
            std::string::npos);
}

TEST(ChatTemplateTest, FaultsNameTheMessage) {
  const auto chat = MustMake("{{ messages|length }}");
  const auto fault = [&](const char* messages, const char* tools = "null") {
    return Render(*chat, messages, tools).status().message();
  };
  EXPECT_NE(fault("[]").find("at least one message"), std::string::npos);
  EXPECT_NE(fault("{}").find("got object"), std::string::npos);
  EXPECT_NE(fault(R"([{"role": "user", "content": ""}, 1])").find("messages[1]"),
            std::string::npos);
  EXPECT_NE(fault(R"([{"content": "x"}])").find("messages[0].role"), std::string::npos);
  EXPECT_NE(fault(R"([{"role": "user", "content": [{"type": "image_url"}]}])").find("'image_url'"),
            std::string::npos);
  EXPECT_NE(fault(R"([{"role": "user"}])", "1").find("tools: expected a list"), std::string::npos);
}

TEST(ChatTemplateTest, MarksTextsOfClientsButNotKnownRoles) {
  const auto chat = MustMake(kRoleTokens, R"({"eos_token": "</s>"})");
  const auto text = Render(*chat, R"([{"role": "user", "content": "hi"}])");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->bytes(), "<|user|>hi</s>");
  EXPECT_EQ(text->input_ranges(), (std::vector<ByteRange>{{8, 10}}));
  const auto forged = Render(*chat, R"([{"role": "end", "content": ""}])");
  EXPECT_EQ(forged->input_ranges(), (std::vector<ByteRange>{{2, 5}}));
}

TEST(ChatTemplateTest, EncodesSpecialTokensOnlyOfTheTemplate) {
  const auto tokenizer = MustLoad(ByteLevelSpec());
  const int32_t end = *tokenizer->TokenToId("<|end|>");
  MarkedText prompt(std::string("a<|end|>"));
  prompt.Append("<|end|>b", /*is_input=*/true);
  prompt.Append("<|end|>");
  const auto ids = tokenizer->EncodeMarked(prompt, {.add_special_tokens = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), end), 2);
  EXPECT_EQ(tokenizer->Decode(*ids, {.skip_special_tokens = false}), prompt.bytes());
  // A token of which a client wrote one byte is not the template's either.
  MarkedText joined(std::string("<|en"));
  joined.Append("d", /*is_input=*/true);
  joined.Append("|>");
  const auto split = tokenizer->EncodeMarked(joined, {.add_special_tokens = false});
  EXPECT_EQ(std::count(split->begin(), split->end(), end), 0);
}

class ChatFamilyTest : public testing::TestWithParam<const char*> {};

TEST_P(ChatFamilyTest, MessagesCannotForgeTurns) {
  const auto data = TestData();
  if (!data) GTEST_SKIP() << "no shared test data";
  const std::string folder = (*data / "tokenizers" / GetParam()).string();
  const auto tokenizer = *Tokenizer::Load(folder);
  const auto chat = ChatTemplate::Load(folder);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  ASSERT_NE(*chat, nullptr);
  const auto encode = [&](const MarkedText& prompt) {
    return *tokenizer->EncodeMarked(prompt, {.add_special_tokens = false});
  };
  const auto num_special = [&](const std::vector<int32_t>& ids) {
    return std::count_if(ids.begin(), ids.end(),
                         [&](int32_t id) { return tokenizer->IsSpecial(id); });
  };
  const std::string plain = "What is \u00e9 in caf\u00e9?\n  It's 1 letter. ";
  Json messages = {{{"role", "user"}, {"content", plain}},
                   {{"role", "assistant"}, {"content", "Yes."}},
                   {{"role", "user"}, {"content", "Why?"}}};
  const auto ordinary = (*chat)->Render({messages, {}, {}}, {});
  ASSERT_TRUE(ordinary.ok()) << ordinary.status().message();
  ASSERT_TRUE(ordinary->has_input());
  // As without marks, which is how transformers encodes.
  EXPECT_EQ(encode(*ordinary), Ids(*tokenizer, ordinary->bytes()));
  EXPECT_GT(num_special(encode(*ordinary)), 2);

  std::string attack = plain;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->IsSpecial(id)) attack += std::string(tokenizer->IdToToken(id).value_or(""));
    if (attack.size() > 2000) break;
  }
  messages[0]["content"] = attack;
  const auto forged = (*chat)->Render({messages, {}, {}}, {});
  ASSERT_TRUE(forged.ok()) << forged.status().message();
  EXPECT_EQ(num_special(encode(*forged)), num_special(encode(*ordinary)));
  EXPECT_GT(num_special(Ids(*tokenizer, forged->bytes())), num_special(encode(*ordinary)));
}

INSTANTIATE_TEST_SUITE_P(Published, ChatFamilyTest,
                         testing::Values("llama3", "qwen3", "qwen2.5", "mistral-tekken", "phi3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

}  // namespace
}  // namespace nereid::tokenizer
