#include "serve/base/sandbox_calls.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/base.h"

/* Numbers that older headers lack; all architectures share them. */
#define CLONE3         435
#define CLOSE_RANGE    436
#define OPENAT2        437
#define FACCESSAT2     439
#define EPOLL_PWAIT2   441
#define FUTEX_WAITV    449
#define FUTEX_WAKE2    454
#define FUTEX_WAIT2    455
#define FUTEX_REQUEUE2 456
#define SHADOW_STACK   453
#define MSEAL          462

/* Calls that are allowed whatever their arguments: they act on this process, or on what it has
 * open. Calls that an architecture lacks have negative numbers here. */
static const int calls[] = {
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mincore),
    /* threads */
    SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(getcpu),
    SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler), SCMP_SYS(set_robust_list),
    SCMP_SYS(set_tid_address), SCMP_SYS(rseq), SCMP_SYS(gettid), SCMP_SYS(membarrier),
    SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(restart_syscall),
    /* signals */
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigpending), SCMP_SYS(rt_sigtimedwait), SCMP_SYS(rt_sigsuspend),
    SCMP_SYS(sigaltstack), SCMP_SYS(pause),
    /* time */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(times), SCMP_SYS(getrusage),
    /* what is open */
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
    SCMP_SYS(pwrite64), SCMP_SYS(lseek), SCMP_SYS(ftruncate), SCMP_SYS(fstat), SCMP_SYS(flock),
    SCMP_SYS(close), SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(pipe), SCMP_SYS(pipe2),
    SCMP_SYS(eventfd2), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6),
    SCMP_SYS(recvmsg), SCMP_SYS(recvfrom), SCMP_SYS(shutdown), SCMP_SYS(getsockopt),
    SCMP_SYS(getsockname), SCMP_SYS(getpeername),
    /* facts about this process and the machine */
    SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid),
    SCMP_SYS(getegid), SCMP_SYS(getrlimit), SCMP_SYS(uname), SCMP_SYS(sysinfo),
    SCMP_SYS(getrandom)};

/* Calls that a library tries before an older one that does, or that it does without. */
static const int absent[] = {
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    CLONE3, /* its flags are behind a pointer, which a filter cannot follow */
    OPENAT2,
    CLOSE_RANGE,
    FACCESSAT2,
    EPOLL_PWAIT2,
    FUTEX_WAITV,
    FUTEX_WAKE2,
    FUTEX_WAIT2,
    FUTEX_REQUEUE2,
    SHADOW_STACK,
    MSEAL};

#define INT UINT64_C(0xffffffff)
#define ALL UINT64_MAX

/* What the C library gives a thread, and may give it. */
#define THREAD (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)
#define THREAD_TOO                                                                                 \
    (CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID |              \
     CLONE_DETACHED)
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
/* Advice that punches holes into files or makes memory bad is not here. */
#define ADVICE(value)                                                                              \
    {                                                                                              \
        SCMP_SYS(madvise),                                                                         \
        {                                                                                          \
            {                                                                                      \
                2, INT, value                                                                      \
            }                                                                                      \
        }                                                                                          \
    }
#define OPTION(level, name)                                                                        \
    {                                                                                              \
        SCMP_SYS(setsockopt),                                                                      \
        {                                                                                          \
            {1, INT, level},                                                                       \
            {                                                                                      \
                2, INT, name                                                                       \
            }                                                                                      \
        }                                                                                          \
    }

