"""Errors that models make and meet, and their text."""
from .arguments import NamedInt, text_of

_MOST_CAUSES = 16  # of one exception, in its text


class ErrorCode(NamedInt):
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)


ErrorCode.__name__, ErrorCode.__qualname__ = "__ErrorCode", "TritonError.__ErrorCode"  # as their texts say


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = ErrorCode

    def __init__(self, message, code=ErrorCode.INTERNAL):
        self._message = text_of(message, "TritonError: expected the message")
        try:
            self._code = ErrorCode(code)
        except ValueError:
            raise TypeError(f"TritonError: expected a code of TritonError, got {code!r}") from None

    def code(self):
        return self._code

    def message(self):
        return self._message

    def __str__(self):
        return self._message

    def __repr__(self):
        return f"TritonError({self._message!r}, code={int(self._code)})"


setattr(TritonError, "__ErrorCode", ErrorCode)  # where pickle looks for it


class TritonModelException(Exception):
    """What a model raises, and what this library raises to a model."""


class Fault(TritonModelException):
    """What this library finds wrong with what a model returned: its text alone is the error."""


def describe(error, own_folder):
    """The text of an exception as clients see it: what, and where in the model's own files, innermost first; then those that caused it."""
    texts, seen = [], set()
    while error is not None and id(error) not in seen and len(seen) < _MOST_CAUSES:
        seen.add(id(error))
        texts.append(_described(error, own_folder))
        error = error.__cause__
    return "\n\nCaused by: ".join(texts).encode(errors="backslashreplace").decode()


def _described(error, own_folder):
    try:
        message = str(error) or "<EMPTY MESSAGE>"
        failure = None
    except Exception as raised:  # noqa: BLE001 an exception whose own text fails
        message = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
        failure = raised
    text = (message if type(error) is Fault else f"{type(error).__name__}: {message}") + _places(error, own_folder)
    if failure is not None:
        text += f"\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {_said(failure)}{_places(failure, own_folder)}"
    return text


def _said(error):
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 it may fail in the same way
        return type(error).__name__


def _places(error, own_folder):
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith((own_folder, "<frozen importlib")):
            frames.append(f"  {code.co_filename}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    return "\n\nAt:\n" + "".join(reversed(frames)) if frames else ""
