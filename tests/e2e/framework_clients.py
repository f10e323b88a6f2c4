"""What agent frameworks ask of a server: LangChain and LlamaIndex, unchanged. Runs in an interpreter that has them (test_frameworks.py); the arguments are the
server's address and the answer of the model `oracle` as a prompt."""
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

URL, CALLS = sys.argv[1:]
PROMPT = "Once upon a time"


def f(a: int) -> int:
    """Adds one."""
    return a + 1


def check_tools(first, calls):
    assert [(call["name"], call["args"]) for call in calls] == [("f", {"a": 1}), ("g", {})], first


def text_of(message):
    content = message.content
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def langchain(make):
    """`make` returns a chat model of the framework for a model of the server."""
    story = make("ensemble", max_tokens=8, temperature=0)
    whole = story.invoke([SystemMessage("Be brief."), HumanMessage(PROMPT)])
    assert whole.content and whole.usage_metadata["output_tokens"] == 8, whole
    pieces = list(story.stream([SystemMessage("Be brief."), HumanMessage(PROMPT)]))
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    assert len(pieces) > 4 and text_of(total) == text_of(whole), total
    assert [text_of(each) for each in story.batch([PROMPT, PROMPT])] == [text_of(story.invoke(PROMPT))] * 2
    agent = make("oracle", max_tokens=8).bind_tools([tool(f)])
    answer = agent.invoke(CALLS)
    check_tools(answer, answer.tool_calls)
    total = None
    for piece in agent.stream(CALLS):
        total = piece if total is None else total + piece
    check_tools(total, total.tool_calls)
    results = [ToolMessage(content="2", tool_call_id=call["id"]) for call in answer.tool_calls]
    assert agent.invoke([HumanMessage(CALLS), answer, *results, HumanMessage(CALLS)]).tool_calls


def langchain_completions():
    story = OpenAI(base_url=URL + "/v1", api_key="none", model="ensemble", max_tokens=8, temperature=0, max_retries=0)
    assert "".join(story.stream(PROMPT)) == story.invoke(PROMPT) != ""
    best = OpenAI(base_url=URL + "/v1", api_key="none", model="ensemble", max_tokens=4, n=1, best_of=3, max_retries=0)
    assert best.invoke(PROMPT)


def llama_index():
    def make(model, **fields):
        return OpenAILike(model=model, api_base=URL + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True, max_retries=0, **fields)
    story = make("ensemble", max_tokens=8, temperature=0)
    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=PROMPT)]
    whole = story.chat(messages).message.content
    assert whole and list(story.stream_chat(messages))[-1].message.content == whole
    assert story.complete(PROMPT).text
    agent = make("oracle", max_tokens=8)
    add = FunctionTool.from_defaults(f)
    calls = agent.get_tool_calls_from_response(agent.chat_with_tools([add], user_msg=CALLS, allow_parallel_tool_calls=True), error_on_no_tool_call=True)
    assert [(call.tool_name, call.tool_kwargs) for call in calls] == [("f", {"a": 1}), ("g", {})]
    last = list(agent.stream_chat_with_tools([add], user_msg=CALLS, allow_parallel_tool_calls=True))[-1]
    assert [call.tool_name for call in agent.get_tool_calls_from_response(last, error_on_no_tool_call=True)] == ["f", "g"]


langchain(lambda model, **fields: ChatOpenAI(base_url=URL + "/v1", api_key="none", model=model, max_retries=0, stream_usage=True, **fields))
langchain(lambda model, **fields: ChatOpenAI(base_url=URL + "/v1", api_key="none", model=model, max_retries=0, use_responses_api=True, **fields))
langchain(lambda model, **fields: ChatAnthropic(base_url=URL, api_key="none", model=model, max_retries=0, **fields))
langchain_completions()
llama_index()
print("all answered")
