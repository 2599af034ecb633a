// A library of one operator for onnxruntime: com.example::Triple, y = 3·x on float32 tensors of any shape.
//
// It needs no headers of onnxruntime, which its wheels do not carry.  The functions of OrtApi keep their places for good
// (onnxruntime asserts it when it is built: "size of version 1 API cannot change"), so a table of pointers and the
// places of the few that are used here will do.  Build it with: c++ -std=c++17 -shared -fPIC -o libtriple.so triple.cc
#include <cstddef>
#include <cstdint>

#ifndef FACTOR
#define FACTOR 3.0f
#endif

namespace {

using Any = void (*)();
struct Status;
struct Options;
struct Domain;
struct Value;
struct Info;
struct Context;
struct KernelInfo;

struct ApiBase {
  const Any* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

enum Place {
  kCreateCustomOpDomain = 26,
  kCustomOpDomainAdd = 27,
  kAddCustomOpDomain = 28,
  kGetTensorMutableData = 51,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kGetTensorTypeAndShape = 65,
  kKernelContextGetInput = 90,
  kKernelContextGetOutput = 91,
  kReleaseTensorTypeAndShapeInfo = 99,
};

template <typename... Arguments>
Status* call(const Any* api, Place place, Arguments... arguments) {
  return reinterpret_cast<Status* (*)(Arguments...)>(api[place])(arguments...);
}

// OrtCustomOp as of version 14 of the interface.  A runtime asks for what came later only where `version` says so; the
// rest stays null.
struct CustomOp {
  uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const Any* api, const KernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int (*GetInputType)(const CustomOp*, size_t);
  size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void* kernel, Context*);
  void (*KernelDestroy)(void* kernel);
  int (*GetInputCharacteristic)(const CustomOp*, size_t);
  int (*GetOutputCharacteristic)(const CustomOp*, size_t);
  int (*GetInputMemoryType)(const CustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  Any later[16];
};

constexpr int kFloat = 1, kRequired = 0, kDefaultMemory = 0;
constexpr size_t kMaxRank = 16;

void compute(void* kernel, Context* context) {
  const Any* api = static_cast<const Any*>(kernel);
  const Value* input = nullptr;
  Value* output = nullptr;
  Info* info = nullptr;
  size_t rank = 0;
  int64_t dims[kMaxRank];
  float *from = nullptr, *to = nullptr;
  if (call(api, kKernelContextGetInput, static_cast<const Context*>(context), size_t{0}, &input)) return;
  if (call(api, kGetTensorTypeAndShape, input, &info)) return;
  if (call(api, kGetDimensionsCount, static_cast<const Info*>(info), &rank) || rank > kMaxRank) return;
  if (call(api, kGetDimensions, static_cast<const Info*>(info), static_cast<int64_t*>(dims), rank)) return;
  reinterpret_cast<void (*)(Info*)>(api[kReleaseTensorTypeAndShapeInfo])(info);
  if (call(api, kKernelContextGetOutput, context, size_t{0}, static_cast<const int64_t*>(dims), rank, &output)) return;
  if (call(api, kGetTensorMutableData, const_cast<Value*>(input), reinterpret_cast<void**>(&from))) return;
  if (call(api, kGetTensorMutableData, output, reinterpret_cast<void**>(&to))) return;
  int64_t count = 1;
  for (size_t i = 0; i < rank; ++i) count *= dims[i];
  for (int64_t i = 0; i < count; ++i) to[i] = FACTOR * from[i];
}

const CustomOp triple = {
    14,
    [](const CustomOp*, const Any* api, const KernelInfo*) -> void* { return const_cast<Any*>(api); },
    [](const CustomOp*) -> const char* { return "Triple"; },
    [](const CustomOp*) -> const char* { return nullptr; },
    [](const CustomOp*, size_t) { return kFloat; },
    [](const CustomOp*) -> size_t { return 1; },
    [](const CustomOp*, size_t) { return kFloat; },
    [](const CustomOp*) -> size_t { return 1; },
    compute,
    [](void*) {},
    [](const CustomOp*, size_t) { return kRequired; },
    [](const CustomOp*, size_t) { return kRequired; },
    [](const CustomOp*, size_t) { return kDefaultMemory; },
    [](const CustomOp*) { return 1; },
    [](const CustomOp*) { return 1; },
    [](const CustomOp*) { return 1; },
    [](const CustomOp*) { return 1; },
    {},
};

}  // namespace

// onnxruntime calls this when the library is registered.
extern "C" __attribute__((visibility("default"))) Status* RegisterCustomOps(Options* options, const ApiBase* base) {
  const Any* api = base->GetApi(1);
  Domain* domain = nullptr;  // lives as long as the process
  if (Status* bad = call(api, kCreateCustomOpDomain, "com.example", &domain)) return bad;
  if (Status* bad = call(api, kCustomOpDomainAdd, domain, &triple)) return bad;
  return call(api, kAddCustomOpDomain, options, domain);
}
