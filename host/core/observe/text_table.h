// A table of text for the log, in a frame of '+', '-' and '|'. A cell of several lines takes
// several lines. [one thread]
#pragma once

#include <string>
#include <vector>

namespace nereid {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);

  // As many cells as there are headers.
  void AddRow(std::vector<std::string> cells);

  // Ends with a line feed.
  std::string Text() const;

 private:
  using Row = std::vector<std::vector<std::string>>;  // the lines of each cell

  Row Split(std::vector<std::string> cells);
  void Append(const Row& row, std::string* text) const;

  std::vector<size_t> widths_;
  Row headers_;
  std::vector<Row> rows_;
};

}  // namespace nereid
