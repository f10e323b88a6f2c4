# Precompiled headers and lower optimisation, which shorten the builds of scripts/build and scripts/test. The dev preset uses neither, so that
# each file is also compiled with only the headers that it includes.
if(NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
  return()
endif()
# What ccache needs to cache files with precompiled headers, beside what NereidBuild.cmake sets.
set(pch_option -fpch-preprocess)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(pch_option "SHELL:-Xclang -fno-pch-timestamp")
endif()

# Libraries whose code runs at start, at load or in tools, and not for each request.
set(cold nereid nereid-backend-check nereid-grammar nereid-repo nereid_cli nereid_core_config nereid_frontend_cloud nereid_hub_cache
  nereid_llm_repository nereid_llm_tables nereid_options nereid_proto nereid_repo_lib)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT NEREID_QUICK_BUILD)
  foreach(target ${cold})
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    endif()
  endforeach()
endif()

find_package(nlohmann_json REQUIRED)
find_package(GTest)
# nereid_precompiled(<name> TYPE <library type> LIBS <target>... HEADERS <header>... OPTIONS <option>...): a target whose precompiled header others reuse.
function(nereid_precompiled name)
  cmake_parse_arguments(arg "" "TYPE" "LIBS;HEADERS;OPTIONS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc CONTENT "int main() {}\n")
  if(arg_TYPE STREQUAL "LIBRARY")
    add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  else()
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS} "${pch_option}")
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
    <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <unordered_map>
    <utility> <variant> <vector> ${arg_HEADERS})
endfunction()
# It has only headers of the system, because ccache may take a precompiled header from another clone (NereidBuild.cmake), whose own headers may differ.
nereid_precompiled(nereid_library_headers TYPE LIBRARY LIBS nlohmann_json::nlohmann_json HEADERS <nlohmann/json.hpp>)
if(GTest_FOUND AND NEREID_BUILD_TESTS)
  nereid_precompiled(nereid_test_headers TYPE EXECUTABLE LIBS nlohmann_json::nlohmann_json GTest::gtest
    HEADERS <nlohmann/json.hpp> <gtest/gtest.h> OPTIONS -O0 ${NEREID_TEST_OPTIONS})
endif()

# Libraries with C++ files use the first one, test programs the second. Not the CPU operators, which have options of their own, not tests that are
# optimised, not generated code, and in a release build that is not quick no library that runs for each request: GCC 12 inlines less of a precompiled
# header (a small HTTP request took 10 to 13 % more instructions: bench/results/host_instructions.csv). Clang refuses a header that was precompiled
# with another level of optimisation, so there libraries with a level of their own are not among them either.
set(folders ${PROJECT_SOURCE_DIR})
while(folders)
  list(POP_FRONT folders folder)
  get_property(further DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  list(APPEND folders ${further})
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    if(target MATCHES "^nereid_((library|test)_headers|proto)$" OR NOT sources MATCHES "\\.cc" OR sources MATCHES "\\.c(;|$)" OR
       options MATCHES "-m(avx|amx|arch)" OR (options MATCHES "-O1" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang"))
      continue()
    elseif(type MATCHES "^(STATIC|SHARED|MODULE|OBJECT)_LIBRARY$")
      if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT NEREID_QUICK_BUILD AND NOT target IN_LIST cold)
        continue()
      endif()
      set(headers nereid_library_headers)
    elseif(type STREQUAL "EXECUTABLE" AND options MATCHES "-O0" AND TARGET nereid_test_headers)
      set(headers nereid_test_headers)
    else()
      continue()
    endif()
    target_precompile_headers(${target} REUSE_FROM ${headers})
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${pch_option}>")
  endforeach()
endwhile()
