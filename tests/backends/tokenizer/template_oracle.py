"""Renders chat templates with PyPI jinja2, with the settings of transformers."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 12, 34, 56)  # as in jinja_driver.cc


class GenerationBlock(jinja2.ext.Extension):
    """{% generation %}, which only marks what the model wrote."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


ENVIRONMENT = make_environment()


def render(template, variables):
    """Returns {"text": ...} or {"error": ...}."""
    try:
        return {"text": ENVIRONMENT.from_string(template).render(**variables)}
    except Exception as error:  # noqa: BLE001 - whatever Python raises is an error of the template
        return {"error": f"{type(error).__name__}: {error}"}
