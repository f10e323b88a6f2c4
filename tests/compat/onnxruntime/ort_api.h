// The part of ONNX Runtime's C API, version 1, that the backend calls. The order of the function
// table never changes, so the members that are not called are gaps here. Names and order are those
// of `OrtApi` in ONNX Runtime's onnxruntime_c_api.h, 1.0 to 1.31.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtStatus;
struct OrtEnv;
struct OrtSession;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtValue;
struct OrtTypeInfo;
struct OrtTensorTypeAndShapeInfo;
struct OrtMemoryInfo;
struct OrtAllocator;

enum OrtLoggingLevel { kOrtLogWarning = 2 };
enum OrtAllocatorType { kOrtArenaAllocator = 1 };
enum OrtMemType { kOrtMemTypeDefault = 0 };
inline constexpr uint32_t kOrtApiVersion = 1;

struct OrtApi {
  void* gap0[2];
  const char* (*GetErrorMessage)(const OrtStatus* status);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel level, const char* log_id, OrtEnv** env);
  void* gap4[3];
  OrtStatus* (*CreateSession)(const OrtEnv* env, const char* path, const OrtSessionOptions* options,
                              OrtSession** session);
  void* gap8[1];
  OrtStatus* (*Run)(OrtSession* session, const OrtRunOptions* options,
                    const char* const* input_names, const OrtValue* const* inputs,
                    size_t num_inputs, const char* const* output_names, size_t num_outputs,
                    OrtValue** outputs);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions** options);
  void* gap11[13];
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions* options, int num_threads);
  void* gap25[5];
  OrtStatus* (*SessionGetInputCount)(const OrtSession* session, size_t* count);
  OrtStatus* (*SessionGetOutputCount)(const OrtSession* session, size_t* count);
  void* gap32[1];
  OrtStatus* (*SessionGetInputTypeInfo)(const OrtSession* session, size_t index,
                                        OrtTypeInfo** info);
  OrtStatus* (*SessionGetOutputTypeInfo)(const OrtSession* session, size_t index,
                                         OrtTypeInfo** info);
  void* gap35[1];
  OrtStatus* (*SessionGetInputName)(const OrtSession* session, size_t index,
                                    OrtAllocator* allocator, char** name);
  OrtStatus* (*SessionGetOutputName)(const OrtSession* session, size_t index,
                                     OrtAllocator* allocator, char** name);
  void* gap38[11];
  // `data` remains the caller's and must outlive the value.
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo* memory, void* data,
                                               size_t size_bytes, const int64_t* shape,
                                               size_t num_dims, int type, OrtValue** value);
  void* gap50[1];
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** data);
  void* gap52[3];
  // `tensor` is part of `info`; nullptr for a map or a sequence.
  OrtStatus* (*CastTypeInfoToTensorInfo)(const OrtTypeInfo* info,
                                         const OrtTensorTypeAndShapeInfo** tensor);
  void* gap56[4];
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* tensor, int* type);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* tensor, size_t* count);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* tensor, int64_t* dims, size_t count);
  void* gap63[2];
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** tensor);
  void* gap66[3];
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType allocator, OrtMemType memory,
                                    OrtMemoryInfo** info);
  void* gap70[6];
  OrtStatus* (*AllocatorFree)(OrtAllocator* allocator, void* block);
  void* gap77[1];
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator** allocator);
  void* gap79[13];
  void (*ReleaseEnv)(OrtEnv* env);
  void (*ReleaseStatus)(OrtStatus* status);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo* info);
  void (*ReleaseSession)(OrtSession* session);
  void (*ReleaseValue)(OrtValue* value);
  void* gap97[1];
  void (*ReleaseTypeInfo)(OrtTypeInfo* info);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* tensor);
  void (*ReleaseSessionOptions)(OrtSessionOptions* options);
};
static_assert(offsetof(OrtApi, Run) == 9 * sizeof(void*) &&
              offsetof(OrtApi, CreateTensorWithDataAsOrtValue) == 49 * sizeof(void*));
static_assert(offsetof(OrtApi, CreateCpuMemoryInfo) == 69 * sizeof(void*) &&
              offsetof(OrtApi, ReleaseEnv) == 92 * sizeof(void*));

// The result of the library's only exported function, OrtGetApiBase.
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);  // nullptr for an unsupported version
  const char* (*GetVersionString)();
};