static const by__serve_sandbox_rule rules[] = {
    /* No new code: memory that is executable is the program's and its libraries'. */
    {SCMP_SYS(mmap), {{2, PROT_EXEC, 0}}},
    {SCMP_SYS(mprotect), {{2, PROT_EXEC, 0}}},
    ADVICE(MADV_NORMAL),
    ADVICE(MADV_RANDOM),
    ADVICE(MADV_SEQUENTIAL),
    ADVICE(MADV_WILLNEED),
    ADVICE(MADV_DONTNEED),
    ADVICE(MADV_FREE),
    ADVICE(MADV_HUGEPAGE),
    ADVICE(MADV_NOHUGEPAGE),
    ADVICE(MADV_DONTDUMP),
    ADVICE(MADV_DONTFORK),
    ADVICE(MADV_WIPEONFORK),
    ADVICE(22), /* MADV_POPULATE_READ, and MADV_POPULATE_WRITE */
    ADVICE(23),
    ADVICE(102), /* MADV_GUARD_INSTALL, and MADV_GUARD_REMOVE: stacks of threads */
    ADVICE(103),
    {SCMP_SYS(clone), {{0, ~(uint64_t)THREAD_TOO, THREAD}}},
    {SCMP_SYS(sched_setaffinity), {{0, INT, 0}}},
    {SCMP_SYS(prctl), {{0, INT, PR_SET_NAME}}},
    {SCMP_SYS(prctl), {{0, INT, PR_GET_NAME}}},
    {SCMP_SYS(prctl), {{0, INT, PR_SET_VMA}}},
    {SCMP_SYS(arch_prctl), {{0, INT, 0x1022}}}, /* ARCH_GET_XCOMP_PERM, and ARCH_REQ_XCOMP_PERM */
    {SCMP_SYS(arch_prctl), {{0, INT, 0x1023}}},
    {SCMP_SYS(prlimit64), {{0, INT, 0}, {2, ALL, 0}}},
    {SCMP_SYS(fcntl), {{1, INT, F_GETFD}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETFD}}},
    {SCMP_SYS(fcntl), {{1, INT, F_GETFL}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETFL}}},
    {SCMP_SYS(fcntl), {{1, INT, F_DUPFD_CLOEXEC}}},
    {SCMP_SYS(ioctl), {{1, INT, FIONBIO}}},
    {SCMP_SYS(ioctl), {{1, INT, FIONREAD}}},
    {SCMP_SYS(ioctl), {{1, INT, FIOCLEX}}},
    {SCMP_SYS(ioctl), {{1, INT, TCGETS}}},
    /* The state of an open file; with a path it would be that of any. */
    {SCMP_SYS(newfstatat), {{3, AT_EMPTY_PATH, AT_EMPTY_PATH}}},
    /* No connection is opened by the first data. */
    {SCMP_SYS(sendmsg), {{2, MSG_FASTOPEN, 0}}},
    OPTION(SOL_SOCKET, SO_REUSEADDR),
    OPTION(SOL_SOCKET, SO_KEEPALIVE),
    OPTION(SOL_SOCKET, SO_RCVTIMEO),
    OPTION(SOL_SOCKET, SO_SNDTIMEO),
    OPTION(IPPROTO_TCP, TCP_NODELAY),
    OPTION(IPPROTO_TCP, TCP_KEEPIDLE),
    OPTION(IPPROTO_TCP, TCP_KEEPINTVL),
    OPTION(IPPROTO_TCP, TCP_KEEPCNT),
    OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT)};

/* Of a worker alone: a connection has its address, so that none is given. */
static const by__serve_sandbox_rule connected[] = {
    {SCMP_SYS(sendto), {{3, MSG_FASTOPEN, 0}, {4, ALL, 0}}}};

#define TYPE ((uint64_t)0xf) /* of a socket, beside its flags */

/* A worker with Redis: connections by TCP. */
static const by__serve_sandbox_rule tcp[] = {
    {SCMP_SYS(socket), {{0, INT, AF_INET}, {1, TYPE, SOCK_STREAM}}},
    {SCMP_SYS(socket), {{0, INT, AF_INET6}, {1, TYPE, SOCK_STREAM}}},
    {SCMP_SYS(connect), {{0, 0, 0}}}};

/* A worker on a device that opens files late; Landlock says which. */
static const by__serve_sandbox_rule opening[] = {{SCMP_SYS(openat), {{2, O_CREAT | O_TRUNC, 0}}}};

/* A gateway or broker reads and writes files, which Landlock names; it answers who connects to its
 * sockets, which listen already, and reconnects to those of others on this machine. */
