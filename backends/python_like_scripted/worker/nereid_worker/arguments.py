"""Checks of the arguments that models pass, and base classes of the public API."""
import enum
import operator


class NamedInt(enum.IntEnum):
    """An IntEnum whose text is its name in every Python version. As in Triton, all of its members are true."""

    def __bool__(self):
        return True

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec):
        return format(str(self), spec)


class HostHandle:
    """Base of classes that refer to an object of the host. They cannot be pickled, and constructed only where a class defines how."""
    __slots__ = ()

    def __init__(self, *_, **__):
        raise TypeError(f"{type(self).__module__}.{type(self).__name__}: No constructor defined!")

    def __reduce_ex__(self, protocol):
        raise TypeError(f"cannot pickle '{type(self).__module__}.{type(self).__name__}' object")


def text_of(value, what):
    """A text argument as a plain str, which marshal needs, also if its class is derived from str. Accepts bytes, because models often pass
    elements of a BYTES tensor as names."""
    if isinstance(value, (bytes, bytearray)):
        value = value.decode()
    elif not isinstance(value, str) or not is_text(value):
        raise TypeError(f"{what} as str, got {value!r}")
    return value if type(value) is str else str.__str__(value)


def is_text(value):
    """Whether the text is valid UTF-8: neither JSON nor gRPC can encode unpaired surrogates."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def int_of(value, what, bits, is_signed=False):
    """An integer argument as a plain int, which marshal needs, also if its class is derived from int. As in Triton, accepts whatever converts to
    int, such as an array of one element, except floats."""
    least, end = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    number = value
    if type(value) is not int:
        try:
            number = int(operator.index(value) if isinstance(value, (int, float)) or not hasattr(value, "__int__") else value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{what} as int, got {value!r}") from None
    if least <= number < end:
        return number
    raise TypeError(f"{what} from {least} to {end - 1}, got {number}")


def bool_of(value, what):
    if type(value) is bool or value is None:
        return value is True
    if not hasattr(type(value), "__bool__"):
        raise TypeError(f"{what} as bool, got {value!r}")
    try:
        return bool(value)
    except ValueError:
        raise TypeError(f"{what} as bool, got {value!r}") from None


def list_of(value, what):
    """A sequence as a list. Texts are refused, because they are sequences but never intended as one."""
    if type(value) is list:
        return value[:]
    if hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, dict)):
        return list(value)
    raise TypeError(f"{what} as a list, got {value!r}")
