"""Logger: writes to the host's log, with the line of the model that logs."""
import sys

from . import channel, protocol
from .arguments import NamedInt, text_of
from .errors import TritonModelException


class LogLevel(NamedInt):
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3
    WARN = 1


LogLevel.__qualname__ = "Logger.LogLevel"  # where pickle looks it up


def _log(message, level, depth=2):
    message = message.decode(errors="replace") if isinstance(message, bytes) else text_of(message, "Logger: expected the message")
    if not isinstance(level, LogLevel):
        raise TypeError(f"Logger: expected a level of LogLevel, got {level!r}")
    frame = sys._getframe(depth)
    try:
        channel.post((protocol.LOG, int(level), message, frame.f_code.co_filename, frame.f_lineno))
    except TritonModelException:
        if channel.is_model_process():
            raise
        print(message, file=sys.stderr, flush=True)  # the host logs the worker's stderr, too


class Logger:
    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR, LogLevel.VERBOSE

    @staticmethod
    def log(message, level=LogLevel.INFO):
        _log(message, level)

    @staticmethod
    def log_info(message):
        _log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message):
        _log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message):
        _log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message):
        _log(message, LogLevel.VERBOSE)
