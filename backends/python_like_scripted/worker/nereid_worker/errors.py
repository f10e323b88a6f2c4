"""Errors that models make and meet, and their text."""
from .arguments import NamedInt, text_of


class ErrorCode(NamedInt):
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)


ErrorCode.__name__ = ErrorCode.__qualname__ = "__ErrorCode"  # as their texts say
globals()["__ErrorCode"] = ErrorCode  # where pickle looks for it


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


class TritonModelException(Exception):
    """What a model raises, and what this library raises to a model."""


class Fault(TritonModelException):
    """What this library finds wrong with what a model returned: its text alone is the error."""


def message_of(error):
    try:
        return str(error) or "<EMPTY MESSAGE>"
    except Exception:  # noqa: BLE001 an exception whose own text fails
        return "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"


def describe(error, own_folder):
    """The text of an exception as clients see it: what, and where in the model's own files, innermost first."""
    text = str(error) if type(error) is Fault else f"{type(error).__name__}: {message_of(error)}"
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith((own_folder, "<frozen importlib")):
            frames.append(f"  {code.co_filename}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    if frames:
        text += "\n\nAt:\n" + "".join(reversed(frames))
    if error.__cause__ is not None:
        text += "\n\nCaused by: " + describe(error.__cause__, own_folder)
    return text
