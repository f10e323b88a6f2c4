# Files that are excluded from unity builds (CMAKE_UNITY_BUILD, used by scripts/build and by scripts/test for builds with sanitizers). A unity build
# joins eight files of a library, which takes less than half of the CPU time, mostly because headers are parsed once. The dev preset, and all builds of
# tests, compile each file separately. A file is listed here if another file of its library defines the same name in an unnamed namespace.
if(NOT CMAKE_UNITY_BUILD)
  return()
endif()

set(apart
  backends/cpu_reference/model/adapter_products.cc
  backends/llm_core/checkpoint/trtllm_config.cc
  backends/llm_core/grammar/ebnf.cc
  backends/llm_core/grammar/json_schema.cc
  backends/llm_core/model/weight_map.cc
  backends/llm_core/sampling/sampling_params.cc
  backends/tokenizer/lib/chat/chat_template.cc
  backends/tokenizer/lib/load/published_vocabularies.cc
  backends/tokenizer/lib/load/rank_tokenizer.cc
  backends/tokenizer/lib/normalize/normalizer.cc
  backends/tokenizer/lib/pattern/char_sets.cc
  host/cli/chat.cc
  host/cli/generate_options.cc
  host/cli/hub_connection.cc
  host/cli/hub_file.cc
  host/cli/top.cc
  host/core/capi/backend_request.cc
  host/core/capi/backend_response.cc
  host/core/capi/log.cc
  host/frontend/cloud/vertex_ai_service.cc
  host/frontend/log_settings.cc
  host/frontend/openai/routes/completions.cc
  host/frontend/tracing/otlp_exporter.cc
  host/option_table_frontend.cc
  host/process_signals.cc
  host/trace_flags.cc
  repo_templates/tool/new_qaic.cc)
foreach(file ${apart})
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${file})
    message(WARNING "cmake/NereidJoined.cmake names ${file}, which does not exist")
    continue()
  endif()
  cmake_path(GET file PARENT_PATH folder)
  while(NOT EXISTS ${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt)  # the closest folder with targets
    cmake_path(GET folder PARENT_PATH folder)
  endwhile()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${file} DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()

# Whole targets that are excluded: CPU operators for several instruction sets, which are optimised in every build and whose compile time is not in
# headers; the code that protoc generates; and a library of which tests link only some files.
foreach(target nereid_cpu_ops_baseline nereid_cpu_ops_avx2 nereid_cpu_ops_avx512 nereid_cpu_ops_avx512vnni nereid_cpu_ops_amx nereid_proto
    nereid_scripted)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endforeach()
