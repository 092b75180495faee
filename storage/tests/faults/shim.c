/* Makes file operations below one directory fail on demand. Preloaded into a test's child process.
 *
 *   FAULT_DIR   only files below this directory are concerned
 *   FAULT_AT    the call with this number fails (1 is the first); 0 or unset: none
 *   FAULT_HOW   the errno to fail with; -1: a short write instead, half of what was asked for
 *   FAULT_FILE  while this file exists, every call that would take room fails with ENOSPC
 *   FAULT_ONLY  ... but only for files whose path contains this
 *   FAULT_COUNT at exit, the number of calls seen is written to this file
 *   FAULT_SHADOW a directory that keeps what is durable: whatever a sync has promised to survive power loss.
 *               i<inode>: a file as of its last sync; d<inode>: a directory's names as of its last sync
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

/* The path behind a descriptor, if it is below FAULT_DIR. */
static int concerns(int fd, char *path, size_t size) {
    static const char *dir;
    if (!dir && !(dir = getenv("FAULT_DIR"))) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, size - 1);
    if (len < 0) return 0;
    path[len] = 0;
    size_t prefix = strlen(dir);
    return strncmp(path, dir, prefix) == 0 && (path[prefix] == 0 || path[prefix] == '/');
}

/* 0: go on; an errno: fail with it; -1: write less than asked. */
static int verdict(int fd, int takes_room) {
    char path[4096];
    if (!concerns(fd, path, sizeof path)) return 0;
    const char *file = getenv("FAULT_FILE"), *only = getenv("FAULT_ONLY");
    int full = takes_room && file && access(file, F_OK) == 0;
    if (full && (!only || strstr(path, only))) return ENOSPC;
    const char *at = getenv("FAULT_AT"), *how = getenv("FAULT_HOW");
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (at && call == atol(at)) return how ? atoi(how) : EIO;
    return 0;
}

/* Keeps a copy of what a sync has just made durable. In place at once, so that a kill leaves the old or the new. */
static void keep(int fd) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const char *shadow = getenv("FAULT_SHADOW");
    struct stat found;
    char path[4096];
    if (!shadow || !concerns(fd, path, sizeof path) || fstat(fd, &found)) return;
    int is_dir = S_ISDIR(found.st_mode);
    char link[64], temporary[4096], kept[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(temporary, sizeof temporary, "%s/tmp", shadow);
    snprintf(kept, sizeof kept, "%s/%c%lu", shadow, is_dir ? 'd' : 'i', (unsigned long)found.st_ino);
    pthread_mutex_lock(&one_at_a_time);
    int from = open(link, O_RDONLY);
    FILE *to = fopen(temporary, "w");
    if (is_dir) {
        DIR *names = fdopendir(from);
        for (struct dirent *entry; (entry = readdir(names));)
            fprintf(to, "%lu %c %s\n", (unsigned long)entry->d_ino, entry->d_type == DT_DIR ? 'd' : 'i', entry->d_name);
        closedir(names);
    } else {
        static char bytes[1 << 20];
        /* Files made large in advance are mostly hole; only up to the first one is data. */
        off_t end = lseek(from, 0, SEEK_HOLE), at = 0;
        for (ssize_t got; at < end && (got = pread(from, bytes, sizeof bytes, at)) > 0; at += got)
            fwrite(bytes, 1, got, to);
        close(from);
    }
    fclose(to);
    rename(temporary, kept);
    pthread_mutex_unlock(&one_at_a_time);
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
    int done = REAL(fsync)(fd);
    if (!done) keep(fd);
    return done;
}

int fdatasync(int fd) {
    int how = verdict(fd, 0);
    if (how > 0) FAIL(how);
    int done = REAL(fdatasync)(fd);
    if (!done) keep(fd);
    return done;
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
