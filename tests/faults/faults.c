/* Counts what a process does to files below a folder, and at one of these calls lets it fail, or ends the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL, TEAR, FAIL, SHORT };

static char under[4096];
static volatile long at = -1, done = 0;
static int kind = COUNT, number = 0, armed = 0, broken = -1;

void fault_arm(const char *folder, int what, long call, int error) {
    strncpy(under, folder, sizeof under - 1);
    kind = what, at = call, number = error, done = 0, broken = -1, armed = 1;
}

long fault_count(void) { return done; }

static int below(const char *path) { return strncmp(path, under, strlen(under)) == 0; }

static int concerns_file(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return below(path);
}

static int concerns_path(const char *path) {
    if (path[0] == '/') return below(path);
    char folder[4096];
    return getcwd(folder, sizeof folder) && below(folder);
}

/* Whether this call is the one; a process that is to be killed does not come back. */
static int strikes(void) {
    if (__sync_add_and_fetch(&done, 1) != at) return 0;
    if (kind == KILL) raise(SIGKILL);
    return kind != COUNT;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t partly(int fd, const void *data, size_t size) {
    if (kind == TEAR || kind == SHORT) {
        if (size > 1) REAL(write)(fd, data, size / 2);
        if (kind == TEAR) raise(SIGKILL);
        if (size > 1) { broken = fd; return size / 2; }
    }
    errno = number;
    return -1;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!armed || !concerns_file(fd)) return REAL(write)(fd, data, size);
    if (broken == fd) { broken = -1; errno = number; return -1; }
    return strikes() ? partly(fd, data, size) : REAL(write)(fd, data, size);
}

size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    if (armed && concerns_file(fileno(file)) && strikes()) {
        if (kind == TEAR) { REAL(fwrite)(data, size, n / 2, file); fflush(file); raise(SIGKILL); }
        errno = number;
        return 0;
    }
    return REAL(fwrite)(data, size, n, file);
}

#define ON_FILE(result, name, arguments, values)                                                        \
    result name arguments {                                                                             \
        if (armed && concerns_file(fd) && strikes()) {                                                  \
            if (kind == TEAR) raise(SIGKILL);                                                           \
            errno = number;                                                                             \
            return -1;                                                                                  \
        }                                                                                               \
        return REAL(name) values;                                                                       \
    }

#define ON_PATH(name, arguments, values)                                                                \
    int name arguments {                                                                                \
        if (armed && concerns_path(path) && strikes()) {                                                \
            if (kind == TEAR) raise(SIGKILL);                                                           \
            errno = number;                                                                             \
            return -1;                                                                                  \
        }                                                                                               \
        return REAL(name) values;                                                                       \
    }

ON_FILE(ssize_t, pwrite64, (int fd, const void *data, size_t n, off64_t place), (fd, data, n, place))
ON_FILE(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
ON_FILE(ssize_t, sendfile64, (int fd, int from, off64_t *place, size_t n), (fd, from, place, n))
ON_FILE(int, fsync, (int fd), (fd))
ON_FILE(int, fdatasync, (int fd), (fd))
ON_FILE(int, ftruncate64, (int fd, off64_t size), (fd, size))
ON_PATH(rename, (const char *from, const char *path), (from, path))
ON_PATH(link, (const char *from, const char *path), (from, path))
ON_PATH(symlink, (const char *from, const char *path), (from, path))
ON_PATH(mkdir, (const char *path, mode_t mode), (path, mode))

int renameat(int a, const char *from, int b, const char *path) {
    if (armed && concerns_path(path) && strikes()) {
        if (kind == TEAR) raise(SIGKILL);
        errno = number;
        return -1;
    }
    return REAL(renameat)(a, from, b, path);
}

#define OPENING(name)                                                                                   \
    int name(const char *path, int flags, ...) {                                                        \
        va_list more;                                                                                   \
        va_start(more, flags);                                                                          \
        mode_t mode = va_arg(more, mode_t);                                                             \
        va_end(more);                                                                                   \
        if (armed && (flags & (O_CREAT | O_TRUNC)) && concerns_path(path) && strikes()) {               \
            if (kind == TEAR) raise(SIGKILL);                                                           \
            errno = number;                                                                             \
            return -1;                                                                                  \
        }                                                                                               \
        return REAL(name)(path, flags, mode);                                                           \
    }

OPENING(open)
OPENING(open64)
