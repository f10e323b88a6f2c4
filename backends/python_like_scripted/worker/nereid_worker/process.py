"""This process as a worker: what it writes to stderr, and its end if it was forked."""
import os
import sys

from . import channel
from .errors import describe

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def text_of_error(error):
    return describe(error, _OWN_FOLDER)


def say(text):
    try:
        print(text, file=sys.stderr, flush=True)
    except Exception:  # noqa: BLE001 closed, or none
        pass


def exit_if_forked():
    """Ends a forked process that has returned from the model's code: it must not go on as a second worker."""
    if not channel.is_model_process():
        say("a process that the model forked returned from the model's code: it ends here")
        os._exit(1)


def flush():
    for each in (sys.stdout, sys.stderr):
        try:
            each.flush()
        except Exception:  # noqa: BLE001 closed, or none
            pass
