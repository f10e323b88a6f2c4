// What a line of the log looks like, in each of the formats. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "host/core/observe/log.h"

namespace nereid::log {

// An object a line. Ours: no value of TRITONSERVER_LogFormat means it, so that the variable
// NEREID_LOG_FORMAT=json asks for it, which holds until SetFormat is called.
inline constexpr Format kJsonFormat{2};

// The line, with its end. `escape`: the message becomes one line, quoted; else it stands as it is,
// but for JSON, which always has it as a string. `file` may hold a path; its last part is printed.
std::string LogLine(Format format, Level level, std::string_view file, int line,
                    std::string_view message, bool escape);

// The part of a path behind its last slash.
std::string_view Basename(std::string_view path);

}  // namespace nereid::log
