// Notes the operators that libtorch executes in this thread, for `operators.rs`, converts modules, and finds libtorch's
// file.

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/Flags.h>
#include <c10/util/Logging.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#ifndef _WIN32
#include <dlfcn.h>
#endif

C10_DECLARE_int(caffe2_log_level);

namespace {

// `Execution` in `operators.rs`.
struct Execution {
  char name[64];
  // The place of the operator that calls this one, or -1.
  int64_t parent;
  int64_t begin_ns;
  int64_t end_ns;
  // Only in a call that is described: the peak of the bytes in tensors until the operator's end, above those at the
  // call's beginning.
  int64_t peak_bytes;
};

struct Memory : c10::MemoryReportingInfoBase {
  int64_t bytes = 0;
  int64_t peak = 0;
  void reportMemoryUsage(void*, int64_t more, size_t, size_t, c10::Device) override {
    bytes += more;
    peak = std::max(peak, bytes);
  }
  bool memoryProfilingEnabled() const override {
    return true;
  }
};

struct Tape {
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  std::vector<Execution> operators;
  int64_t open = -1;
  int64_t begin_ns = 0;
  // Only in a call that is described.
  std::shared_ptr<Memory> memory;
  std::string description;
  int log_level = 0;
};

// Callbacks spread to other threads, but operators there are not noted: they are a part of the operator that waits for
// them.
thread_local Tape tape;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds a line: the modules whose code calls the operator, each followed by a slash, and the addresses of its tensors,
// each after a tab.
void describe(const at::RecordFunction& function) {
  for (const auto& module : torch::jit::currentModuleHierarchy()) {
    tape.description += module + '/';
  }
  for (const auto& input : function.inputs()) {
    if (input.isTensor() && input.toTensor().defined() && input.toTensor().has_storage()) {
      auto address = reinterpret_cast<uintptr_t>(input.toTensor().storage().data());
      tape.description += '\t' + std::to_string(address);
    }
  }
  tape.description += '\n';
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& function) {
  if (tape.callback != at::INVALID_CALLBACK_HANDLE) {
    if (tape.memory && tape.open < 0) {
      describe(function);
    }
    auto& execution = tape.operators.emplace_back();
    std::strncpy(execution.name, function.name(), sizeof execution.name - 1);
    execution.parent = tape.open;
    tape.open = static_cast<int64_t>(tape.operators.size()) - 1;
    execution.begin_ns = now_ns();
  }
  return nullptr;
}

void operator_ends(const at::RecordFunction&, at::ObserverContext*) {
  if (tape.open >= 0) {
    auto& execution = tape.operators[tape.open];
    execution.end_ns = now_ns();
    execution.peak_bytes = tape.memory ? tape.memory->peak : 0;
    tape.open = execution.parent;
  }
}

} // namespace

extern "C" {

// Returns how many operators ran since the call began, and when it began. The results stay valid until the next call
// begins.
size_t inferbench_call_ends(const Execution** operators, const char** description, int64_t* begin_ns) noexcept {
  if (tape.callback != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(tape.callback);
    tape.callback = at::INVALID_CALLBACK_HANDLE;
    if (tape.memory) {
      c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
      tape.memory.reset();
      FLAGS_caffe2_log_level = tape.log_level;
    }
  }
  *operators = tape.operators.data();
  *description = tape.description.c_str();
  *begin_ns = tape.begin_ns;
  return tape.operators.size();
}

// A call that is described is slower.
void inferbench_call_begins(bool is_described) noexcept {
  const Execution* operators;
  const char* description;
  // A call that failed has not been ended.
  inferbench_call_ends(&operators, &description, &tape.begin_ns);
  tape.operators.clear();
  tape.description.clear();
  tape.open = -1;
  if (is_described) {
    // libtorch would warn about memory that was allocated before the call and is freed in it.
    tape.log_level = FLAGS_caffe2_log_level;
    FLAGS_caffe2_log_level = c10::GLOG_ERROR;
    tape.memory = std::make_shared<Memory>();
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, tape.memory);
  }
  auto callback = at::RecordFunctionCallback(operator_begins, operator_ends);
  callback.needsInputs(is_described).scopes({at::RecordScope::FUNCTION});
  tape.callback = at::addThreadLocalCallback(callback);
  tape.begin_ns = now_ns();
}

// Converts a module's floating-point tensors, as Python's `half()` does; C++'s `Module::to` would convert indices too.
// Returns null, or libtorch's error, which is valid until the next call in this thread.
const char* inferbench_convert(torch::jit::Module* module, int8_t kind) noexcept {
  thread_local std::string why;
  try {
    at::NoGradGuard guard;
    auto convert = [kind](const at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor.set_data(tensor.to(static_cast<at::ScalarType>(kind)));
    };
    for (const at::Tensor& tensor : module->parameters()) convert(tensor);
    for (const at::Tensor& tensor : module->buffers()) convert(tensor);
    return nullptr;
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "libtorch does not convert the module";
  }
  return why.c_str();
}

// The file of libtorch in this process; null if the system does not say.
const char* inferbench_libtorch_file() noexcept {
#ifndef _WIN32
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(&at::removeCallback), &library)) return library.dli_fname;
#endif
  return nullptr;
}

} // extern "C"
