# add_backend(<name> SOURCES <file>... [LIBS <target>...])
#
# Builds libtriton_<name>.so: it exports TRITONBACKEND_* alone and needs libtritonserver.so (linked through the stub), so that it
# loads in any host of this API. In the host's own tree the library lands in stage/backends/<name>/ and is installed from there.
function(add_backend name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  set(target triton_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE NereidBackend::sdk NereidBackend::stub ${arg_LIBS})
  target_link_options(${target} PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/backend.ldscript LINKER:--no-undefined LINKER:--no-as-needed)
  set_target_properties(${target} PROPERTIES
    LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/backend.ldscript BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
    SKIP_BUILD_RPATH OFF BUILD_WITH_INSTALL_RPATH ON CXX_VISIBILITY_PRESET hidden)
  if(DEFINED NEREID_STAGE)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${NEREID_STAGE}/backends/${name})
  endif()
endfunction()
