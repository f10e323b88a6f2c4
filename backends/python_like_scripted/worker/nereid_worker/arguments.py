"""Arguments of models, checked, and the numbers with names among them."""
import enum
import operator


class NamedInt(enum.IntEnum):
    """A number whose text is its name, whatever the version of Python makes of IntEnum's."""

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec):
        return format(str(self), spec)


def text_of(value, what):
    """A text may come as bytes: elements of a BYTES tensor are often passed on as names. What travels is a str, of no class made from it."""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    raise TypeError(f"{what} as str, got {value!r}")


def int_of(value, what, bits, is_signed=False):
    """What travels is an int, of no class made from it."""
    least, end = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
    number = value
    if type(value) is not int:
        try:
            number = int(operator.index(value))
        except TypeError:
            raise TypeError(f"{what} as int, got {value!r}") from None
    if least <= number < end:
        return number
    raise TypeError(f"{what} from {least} to {end - 1}, got {number}")
