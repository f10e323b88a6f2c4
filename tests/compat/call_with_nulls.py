"""call_with_nulls.py <library> <functions.tsv>: calls every function that a host provides with null pointers and zeros. Prints one JSON object per
line: the function, and its error message or null. After a crash, the last line names the function."""
import csv
import ctypes
import json
import sys

# Functions that return no error: their arguments are values, or null is valid.
POINTER = ctypes.c_void_p


def c_type(text):
    if "*" in text or text.endswith("Fn_t"):
        return POINTER
    return ctypes.c_double if "double" in text else ctypes.c_uint64


def main(path, table):
    library = ctypes.CDLL(path)
    for name in ("ErrorMessage", "ErrorCodeString"):
        getattr(library, f"TRITONSERVER_{name}").restype = ctypes.c_char_p
    library.TRITONSERVER_ErrorMessage.argtypes = library.TRITONSERVER_ErrorDelete.argtypes = [POINTER]
    with open(table, newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["side"] == "host"]
    for row in rows:
        print(json.dumps({"calling": row["function"]}), flush=True)
        function = getattr(library, row["function"])
        types = [c_type(text.strip()) for text in row["params"].split(",")] if row["params"].strip() else []
        function.argtypes = types
        is_error = row["return"].replace("struct ", "") == "TRITONSERVER_Error*"
        function.restype = POINTER if "*" in row["return"] else ctypes.c_uint64
        result = function(*(None if kind is POINTER else kind(0) for kind in types))
        message = None
        if is_error and result and row["function"] != "TRITONSERVER_ErrorNew":
            message = ctypes.cast(library.TRITONSERVER_ErrorMessage(result), ctypes.c_char_p).value.decode()
            library.TRITONSERVER_ErrorDelete(result)
        print(json.dumps({"function": row["function"], "error": message}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
