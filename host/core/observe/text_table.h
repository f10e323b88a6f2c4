// Formats a table for the log, in a frame of '+', '-' and '|'. A cell may have several lines.
// [one thread]
#pragma once

#include <string>
#include <vector>

namespace nereid::core {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);

  // `cells` should have one entry per header; missing cells stay empty, further ones are dropped.
  void AddRow(std::vector<std::string> cells);

  // The whole table; the last line ends with a line feed.
  std::string Text() const;

 private:
  using Row = std::vector<std::vector<std::string>>;  // the lines of each cell

  Row Split(std::vector<std::string> cells);
  void Append(const Row& row, std::string* text) const;

  std::vector<size_t> widths_;
  Row headers_;
  std::vector<Row> rows_;
};

}  // namespace nereid::core
