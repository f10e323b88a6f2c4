// The `triton_python_backend_stub` that a model may bring in its folder. In Triton it runs the
// model, under the version of Python whose library it is linked to; here that version's interpreter
// runs it. [any thread]
#pragma once

#include <filesystem>
#include <string>

namespace nereid::scripted {

// "3.10" of a file that needs libpython3.10.so; empty when it needs none.
std::string PythonVersionOf(const std::filesystem::path& stub);

// "3.10" of an interpreter whose file, behind its links, is named python3.10; empty where the name
// says no such thing, as of a script that starts one.
std::string VersionNamedBy(const std::string& interpreter);

// What runs Python `version`: `interpreter` when its name says that it is of this version, or says
// nothing of one and an operator chose it (`is_chosen`); else "python<version>", to be looked up in
// PATH.
std::string InterpreterOf(const std::string& version, const std::string& interpreter,
                          bool is_chosen);

}  // namespace nereid::scripted
