"""Makes random templates of the constructs that chat templates use, for comparison with jinja2."""
import random

VARIABLES = {
    "messages": [
        {"role": "system", "content": "You are\nterse. "},
        {"role": "user", "content": "  Say \"hi\" <b>&</b> 日本 "},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "abcdef123", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True], "z": {"é": "it's"}}}}]},
        {"role": "tool", "content": "{\"t\": 3}", "tool_call_id": "abcdef123"},
        {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nBecause.", "reasoning_content": ""},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "Does \\ it.", "parameters": {
        "type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["string", "null"]}}, "required": ["x"]}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "n": 7, "ratio": 0.25, "empty": "", "nothing": None,
    "words": ["b", "A", "c", "a"], "numbers": [3, 1, 2],
}
TEXTS = ["a", " ", "\n", "  \n", "\n  ", "x y", "é", "\t", "<|im_start|>", "\r\n", "- ", "+"]
# Expressions by the type that they mostly have, so that most templates render. T, N, L, D and A stand for an expression that is a text, a number,
# a list, a dictionary or anything.
FORMS = {
    "T": ["'a'", "'\\n'", "\"it's\"", "'日本'", "''", "bos_token", "' x y '", "'</think>a'", "m", "x", "T|trim", "T|upper", "T|lower", "T|title", "T|capitalize",
          "T|replace('a', T)", "T|indent(2)", "T|indent(2, true)", "T|truncate(6)", "T|center(9)", "T|string", "T|safe", "T|e", "A|tojson", "A|tojson(indent=2)",
          "A|string", "L|join(', ')", "L|join(T)", "T.strip()", "T.lstrip()", "T.rstrip('\\n')", "T.upper()", "T.title()", "T.replace('a', 'c')", "T[1:]", "T[::-1]",
          "T[:2]", "T.split('</think>')[-1]", "T + T", "T ~ A", "T * 2", "T.join(words)", "T.removeprefix('<')", "T.swapcase()", "'%s|%s' % (T, N)",
          "A|default('d')", "A|default(T, true)", "T.partition(' ')[0]", "(T if B else T)", "messages[1].content", "messages[0]['role']", "T|reverse"],
    "N": ["1", "0", "2.5", "-3", "n", "ratio", "N + N", "N - N", "N * 2", "N // 2", "N % 3", "N / 4", "T|length", "L|length", "D|length", "-N", "N|abs", "N|int",
          "T|int", "N|float", "N|round(1)", "numbers|sum", "numbers|max", "T.find('a')", "T.count('a')", "T|wordcount", "loop.index", "loop.index0", "ns.v"],
    "L": ["words", "numbers", "messages", "[]", "[1, 'b']", "(1, 2)", "[A, A]", "L[1:]", "L[::-1]", "L[:2]", "L|reverse|list", "words|sort", "words|map('upper')|list",
          "messages|map(attribute='role')|list", "messages|selectattr('role', 'equalto', 'user')|list", "messages|rejectattr('content')|list",
          "L|select('string')|list", "D|items|list", "D|dictsort", "L|batch(2)|list", "L|slice(2)|list", "messages|groupby('role')", "L|unique|list", "T.split()",
          "T.split('a')", "T.splitlines()", "T|list", "range(3)|list", "D.keys()|list", "D.values()|list", "L + L", "words|select('in', 'abc')|list"],
    "D": ["{}", "{'a': 1}", "{'k': A}", "messages[0]", "messages[1]", "tools[0]", "tools[0].function", "messages[2].tool_calls[0].function.arguments", "m"],
    "B": ["true", "not A", "A is defined", "A is none", "A is not none", "A is string", "A is number", "A is mapping", "A is iterable", "A is sequence",
          "A is boolean", "N is odd", "N is divisibleby 2", "A == A", "A != A", "N < N", "N >= N", "T < T", "T in T", "A in L", "T not in D", "B and B", "B or B",
          "T.startswith('a')", "T.isdigit()", "A is eq 7", "T is upper", "loop.first", "loop.last", "add_generation_prompt", "N < N < N"],
    "A": ["T", "T", "N", "L", "D", "B", "none", "unknown", "nothing", "empty", "D.role", "D['content']", "D.get('role')", "D.get('zz', A)", "L|first", "L|last", "L[0]",
          "D.zz", "A or A", "A and A", "(A if B else A)", "(A if B)", "m", "x", "loop.previtem", "ns.v", "messages[2].tool_calls[0]['function']"],
}


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, items):
        return self.random.choice(items)

    def expression(self, kind="A", depth=0):
        form = self.pick(FORMS[kind]) if depth < 4 else FORMS[kind][0]
        if depth >= 4 and kind == "A":
            form = "'a'"
        if depth >= 4 and kind == "B":
            form = "true"
        parts = []
        for index, char in enumerate(form):
            is_word = char in FORMS and not (form[index - 1:index].isalnum() or form[index + 1:index + 2].isalnum())
            parts.append("(" + self.expression(char, depth + 1) + ")" if is_word and self.random.random() < 0.3 else
                         self.expression(char, depth + 1) if is_word else char)
        return "".join(parts)

    def tag(self, content):
        return "{%" + self.pick(["", "", "-", "+"]) + " " + content + " " + self.pick(["", "", "-", "+"]) + "%}"

    def text(self):
        return "".join(self.pick(TEXTS) for _ in range(self.random.randrange(3)))

    def block(self, depth=0):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))

    def statement(self, depth):
        kind = self.random.random()
        if depth > 3 or kind < 0.2:
            return self.text()
        if kind < 0.45:
            return "{{" + self.pick(["", "-"]) + " " + self.expression() + " " + self.pick(["", "-"]) + "}}"
        body = self.block(depth + 1)
        if kind < 0.6:
            other = self.tag("else") + self.block(depth + 1) if self.random.random() < 0.4 else ""
            branch = self.tag(f"elif {self.expression('B')}") + self.block(depth + 1) if self.random.random() < 0.2 else ""
            return self.tag(f"if {self.expression('B')}") + body + branch + other + self.tag("endif")
        if kind < 0.75:
            over = self.pick(["messages", "words", "numbers", "tools", "messages[1:]", "'ab'", "range(3)", self.expression('L', 2)])
            condition = f" if {self.expression('B', 2)}" if self.random.random() < 0.2 else ""
            leave = self.tag(f"if {self.expression('B', 2)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
            other = self.tag("else") + self.text() if self.random.random() < 0.2 else ""
            leave = leave if self.random.random() < 0.2 else ""
            return self.tag(f"for {self.pick(['m', 'x', 'm'])} in {over}{condition}") + body + leave + other + self.tag("endfor")
        if kind < 0.85:
            target = self.pick(["x", "m", "ns.v"])
            return self.tag(f"set {target} = {self.expression()}")
        if kind < 0.88:
            return self.tag("set x") + body + self.tag("endset")
        if kind < 0.91:
            return self.tag("macro f(a, b='B')") + body + "{{ a ~ b }}" + self.tag("endmacro") + "{{ f(" + self.expression('A', 2) + ") }}"
        if kind < 0.93:
            return "{#" + self.pick(["", "-", "+"]) + " note " + self.pick(["", "-"]) + "#}"
        if kind < 0.95:
            return self.tag("raw").replace("+%}", "%}").replace("{%+", "{%") + self.pick(["{{ x }}", " {% y %}\n", "\n  "]) + self.tag("endraw")
        if kind < 0.97:
            return self.tag("filter upper") + body + self.tag("endfilter")
        return self.tag(f"with x = {self.expression('A', 2)}") + body + self.tag("endwith")

    def template(self):
        start = self.tag("set ns = namespace(v=1)") if self.random.random() < 0.8 else ""
        return start + self.block() + self.block()
