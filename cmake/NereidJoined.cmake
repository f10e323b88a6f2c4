# Targets that are excluded from unity builds (CMAKE_UNITY_BUILD, used by scripts/build and by scripts/test for builds with sanitizers). A unity build
# joins sixteen files of a library or test program (cmake/NereidBuild.cmake), which takes less than half of the CPU time, mostly because headers are
# parsed once. The dev preset compiles each file separately. Excluded are: CPU operators for several instruction sets, which are optimised in every
# build and whose compile time is not in headers; the code that protoc generates; a library of which tests link only some files; and the checks of
# the ABI, which are of what single headers declare.
if(NOT CMAKE_UNITY_BUILD)
  return()
endif()

foreach(target nereid_cpu_ops_baseline nereid_cpu_ops_avx2 nereid_cpu_ops_avx512 nereid_cpu_ops_avx512vnni nereid_cpu_ops_amx nereid_proto
    nereid_scripted grpc_oracle_messages core_generated_protobuf_test backend_api_abi_test)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
