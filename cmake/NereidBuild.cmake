# Compiler settings and the stage directory, for all folders.
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
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)  # files that a unity build joins (NereidJoined.cmake); targets take it over when they are made
endif()

# What scripts/demo builds first: a host that answers requests more slowly, in about half of the time that the release build takes.
option(NEREID_QUICK_BUILD "Build quickly: little optimisation, no compiler cache, precompiled headers in all libraries" OFF)
if(NEREID_QUICK_BUILD)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-O1> -w)  # a false warning of GCC depends on the optimisation
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC frees memory when it holds 512 MB (the default is at most 128): files with many templates compile in 10 to 20 % less time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()

find_program(NEREID_CCACHE ccache)
if(NEREID_CCACHE AND NOT NEREID_QUICK_BUILD)
  # Without CCACHE_SLOPPINESS ccache does not cache files with precompiled headers (NereidPrecompiled.cmake). With CCACHE_BASEDIR a clone finds what
  # another clone has compiled, except for Clang's files with precompiled headers, which have the clone's path in them.
  set(ccache_settings ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_settings} ${NEREID_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_settings} ${NEREID_CCACHE})
  # Without CCACHE_NOHASHDIR ccache finds an object of nvcc only in the folder in which nvcc was called, and so in one clone.
  set(NEREID_NVCC_LAUNCHER ${ccache_settings} CCACHE_NOHASHDIR=1 ${NEREID_CCACHE})
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  # Replaces absolute paths of sources in objects, so that clones can share them. The dev preset keeps these paths, because debuggers need them.
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()
find_program(NEREID_MOLD mold)
if(NEREID_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Members that a designated initializer leaves out have their defaults.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
include_directories(${PROJECT_SOURCE_DIR})  # the only include root, except for installed headers
if(NEREID_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_compile_definitions(NEREID_SANITIZE_ADDRESS)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang's sanitizer runtime is part of the executable, and the libraries, which are otherwise linked with --no-undefined, find it there. Clang's
    # check of function types compares type descriptions by address. These addresses differ between libraries with hidden symbols.
    add_compile_options(-fno-sanitize=function)
    string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " -Wl,-z,undefs")
    string(APPEND CMAKE_C_STANDARD_LIBRARIES " -Wl,-z,undefs")
  endif()
  if(NEREID_BUILD_FUZZERS)
    add_compile_options(-fsanitize=fuzzer-no-link)  # lets the fuzzer see which branches of the libraries run
    set(NEREID_TEST_OPTIONS -fno-sanitize=fuzzer-no-link)  # of test programs, which compile in less time without it
  endif()
elseif(NEREID_SANITIZE STREQUAL "thread")
  # Protobuf's headers change the layout of classes if __SANITIZE_THREAD__ is defined, but the system's library was built without it. The macro is
  # therefore undefined, and libstdc++ learns of the sanitizer by its own macro.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  add_compile_definitions(NEREID_SANITIZE_THREAD)
  add_link_options(-fsanitize=thread)
elseif(NEREID_SANITIZE)
  message(FATAL_ERROR "NEREID_SANITIZE: expected address or thread, got '${NEREID_SANITIZE}'")
endif()

# Programs run from the build directory in the same layout as the installed one: bin, lib, backends/<name>.
set(NEREID_STAGE ${CMAKE_BINARY_DIR}/stage)
set(CMAKE_INSTALL_LIBDIR lib)

include(NereidTest)
