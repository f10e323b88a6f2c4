# Compiler settings and the stage tree, shared by every folder.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(NEREID_CCACHE ccache)
if(NEREID_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NEREID_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${NEREID_CCACHE})
endif()
find_program(NEREID_MOLD mold)
if(NEREID_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter)
include_directories(${PROJECT_SOURCE_DIR})  # the one include root: every include is a path from it, but those of installed headers
if(NEREID_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_compile_definitions(NEREID_SANITIZE_ADDRESS)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang's runtime lies in the executable, where the libraries (which are otherwise linked with --no-undefined) find it. Its check of function types
    # compares descriptions by address, which differ between libraries with hidden symbols.
    add_compile_options(-fno-sanitize=function)
    string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,-z,undefs")
    string(APPEND CMAKE_C_STANDARD_LIBRARIES " -Wl,-z,undefs")
  endif()
  if(NEREID_BUILD_FUZZERS)
    add_compile_options(-fsanitize=fuzzer-no-link)  # so that the fuzzer sees which branches of the libraries were taken
  endif()
elseif(NEREID_SANITIZE STREQUAL "thread")
  # Protobuf's headers lay classes out differently where __SANITIZE_THREAD__ is defined, and the system's library was built without it:
  # the macro is hidden from them, and libstdc++ is told by its own name of the sanitizer.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_compile_definitions(NEREID_SANITIZE_THREAD)
  add_link_options(-fsanitize=thread)
elseif(NEREID_SANITIZE)
  message(FATAL_ERROR "NEREID_SANITIZE: expected address or thread, got '${NEREID_SANITIZE}'")
endif()

# What runs from the build directory lies as it does once installed: bin, lib, backends/<name>.
set(NEREID_STAGE ${CMAKE_BINARY_DIR}/stage)
set(CMAKE_INSTALL_LIBDIR lib)

include(NereidTest)
