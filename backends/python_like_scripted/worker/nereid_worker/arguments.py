"""Arguments of models, checked."""


def text_of(value, what):
    """A text may come as bytes: elements of a BYTES tensor are often passed on as names. What travels is a str, of no class made from it."""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    raise TypeError(f"{what} as str, got {value!r}")
