#include "host/core/observe/text_table.h"

#include <algorithm>
#include <string_view>

namespace nereid::core {

TextTable::TextTable(std::vector<std::string> headers)
    : widths_(headers.size()), headers_(Split(std::move(headers))) {}

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(widths_.size());
  rows_.push_back(Split(std::move(cells)));
}

TextTable::Row TextTable::Split(std::vector<std::string> cells) {
  Row row(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string_view rest = cells[i];
    while (true) {
      const size_t end = rest.find('\n');
      row[i].emplace_back(rest.substr(0, end));
      widths_[i] = std::max(widths_[i], row[i].back().size());
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }
  return row;
}

void TextTable::Append(const Row& row, std::string* text) const {
  size_t num_lines = 0;
  for (const auto& cell : row) num_lines = std::max(num_lines, cell.size());
  for (size_t line = 0; line < num_lines; ++line) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string_view part = line < row[i].size() ? row[i][line] : std::string_view();
      *text += "| ";
      *text += part;
      text->append(widths_[i] - part.size() + 1, ' ');
    }
    *text += "|\n";
  }
}

std::string TextTable::Text() const {
  std::string rule;
  for (const size_t width : widths_) rule += '+' + std::string(width + 2, '-');
  rule += "+\n";
  std::string text = rule;
  Append(headers_, &text);
  text += rule;
  for (const Row& row : rows_) Append(row, &text);
  return text + rule;
}

}  // namespace nereid::core
