// Compares the tables of docs/openai.md with the table of fields. NEREID_WRITE_DOCS writes them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "host/frontend/openai/fields/field_table.h"
#include "nereid/status.h"
#include "tests/support/source_path.h"

namespace nereid::openai {
namespace {

constexpr char kBegin[] = "<!-- fields -->\n";
constexpr char kEnd[] = "<!-- /fields -->";

std::string RoutesOf(const Field& field) {
  constexpr std::pair<RouteSet, const char*> kNames[] = {{kChat, "chat"},
                                                         {kCompletions, "completions"},
                                                         {kTokenize, "tokenize"},
                                                         {kDetokenize, "detokenize"},
                                                         {kMessages, "messages"},
                                                         {kResponses, "responses"},
                                                         {kLoadAdapter, "load_lora_adapter"},
                                                         {kUnloadAdapter, "unload_lora_adapter"}};
  std::string text;
  for (const auto& [route, name] : kNames) {
    if ((field.routes & route) != 0) text += StrCat(text.empty() ? "" : ", ", name);
  }
  return text;
}

std::string ValueOf(const Field& field) {
  std::string text(Describe(field.kind));
  const bool is_number = field.kind == FieldKind::kInteger || field.kind == FieldKind::kNumber;
  const bool is_bounded = field.max < 2147483647.0 && field.min != field.max;
  if (is_number && is_bounded) text += StrCat(", ", field.min, " to ", field.max);
  return text;
}

std::string Tables() {
  std::string offered = "| field | routes | value | meaning |\n|---|---|---|---|\n";
  std::string refused = "\nRefused:\n\n| field | routes | reason |\n|---|---|---|\n";
  for (const Field& field : Fields()) {
    if (field.handling == Handling::kRefused) {
      refused += StrCat("| `", field.name, "` | ", RoutesOf(field), " | ", field.note, " |\n");
      continue;
    }
    offered +=
        StrCat("| `", field.name, "` | ", RoutesOf(field), " | ", ValueOf(field), " | ", field.note,
               field.handling == Handling::kNoEffect ? "; no effect" : "", " |\n");
  }
  return offered + refused;
}

TEST(FieldsPageTest, ThePageListsTheFieldsOfTheTable) {
  const std::string path = SourcePath("docs/openai.md");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string page = text.str();
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  const size_t start = begin + std::string(kBegin).size();
  if (std::getenv("NEREID_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << page.substr(0, start) << Tables() << page.substr(end);
    return;
  }
  EXPECT_EQ(page.substr(start, end - start), Tables())
      << "run this test with NEREID_WRITE_DOCS=1 to write the tables";
}

}  // namespace
}  // namespace nereid::openai
