"""Arguments of models, checked, and the numbers with names among them."""
import enum
import operator


class NamedInt(enum.IntEnum):
    """A number whose text is its name, whatever the version of Python makes of IntEnum's. As there, none of them is false."""

    def __bool__(self):
        return True

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec):
        return format(str(self), spec)


class HostsOwn:
    """What stands for something in the host cannot be copied, nor made where a class does not say how."""
    __slots__ = ()

    def __init__(self, *_, **__):
        raise TypeError(f"{type(self).__module__}.{type(self).__name__}: No constructor defined!")

    def __reduce_ex__(self, protocol):
        raise TypeError(f"cannot pickle '{type(self).__module__}.{type(self).__name__}' object")


def text_of(value, what):
    """A text may come as bytes: elements of a BYTES tensor are often passed on as names. What travels is a str, of no class made from it."""
    if isinstance(value, (bytes, bytearray)):
        value = value.decode()
    elif not isinstance(value, str) or not is_text(value):
        raise TypeError(f"{what} as str, got {value!r}")
    return value if type(value) is str else str.__str__(value)


def is_text(value):
    """Halves of surrogate pairs are none: neither JSON nor gRPC can carry them."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def int_of(value, what, bits, is_signed=False):
    """What travels is an int, of no class made from it. As there, what can become one is taken, such as an array of one element, but no float."""
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
    """A sequence; a text is one, but never what was meant."""
    if type(value) is list:
        return value[:]
    if hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, dict)):
        return list(value)
    raise TypeError(f"{what} as a list, got {value!r}")
