// Lets two programs that use libllama compute in turn, one call of `llama_decode` each, so that both meet the same speed of the machine.
// A program waits at the beginning of a call, after which the time of waiting is taken out of the clocks of the thread that waited. The
// one whose turn it is stops the other one, since idle threads of ggml spin for longer than a call takes. The file that TURNS_FILE names is
// shared by both; TURNS_PLACE is 0 in one of them and 1 in the other.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct turns {
    atomic_int turn;
    atomic_int processes[2];
};

struct llama_context;
// As in llama.h of the release; it is only handed on.
struct llama_batch {
    int32_t n_tokens;
    void *token, *embd, *pos, *n_seq_id, *seq_id, *logits;
};

static struct turns *turns;
static int place;
static __thread int64_t waited_ns;

static int real_clock(clockid_t clock, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    return next(clock, time);
}

static int64_t now_ns(void) {
    struct timespec time;
    real_clock(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int answer = real_clock(clock, time);
    if (answer == 0 && waited_ns && (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)) {
        int64_t ns = time->tv_sec * 1000000000LL + time->tv_nsec - waited_ns;
        time->tv_sec = ns / 1000000000LL;
        time->tv_nsec = ns % 1000000000LL;
    }
    return answer;
}

static int is_there(int process) { return process && (kill(process, 0) == 0 || errno != ESRCH); }

__attribute__((constructor)) static void share(void) {
    const char *file = getenv("TURNS_FILE"), *number = getenv("TURNS_PLACE");
    if (!file || !number) return;
    place = atoi(number) != 0;
    int opened = open(file, O_RDWR);
    if (opened < 0) return;
    void *shared = mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    close(opened);
    if (shared != MAP_FAILED) turns = shared;
}

static void signal_other(int number) {
    int other = atomic_load(&turns->processes[1 - place]);
    if (other) kill(other, number);
}

__attribute__((destructor)) static void leave(void) {
    int own = getpid();
    if (turns && atomic_compare_exchange_strong(&turns->processes[place], &own, 0)) signal_other(SIGCONT);
}

static void wait_for_turn(void) {
    if (!turns) return;
    int64_t began = now_ns();
    int other = 1 - place, is_first = atomic_exchange(&turns->processes[place], getpid()) != getpid();
    atomic_store(&turns->turn, other);
    signal_other(SIGCONT);
    // The first call waits until the other program comes, or for half a minute.
    while (atomic_load(&turns->turn) != place) {
        int is_alone = !is_there(atomic_load(&turns->processes[other]));
        if (is_alone && (!is_first || now_ns() - began > 30000000000LL)) break;
        usleep(200);
    }
    signal_other(SIGSTOP);
    waited_ns += now_ns() - began;
}

int32_t llama_decode(struct llama_context *context, struct llama_batch batch) {
    static int32_t (*next)(struct llama_context *, struct llama_batch);
    if (!next) next = dlsym(RTLD_NEXT, "llama_decode");
    wait_for_turn();
    return next(context, batch);
}
