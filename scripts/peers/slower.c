// Loaded before all other libraries into a program that measures itself: what lies between two readings of the clock by one thread takes
// SLOWER_BY times as much longer (0.02 for 2 %), by spinning before the second one is given. Longer pauses, in which the program was stopped or
// waited, stay as they are.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static const int64_t LONGEST_NS = 2000000000;

static int (*real)(clockid_t, struct timespec *);
static double slower_by;
static __thread int64_t before;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("SLOWER_BY");
    slower_by = text ? atof(text) : 0.0;
}

static int64_t read_ns(clockid_t clock, struct timespec *time) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, time) ? -1 : (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int64_t now = read_ns(clock, time);
    if (now < 0 || clock != CLOCK_MONOTONIC || slower_by <= 0.0) return now < 0 ? -1 : 0;
    int64_t passed = now - before;
    if (passed < LONGEST_NS) {
        int64_t until = now + (int64_t)(slower_by * (double)passed);
        while (now < until) now = read_ns(clock, time);
    }
    before = now;
    return 0;
}
