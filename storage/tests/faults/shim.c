/* Makes file operations below one directory fail on demand. Preloaded into a test's child process.
 *
 *   FAULT_DIR   only files below this directory are concerned
 *   FAULT_AT    the call with this number fails (1 is the first); 0 or unset: none
 *   FAULT_HOW   the errno to fail with; -1: a short write instead, half of what was asked for
 *   FAULT_FILE  while this file exists, every call that would take room fails with ENOSPC
 *   FAULT_COUNT at exit, the number of calls seen is written to this file
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static int concerns(int fd) {
    static const char *dir;
    if (!dir && !(dir = getenv("FAULT_DIR"))) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return strncmp(path, dir, strlen(dir)) == 0;
}

/* 0: go on; an errno: fail with it; -1: write less than asked. */
static int verdict(int fd, int takes_room) {
    if (!concerns(fd)) return 0;
    const char *file = getenv("FAULT_FILE");
    if (takes_room && file && access(file, F_OK) == 0) return ENOSPC;
    const char *at = getenv("FAULT_AT"), *how = getenv("FAULT_HOW");
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (at && call == atol(at)) return how ? atoi(how) : EIO;
    return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(how) do { errno = (how); return -1; } while (0)

ssize_t write(int fd, const void *bytes, size_t len) {
    int how = verdict(fd, 1);
    if (how > 0) FAIL(how);
    return REAL(write)(fd, bytes, how < 0 && len > 1 ? len / 2 : len);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    int how = verdict(fd, 1);
    if (how > 0) FAIL(how);
    return REAL(writev)(fd, parts, how < 0 && count > 1 ? 1 : count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    int how = verdict(fd, 0);
    if (how > 0) FAIL(how);
    return REAL(pwrite64)(fd, bytes, how < 0 && len > 1 ? len / 2 : len, at);
}

int fsync(int fd) {
    int how = verdict(fd, 0);
    if (how > 0) FAIL(how);
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    int how = verdict(fd, 0);
    if (how > 0) FAIL(how);
    return REAL(fdatasync)(fd);
}

int ftruncate64(int fd, off64_t len) {
    int how = verdict(fd, 0);
    if (how > 0) FAIL(how);
    return REAL(ftruncate64)(fd, len);
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAULT_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", atomic_load(&calls));
        fclose(file);
    }
}
