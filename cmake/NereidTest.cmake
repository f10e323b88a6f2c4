# nereid_test(<name> SOURCES <file>... [LIBS <target>...] [ENV <VAR=value>...] [GPU] [COMPUTES] [SINGLE_THREADED])
#
# A GoogleTest program, part of the target unit_tests. Every case becomes one CTest test named <Suite>.<Case>. Tests find shared test data through the
# variable NEREID_TEST_DATA, a folder. If the folder is absent, such tests call GTEST_SKIP and are counted as skipped.
# GPU: the cases need a GPU. They are built with the others, but have the label gpu instead of unit, and scripts/test-gpu runs them.
# COMPUTES: the cases themselves compute much, so they are optimised a little.
# SINGLE_THREADED: the tested code starts no thread, so builds with ThreadSanitizer omit the program.
function(nereid_test name)
  cmake_parse_arguments(arg "GPU;COMPUTES;SINGLE_THREADED" "" "SOURCES;LIBS;ENV" ${ARGN})
  set(label unit)
  if(arg_GPU)
    set(label gpu)
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest GTest::gtest_main)
  # Optimising the code of assertions takes a third of the build time, half with sanitizers.
  set(level -O0)
  if(arg_COMPUTES AND NOT NEREID_SANITIZE)
    set(level -O1)
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${level}> ${NEREID_TEST_OPTIONS})
  if(NEREID_SANITIZE STREQUAL "thread")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/sanitizers/options.cc)
  endif()
  target_compile_definitions(${name} PRIVATE
    NEREID_SOURCE_DIR="${PROJECT_SOURCE_DIR}" NEREID_STAGE_DIR="${NEREID_STAGE}")
  set_target_properties(${name} PROPERTIES NEREID_STANDS_ALONE TRUE)
  if(arg_SINGLE_THREADED AND NEREID_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    return()
  endif()
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)
  endif()
  add_dependencies(unit_tests ${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT 300 LABELS ${label} ENVIRONMENT "${arg_ENV};ASAN_OPTIONS=allocator_may_return_null=1")
endfunction()

# nereid_fuzzer(<name> SOURCES <file>... [LIBS <target>...])
#
# A libFuzzer target named fuzz_<folder>, built only with clang++ and NEREID_BUILD_FUZZERS. Its stored corpus is tests/fuzz/<folder>/corpus/.
function(nereid_fuzzer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES NEREID_STANDS_ALONE TRUE)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${name})
endfunction()

# nereid_end_to_end_target(): defines the target end_to_end, which builds everything that is installed or run by the pytest files: every program and
# library except those of unit_tests and fuzzers.
function(nereid_end_to_end_target)
  add_custom_target(end_to_end)
  set(folders ${PROJECT_SOURCE_DIR})
  while(folders)
    list(POP_FRONT folders folder)
    get_property(further DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    list(APPEND folders ${further})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    list(REMOVE_ITEM targets end_to_end unit_tests fuzzers)
    foreach(target ${targets})
      get_target_property(stands_alone ${target} NEREID_STANDS_ALONE)
      get_target_property(type ${target} TYPE)
      if(NOT stands_alone AND NOT type STREQUAL "INTERFACE_LIBRARY")
        add_dependencies(end_to_end ${target})
      endif()
    endforeach()
  endwhile()
endfunction()
