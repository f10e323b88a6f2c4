"""Writes a C++ source that compares the C headers with the tables of abi/: usage generate_abi_checks.py ABI_DIR OUT.cc

The compiler checks the types of functions, the values of enumerators and that handles are opaque; the text of the headers does not matter.
"""
import csv
import pathlib
import sys


def rows(path):
    with path.open(newline="") as table:
        return list(csv.DictReader(table, delimiter="\t"))


def function_type(row):
    return f"{row['return']} (*)({row['params']})"


def main(abi_dir, out_path):
    abi = pathlib.Path(abi_dir)
    lines = [
        "// Made by generate_abi_checks.py from the tables of tests/backend_api/abi.",
        "#include <gtest/gtest.h>",
        "#include <type_traits>",
    ]
    lines += [f'#include "triton/core/{name}.h"' for name in ("tritonserver", "tritonbackend", "tritonrepoagent", "tritoncache")]
    lines += [
        "#define SAME_TYPE(name, ...) EXPECT_TRUE((std::is_same_v<__VA_ARGS__>)) << name",
        "template <typename T, typename = void> struct IsComplete : std::false_type {};",
        "template <typename T> struct IsComplete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};",
    ]

    lines.append("TEST(AbiTypesTest, EveryFunctionHasTheTypeOfTheTable) {")
    for row in rows(abi / "functions.tsv"):
        name = row["function"]
        lines.append(f'  SAME_TYPE("{name}", decltype(&{name}), {function_type(row)});')
    lines.append("}")

    lines.append("TEST(AbiTypesTest, EveryCallbackHasTheTypeOfTheTable) {")
    for row in rows(abi / "callbacks.tsv"):
        name = row["typedef"]
        lines.append(f'  SAME_TYPE("{name}", {name}, {function_type(row)});')
    lines.append("}")

    lines.append("TEST(AbiTypesTest, EveryEnumeratorHasTheTypeAndValueOfTheTable) {")
    for row in rows(abi / "enums.tsv"):
        name, enum, tag = row["enumerator"], row["enum"], row["tag"]
        lines.append(f'  EXPECT_EQ(static_cast<int64_t>({name}), {row["value"]}) << "{name}";')
        lines.append(f'  SAME_TYPE("{name}", decltype({name}), {enum});')
        lines.append(f'  SAME_TYPE("{enum}", {enum}, enum {tag});')
        lines.append(f'  EXPECT_EQ(sizeof({enum}), 4u) << "{enum}";')
    lines.append("}")

    lines.append("TEST(AbiTypesTest, EveryConstantHasTheValueOfTheTable) {")
    for row in rows(abi / "constants.tsv"):
        if row["kind"] == "macro" and row["value"].isdigit():
            lines.append(f'  EXPECT_EQ({row["name"]}, {row["value"]}) << "{row["name"]}";')
    lines.append("}")

    lines.append("TEST(AbiTypesTest, EveryHandleIsOpaque) {")
    for row in rows(abi / "constants.tsv"):
        if row["kind"] == "opaque_struct":
            lines.append(f'  EXPECT_FALSE(IsComplete<struct {row["name"]}>::value) << "{row["name"]}";')
    lines.append("}")
    pathlib.Path(out_path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
