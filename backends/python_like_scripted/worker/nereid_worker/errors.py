"""The error classes of the public API, and the texts of exceptions as clients see them."""
from .arguments import NamedInt, text_of

_MAX_CAUSES = 16  # most causes of an exception that its text has


class ErrorCode(NamedInt):
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)


ErrorCode.__name__, ErrorCode.__qualname__ = "__ErrorCode", "TritonError.__ErrorCode"  # the name in Triton's texts


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


setattr(TritonError, "__ErrorCode", ErrorCode)  # where pickle looks it up


class TritonModelException(Exception):
    """Raised by models, and by this library to models."""


class InvalidModelOutput(TritonModelException):
    """Raised for an invalid result of a model's function. Its text alone is the error, without a type name."""


def describe(error, own_folder):
    """The text of an exception as clients see it: type, message and traceback of the model's own files, innermost call first; then the same of
    its causes."""
    texts, seen = [], set()
    while error is not None and id(error) not in seen and len(seen) < _MAX_CAUSES:
        seen.add(id(error))
        texts.append(_described(error, own_folder))
        error = error.__cause__
    return "\n\nCaused by: ".join(texts).encode(errors="backslashreplace").decode()


def _described(error, own_folder):
    try:
        message = str(error) or "<EMPTY MESSAGE>"
        failure = None
    except Exception as raised:  # noqa: BLE001 its __str__ fails
        message = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
        failure = raised
    text = (message if type(error) is InvalidModelOutput else f"{type(error).__name__}: {message}") + _traceback_text(error, own_folder)
    if failure is not None:
        text += f"\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {_short_text(failure)}{_traceback_text(failure, own_folder)}"
    return text


def _short_text(error):
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 its __str__ may fail, too
        return type(error).__name__


def _traceback_text(error, own_folder):
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith((own_folder, "<frozen importlib")):
            frames.append(f"  {code.co_filename}({trace.tb_lineno}): {code.co_name}\n")
        trace = trace.tb_next
    return "\n\nAt:\n" + "".join(reversed(frames)) if frames else ""
