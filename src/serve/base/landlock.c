#include "serve/base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of <linux/landlock.h>, which headers older than the kernel lack. The numbers are those of every
 * architecture. */
#define CREATE   444
#define ADD_RULE 445
#define RESTRICT 446

#define ASK_VERSION 1U
#define OF_PATH     1
#define OF_PORT     2

#define WRITE_FILE   ((uint64_t)1 << 1)
#define READ_FILE    ((uint64_t)1 << 2)
#define READ_DIR     ((uint64_t)1 << 3)
#define REMOVE_FILE  ((uint64_t)1 << 5)
#define MAKE_DIR     ((uint64_t)1 << 7)
#define MAKE_REGULAR ((uint64_t)1 << 8)
#define MAKE_SOCKET  ((uint64_t)1 << 9)
#define TRUNCATE     ((uint64_t)1 << 14)
#define DEVICE_IOCTL ((uint64_t)1 << 15)
#define OF_FILE      (WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_IOCTL)
#define TCP_CONNECT  ((uint64_t)1 << 1)

typedef struct ruleset {
    uint64_t files;
    uint64_t net;
    uint64_t scoped;
} ruleset;

typedef struct path_rule {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed)) path_rule;

typedef struct port_rule {
    uint64_t allowed;
    uint64_t port;
} port_rule;

/* Everything that a version of Landlock can refuse. */
static ruleset all_of(int version)
{
    /* The number of kinds of access to files: 13 at first, then links between directories,
     * truncation, and calls of drivers. */
    unsigned kinds = version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13;
    return (ruleset){.files = ((uint64_t)1 << kinds) - 1,
                     .net = version >= 4 ? 3 : 0,     /* bind, connect */
                     .scoped = version >= 6 ? 3 : 0}; /* abstract sockets, signals */
}

/* Allows what is `wanted` of a file or, if it is a directory, of all below it. */
static int add_path(int set, const char *path, uint64_t wanted)
{
    struct stat info;
    path_rule rule = {.allowed = wanted, .fd = open(path, O_PATH | O_CLOEXEC)};
    if (rule.fd < 0) {
        return -1;
    }
    rule.allowed &= fstat(rule.fd, &info) == 0 && S_ISDIR(info.st_mode) ? wanted : OF_FILE;
    long code = syscall(ADD_RULE, set, OF_PATH, &rule, 0);
    int why = errno;
    (void)close(rule.fd);
    errno = why;
    return code == 0 ? 0 : -1;
}

static int add_rules(int set, const by__serve_landlock *rules, const ruleset *handled)
{
    const uint64_t reading = READ_FILE | READ_DIR;
    const uint64_t writing =
        reading | WRITE_FILE | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR | MAKE_SOCKET | TRUNCATE;
    port_rule port = {.allowed = TCP_CONNECT & handled->net, .port = rules->port};
    if (rules->port != 0 && port.allowed != 0 && syscall(ADD_RULE, set, OF_PORT, &port, 0) != 0) {
        return -1;
    }
    for (size_t i = 0; rules->devices != NULL && rules->devices[i] != NULL; i++) {
        if (add_path(set, rules->devices[i],
                     (READ_FILE | WRITE_FILE | DEVICE_IOCTL) & handled->files) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < rules->path_count; i++) {
        const by__serve_landlock_path *p = &rules->paths[i];
        uint64_t wanted = (p->writes ? writing : reading) & handled->files;
        if (add_path(set, p->path, wanted) != 0 && errno != ENOENT && errno != EACCES &&
            errno != ENOTDIR) {
            return -1;
        }
    }
    return 0;
}

by_status by__serve_landlock_enter(int *version, const by__serve_landlock *rules, by_error *error)
{
    long known = syscall(CREATE, NULL, 0, ASK_VERSION);
    *version = known > 0 ? (int)known : 0;
    if (known <= 0) {
        return BY_OK;
    }
    ruleset handled = all_of(*version);
    handled.net = rules->network ? 0 : handled.net;
    int set = (int)syscall(CREATE, &handled, sizeof handled, 0);
    int code = set < 0 ? -1 : add_rules(set, rules, &handled);
    code = code != 0 ? code : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    code = code != 0 ? code : (int)syscall(RESTRICT, set, 0);
    int why = errno;
    if (set >= 0) {
        (void)close(set);
    }
    return code == 0 ? BY_OK : by__serve_uv_error(error, "restrict", "files (Landlock)", -why);
}
