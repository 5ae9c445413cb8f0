/* Counts the bytes that memcpy, memmove and realloc move in pieces of 16 KB and more, and how many such moves there
   were, in two shared words of a file named by the process id in the folder BENCHMARK_MOVED. Preloaded into processes. What libraries move inside
   of themselves counts too where they call these functions, so the figure is never too low. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEAST = 16384 };

static uint64_t *counters;
static void *(*real_memcpy)(void *, const void *, size_t);
static void *(*real_memmove)(void *, const void *, size_t);
static void *(*real_realloc)(void *, size_t);

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("BENCHMARK_MOVED");
    char path[4096];
    if (!folder || snprintf(path, sizeof path, "%s/%d", folder, (int)getpid()) >= (int)sizeof path) return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 2 * sizeof(uint64_t))) return;
    void *mapped = mmap(NULL, 2 * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) counters = mapped;
}

static void moved(size_t size) {
    if (size >= LEAST && counters) {
        __atomic_add_fetch(&counters[0], size, __ATOMIC_RELAXED);
        __atomic_add_fetch(&counters[1], 1, __ATOMIC_RELAXED);
    }
}

void *memcpy(void *to, const void *from, size_t size) {
    if (!real_memcpy) real_memcpy = dlsym(RTLD_NEXT, "memcpy");
    moved(size);
    return real_memcpy(to, from, size);
}

void *memmove(void *to, const void *from, size_t size) {
    if (!real_memmove) real_memmove = dlsym(RTLD_NEXT, "memmove");
    moved(size);
    return real_memmove(to, from, size);
}

/* A block that stays where it is was not moved. One that the kernel remaps was not copied, but counts: there is no telling
   them apart. */
void *realloc(void *old, size_t size) {
    if (!real_realloc) real_realloc = dlsym(RTLD_NEXT, "realloc");
    size_t held = old ? malloc_usable_size(old) : 0;
    void *new = real_realloc(old, size);
    if (new && old && new != old) moved(held < size ? held : size);
    return new;
}
