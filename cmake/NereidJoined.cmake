# What stays apart where files are joined (CMAKE_UNITY_BUILD, as scripts/test builds with sanitizers): eight at a time cost less than half of the
# processor's time that they cost one by one, most of it for headers. All other builds compile each file by itself, as do those of tests.
# A file is named here because another of its library has a name of its own that is spelt the same.
if(NOT CMAKE_UNITY_BUILD)
  return()
endif()

set(apart
  backends/llm_core/checkpoint/trtllm_config.cc
  backends/llm_core/model/weight_map.cc
  backends/llm_core/sampling/sampling_params.cc
  backends/tokenizer/lib/load/published_ranks.cc
  backends/tokenizer/lib/load/rank_tokenizer.cc
  backends/tokenizer/lib/normalize/normalizer.cc
  backends/tokenizer/lib/pattern/regex_sets.cc
  host/core/capi/backend_request.cc
  host/core/capi/backend_response.cc
  host/core/capi/log.cc
  host/core/config/validate_sequences.cc
  host/frontend/cloud/vertex_ai_service.cc
  host/frontend/http/bodies/model_signature.cc
  host/frontend/log_settings.cc
  host/frontend/tracing/otlp_exporter.cc
  host/option_table_frontend.cc
  host/trace_flags.cc
  repo_templates/tool/new_qaic.cc)
foreach(file ${apart})
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${file})
    message(WARNING "cmake/NereidJoined.cmake names ${file}, which is not there")
    continue()
  endif()
  cmake_path(GET file PARENT_PATH folder)
  while(NOT EXISTS ${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt)  # the folder whose targets the file is part of
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${file} DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()

# The same operators for several processors, optimised in every build: what they cost is not their headers. What protoc writes. And a library of
# which tests link some files, without what the others call.
foreach(target nereid_cpu_ops_baseline nereid_cpu_ops_avx2 nereid_cpu_ops_avx512 nereid_cpu_ops_avx512vnni nereid_cpu_ops_amx nereid_proto
    nereid_scripted)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
