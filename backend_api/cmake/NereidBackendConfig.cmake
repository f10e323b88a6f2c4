# find_package(NereidBackend): the targets NereidBackend::{headers,sdk,stub} and the function add_backend().
include(${CMAKE_CURRENT_LIST_DIR}/NereidBackendTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/AddBackend.cmake)
