// Loaded before all other libraries into one of two programs that take turns: scripts/compare-with-llama-bench stops each of them while the
// other one computes. In the thread that calls `llama_decode`, time stands still while its program is stopped. The file that TURNS_FILE names
// is shared with the script; TURNS_PLACE is 0 in one of the programs and 1 in the other.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct turns {
    atomic_int processes[2];
    // For how long each program was stopped, in nanoseconds.
    _Atomic int64_t stopped_ns[2];
};

struct llama_context;
// As in llama.h of the release; it is only handed on.
struct llama_batch {
    int32_t n_tokens;
    void *token, *embd, *pos, *n_seq_id, *seq_id, *logits;
};

static struct turns *turns;
static int place;
// What had been stopped when this thread called `llama_decode` for the first time; -1 if it has not.
static __thread int64_t stopped_before = -1;

__attribute__((constructor)) static void share(void) {
    const char *file = getenv("TURNS_FILE"), *number = getenv("TURNS_PLACE");
    int opened = file && number ? open(file, O_RDWR) : -1;
    if (opened < 0) return;
    void *shared = mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    close(opened);
    place = atoi(number) != 0;
    if (shared != MAP_FAILED) turns = shared;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = next(clock, time);
    if (answer == 0 && stopped_before >= 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)) {
        int64_t stopped = atomic_load(&turns->stopped_ns[place]) - stopped_before;
        int64_t ns = time->tv_sec * 1000000000LL + time->tv_nsec - stopped;
        time->tv_sec = ns / 1000000000LL;
        time->tv_nsec = ns % 1000000000LL;
    }
    return answer;
}

int32_t llama_decode(struct llama_context *context, struct llama_batch batch) {
    static int32_t (*next)(struct llama_context *, struct llama_batch);
    if (!next) next = dlsym(RTLD_NEXT, "llama_decode");
    if (turns && stopped_before < 0) {
        atomic_store(&turns->processes[place], getpid());
        // The other program may still load the model, for a minute at most.
        for (int tenths = 0; tenths < 600 && !atomic_load(&turns->processes[1 - place]); tenths++) usleep(100000);
        stopped_before = atomic_load(&turns->stopped_ns[place]);
    }
    return next(context, batch);
}
