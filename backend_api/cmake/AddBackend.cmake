# add_backend(<name> SOURCES <file>... [LIBS <target>...])
#
# Builds libtriton_<name>.so. The library exports only TRITONBACKEND_* and NEREID_*, and is linked to libtritonserver.so through the stub, so that it
# loads in any host of this API. It is written to backends/<name>/ of the build directory (in the host's own tree, of the stage directory) and
# installed to the same path. The folder backends/ can therefore be passed to a host as --backend-directory.
function(add_backend name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "add_backend(${name}): expected SOURCES <file>... [LIBS <target>...], got '${ARGN}'")
  endif()
  set(target triton_${name})
  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE NereidBackend::sdk NereidBackend::stub ${arg_LIBS})
  target_link_options(${target} PRIVATE
    LINKER:--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/backend.ldscript LINKER:--no-undefined LINKER:--no-as-needed)
  if(DEFINED NEREID_STAGE)
    set(tree ${NEREID_STAGE})
  else()
    set(tree ${CMAKE_BINARY_DIR})
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${tree}/backends/${name}
    LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/backend.ldscript BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
    SKIP_BUILD_RPATH OFF BUILD_WITH_INSTALL_RPATH ON CXX_VISIBILITY_PRESET hidden)
  if(NOT DEFINED NEREID_STAGE)
    install(TARGETS ${target} LIBRARY DESTINATION backends/${name})
  endif()
endfunction()
