// Notes when OpenVINO executes each node, for `tasks.rs`. OpenVINO marks its work for Intel's tracers with the
// functions of ITT; this library stands in for such a tracer.

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The types of `ittnotify.h`, as far as they are used.
typedef struct {
  int is_enabled;
  const char* name;
  void* unused[4];
} Domain;
typedef struct {
  const char* name;
  void* unused[4];
} Handle;
typedef struct {
  unsigned long long unused[3];
} Id;

// `Task` in `tasks.rs`.
typedef struct {
  // Such as "Convolution::execute".
  const char* operator;
  const char* node;
  int64_t begin_ns;
  int64_t end_ns;
  // The place of the task within which it runs, or -1.
  int32_t parent;
  uint32_t thread;
} Task;

enum { MOST_TASKS = 1 << 16 };

// A node is executed within a task of the first domain; the first task of the second domain within it has the node's
// name. Tasks of the other two domains are OpenVINO's work around its nodes.
static const char EXECUTIONS[] = "ov::op::cpu::exec";
static const char NODES[] = "ov::op::cpu::details";
static const char REQUESTS[] = "ov::phases::inference";
static const char CPU_REQUESTS[] = "ov::phases::cpu::inference";

static Domain executions = {.is_enabled = 1, .name = EXECUTIONS};
static Domain nodes = {.is_enabled = 1, .name = NODES};
// Libraries mark tasks of other domains too, whether or not these are enabled.
static Domain others;
static atomic_int is_call;
static Task tasks[MOST_TASKS];
static atomic_int task_count;
static int64_t call_begin_ns;
static atomic_uint thread_count;
static _Thread_local uint32_t thread;
static _Thread_local int32_t innermost = -1;
// Open tasks for which there was no room.
static _Thread_local int32_t lost;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// Threads are numbered in the order of their first task; the one that makes the calls is 0.
static uint32_t own_thread(void) {
  if (thread == 0) {
    thread = 1 + atomic_fetch_add(&thread_count, 1);
  }
  return thread - 1;
}

// Only its presence matters: OpenVINO's part of ITT then looks up the functions below.
const char* __itt_api_version(void) {
  return "3";
}

Domain* __itt_domain_create(const char* name) {
  if (strcmp(name, EXECUTIONS) == 0 || strcmp(name, REQUESTS) == 0 || strcmp(name, CPU_REQUESTS) == 0) {
    return &executions;
  }
  return strcmp(name, NODES) == 0 ? &nodes : &others;
}

// OpenVINO makes one per node, and keeps it until the process ends.
Handle* __itt_string_handle_create(const char* name) {
  Handle* handle = calloc(1, sizeof *handle);
  char* copy = strdup(name);
  if (handle && copy) {
    handle->name = copy;
  }
  return handle;
}

void __itt_task_begin(const Domain* domain, Id id, Id parent, Handle* handle) {
  (void)id;
  (void)parent;
  if (!atomic_load(&is_call)) {
    return;
  }
  if (domain == &nodes) {
    if (lost == 0 && innermost >= 0 && !tasks[innermost].node && handle) {
      tasks[innermost].node = handle->name;
    }
    return;
  }
  if (domain != &executions) {
    return;
  }
  int place = atomic_fetch_add(&task_count, 1);
  if (place >= MOST_TASKS) {
    lost++;
    return;
  }
  const char* operator = handle ? handle->name : NULL;
  tasks[place] = (Task){.operator = operator, .parent = innermost, .thread = own_thread(), .begin_ns = now_ns()};
  innermost = place;
}

void __itt_task_end(const Domain* domain) {
  if (domain != &executions || !atomic_load(&is_call)) {
    return;
  }
  if (lost > 0) {
    lost--;
  } else if (innermost >= 0) {
    tasks[innermost].end_ns = now_ns();
    innermost = tasks[innermost].parent;
  }
}

void inferbench_call_begins(void) {
  atomic_store(&task_count, 0);
  innermost = -1;
  lost = 0;
  own_thread();
  call_begin_ns = now_ns();
  atomic_store(&is_call, 1);
}

// Returns how many tasks there were since the call began. They stay until the next call begins.
size_t inferbench_call_ends(const Task** noted, size_t* place_for, int64_t* begin_ns) {
  atomic_store(&is_call, 0);
  *noted = tasks;
  *place_for = MOST_TASKS;
  *begin_ns = call_begin_ns;
  return (size_t)atomic_load(&task_count);
}
