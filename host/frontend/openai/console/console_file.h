// The files of the web console, which are part of the executable: a page, its style and its
// scripts. Constant. [any thread]
#pragma once

#include <string_view>

namespace nereid::openai {

struct ConsoleFile {
  std::string_view path;  // of the URL
  std::string_view content_type;
  std::string_view bytes;
};

// Null if the console has no file of this path.
const ConsoleFile* FindConsoleFile(std::string_view path);

// Header lines of every file. The page may load only its own files and call only its own server,
// and no script, style or markup that came from elsewhere is run, whatever a model answers.
std::string_view ConsoleHeaders();

}  // namespace nereid::openai
