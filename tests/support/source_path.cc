#include "tests/support/source_path.h"

namespace nereid {

// Only this file is compiled with the path of the clone. The compiler commands of the tests that
// call this function are the same in every clone, so that ccache finds objects of other clones.
std::string SourcePath(const std::string& name) {
  return NEREID_SOURCE_DIR "/" + name;
}

}  // namespace nereid
