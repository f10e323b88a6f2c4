// Chooses the interpreter for a model that has a `triton_python_backend_stub` in its folder. In
// Triton the stub runs the model, with the Python version whose library it is linked to. Here an
// interpreter of that version runs the model. [any thread]
#pragma once

#include <filesystem>
#include <string>

namespace nereid::python {

// Returns the Python version that the file is linked to: "3.10" if it needs libpython3.10.so; empty
// if it needs none.
std::string StubPythonVersion(const std::filesystem::path& stub);

// Returns the version in the interpreter's file name, with links resolved: "3.10" for python3.10.
// Empty if the name has no version, such as the name of a wrapper script.
std::string VersionInName(const std::string& interpreter);

// Returns the interpreter for Python `version`: `interpreter` if its name has this version, or if
// its name has no version and an operator configured it (`is_configured`); else "python<version>",
// to be found in PATH.
std::string InterpreterForVersion(const std::string& version, const std::string& interpreter,
                                  bool is_configured);

}  // namespace nereid::python
