#include "tests/support/source_path.h"

namespace nereid {

// The folder is a definition of this file alone, so that the compiler cache finds the objects of
// all others from any clone.
std::string SourcePath(const std::string& name) {
  return NEREID_SOURCE_DIR "/" + name;
}

}  // namespace nereid
