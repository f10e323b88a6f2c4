"""Writes the elements of arrays of C++."""


def emit(comment, items):
    """Prints a comment, and behind it the items with commas, in lines of at most 100 characters."""
    print(f"\n// {comment}")
    line = ""
    for item in items:
        item += ","
        if len(line) + len(item) > 100:
            print(line)
            line = ""
        line += item
    print(line)