static const int server_calls[] = {SCMP_SYS(open),
                                   SCMP_SYS(openat),
                                   SCMP_SYS(stat),
                                   SCMP_SYS(lstat),
                                   SCMP_SYS(newfstatat),
                                   SCMP_SYS(statx),
                                   SCMP_SYS(access),
                                   SCMP_SYS(faccessat),
                                   SCMP_SYS(readlink),
                                   SCMP_SYS(readlinkat),
                                   SCMP_SYS(getdents64),
                                   SCMP_SYS(getcwd),
                                   SCMP_SYS(mkdir),
                                   SCMP_SYS(mkdirat),
                                   SCMP_SYS(unlink),
                                   SCMP_SYS(unlinkat),
                                   SCMP_SYS(rename),
                                   SCMP_SYS(renameat),
                                   SCMP_SYS(renameat2),
                                   SCMP_SYS(fsync),
                                   SCMP_SYS(fdatasync),
                                   SCMP_SYS(fallocate),
                                   SCMP_SYS(fadvise64),
                                   SCMP_SYS(fchmod),
                                   SCMP_SYS(fchown),
                                   SCMP_SYS(umask),
                                   SCMP_SYS(connect),
                                   SCMP_SYS(accept),
                                   SCMP_SYS(accept4),
                                   SCMP_SYS(socketpair),
                                   SCMP_SYS(sched_get_priority_min),
                                   SCMP_SYS(sched_get_priority_max)};

static const by__serve_sandbox_rule server_rules[] = {
    {SCMP_SYS(socket), {{0, INT, AF_UNIX}, {1, TYPE, SOCK_STREAM}}},
    {SCMP_SYS(sendto), {{3, MSG_FASTOPEN, 0}}},
    {SCMP_SYS(fcntl), {{1, INT, F_DUPFD}}},
    /* locks: SQLite's */
    {SCMP_SYS(fcntl), {{1, INT, F_GETLK}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETLK}}},
    {SCMP_SYS(fcntl), {{1, INT, F_SETLKW}}},
    OPTION(SOL_SOCKET, SO_SNDBUF),
    OPTION(SOL_SOCKET, SO_RCVBUF),
    OPTION(SOL_SOCKET, SO_LINGER)};

/* A gateway looks up names and connects to Redis, feature stores, receivers of webhooks and
 * collectors of traces. */
static const int network_calls[] = {SCMP_SYS(sendmmsg), SCMP_SYS(recvmmsg), SCMP_SYS(bind)};

static const by__serve_sandbox_rule network_rules[] = {
    {SCMP_SYS(socket), {{0, INT, AF_INET}, {1, TYPE, SOCK_STREAM}}},
    {SCMP_SYS(socket), {{0, INT, AF_INET6}, {1, TYPE, SOCK_STREAM}}},
    {SCMP_SYS(socket), {{0, INT, AF_INET}, {1, TYPE, SOCK_DGRAM}}},
    {SCMP_SYS(socket), {{0, INT, AF_INET6}, {1, TYPE, SOCK_DGRAM}}},
    /* The C library asks for the addresses of this machine: NETLINK_ROUTE. */
    {SCMP_SYS(socket), {{0, INT, AF_NETLINK}, {1, TYPE, SOCK_RAW}, {2, INT, 0}}},
    {SCMP_SYS(ioctl), {{1, INT, SIOCGIFINDEX}}},
    {SCMP_SYS(ioctl), {{1, INT, SIOCGIFNAME}}},
    OPTION(IPPROTO_IP, IP_RECVERR),
    OPTION(IPPROTO_IP, IP_TOS),
    OPTION(IPPROTO_IPV6, IPV6_RECVERR),
    OPTION(IPPROTO_IPV6, IPV6_V6ONLY),
    OPTION(IPPROTO_IPV6, IPV6_TCLASS)};

#define LIST(calls, rules)                                                                         \
    {                                                                                              \
        calls, BY_ARRAY_LENGTH(calls), rules, BY_ARRAY_LENGTH(rules)                               \
    }
#define RULES(rules)                                                                               \
    {                                                                                              \
        NULL, 0, rules, BY_ARRAY_LENGTH(rules)                                                     \
    }

const by__serve_sandbox_list by__serve_sandbox_all = LIST(calls, rules);
const by__serve_sandbox_list by__serve_sandbox_connected = RULES(connected);
const by__serve_sandbox_list by__serve_sandbox_tcp = RULES(tcp);
const by__serve_sandbox_list by__serve_sandbox_opening = RULES(opening);
const by__serve_sandbox_list by__serve_sandbox_server = LIST(server_calls, server_rules);
const by__serve_sandbox_list by__serve_sandbox_network = LIST(network_calls, network_rules);
const by__serve_sandbox_list by__serve_sandbox_absent = {absent, BY_ARRAY_LENGTH(absent), NULL, 0};
