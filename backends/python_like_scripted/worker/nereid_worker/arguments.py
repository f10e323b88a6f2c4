"""Arguments of models, checked, and the numbers with names among them."""
import enum


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
