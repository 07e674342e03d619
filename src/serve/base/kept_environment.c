/* The environment of a server's processes. A process inherits that of the shell or service that
 * started the server, and with it whatever secrets are there: of cloud accounts, of other programs,
 * of other parts of this one. Each keeps what it uses. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "serve/base/kept_environment.h"

typedef struct variable {
    const char *name; /* with a * at its end: all that begin so */
    unsigned readers; /* a bit for each by_serve_process */
} variable;

#define EVERY   15U
#define WORKER  (1U << BY_SERVE_WORKER)
#define GATEWAY (1U << BY_SERVE_GATEWAY)
/* The supervisor hands its own on, and links to Redis by itself. */
#define PARENT  (1U << BY_SERVE_SUPERVISOR)
#define CLIENTS (WORKER | GATEWAY | PARENT)
#define SENDS   (GATEWAY | PARENT)

static const variable allowed_variables[] = {
    /* where things are, and how they are written */
    {"HOME", EVERY},
    {"LANG", EVERY},
    {"LANGUAGE", EVERY},
    {"LC_*", EVERY},
    {"LOGNAME", EVERY},
    {"PATH", EVERY},
    {"PWD", EVERY},
    {"SHELL", EVERY},
    {"TERM", EVERY},
    {"TMPDIR", EVERY},
    {"TZ", EVERY},
    {"TZDIR", EVERY},
    {"USER", EVERY},
    {"XDG_CACHE_HOME", EVERY},
    {"XDG_RUNTIME_DIR", EVERY},
    /* the loader, malloc, OpenMP, MPI's libraries, devices */
    {"BANYAN_COMM_FAR", EVERY},
    {"BANYAN_CUDA_PATH", EVERY},
    {"BANYAN_ISA", EVERY},
    {"CONDA_PREFIX", EVERY}, /* NVIDIA's libraries may be in it, as in VIRTUAL_ENV */
    {"CUDA_*", EVERY},
    {"GLIBC_TUNABLES", EVERY},
    {"GOMP_*", EVERY},
    {"KMP_*", EVERY},
    {"LD_*", EVERY},
    {"MALLOC_*", EVERY},
    {"NVIDIA_*", EVERY},
    {"OMP_*", EVERY},
    {"UV_*", EVERY},
    {"VIRTUAL_ENV", EVERY},
    /* sanitizers and coverage */
    {"ASAN_*", EVERY},
    {"GCOV_*", EVERY},
    {"LLVM_*", EVERY},
    {"LSAN_*", EVERY},
    {"TSAN_*", EVERY},
    {"UBSAN_*", EVERY},
    /* names of hosts */
    {"HOSTALIASES", CLIENTS},
    {"LOCALDOMAIN", CLIENTS},
    {"RES_OPTIONS", CLIENTS},
    /* requests to other servers: webhooks, traces, features */
    {"ALL_PROXY", SENDS},
    {"HTTPS_PROXY", SENDS},
    {"NO_PROXY", SENDS},
    {"SSL_CERT_DIR", SENDS},
    {"SSL_CERT_FILE", SENDS},
    {"all_proxy", SENDS},
    {"http_proxy", SENDS},
    {"https_proxy", SENDS},
    {"no_proxy", SENDS},
    {"BANYAN_FEATURES_PASSWORD", SENDS}};

/* Passwords of a broker that is Redis (by__link_redis_broker_login). */
static const variable allowed_redis[] = {{"BANYAN_REDIS_PASSWORD", CLIENTS},
                                         {"REDISCLI_AUTH", CLIENTS}};

static bool is_allowed(const char *entry, by_serve_process process, const variable *list,
                       size_t count)
{
    size_t length = strcspn(entry, "=");
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(list[i].name);
        bool prefix = list[i].name[n - 1] == '*';
        n -= prefix;
        if ((list[i].readers >> process & 1U) != 0 && (prefix ? length >= n : length == n) &&
            strncmp(entry, list[i].name, n) == 0) {
            return true;
        }
    }
    return false;
}

void by__serve_close_files(int but)
{
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 65536) {
        limit.rlim_cur = 65536;
    }
    for (int fd = STDERR_FILENO + 1; fd < (int)limit.rlim_cur; fd++) {
        if (fd != but) {
            (void)close(fd);
        }
    }
}

void by_serve_clean_environment(by_serve_process process, bool redis)
{
    size_t count = 0;
    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (is_allowed(*at, process, allowed_variables, BY_ARRAY_LENGTH(allowed_variables)) ||
            (redis && is_allowed(*at, process, allowed_redis, BY_ARRAY_LENGTH(allowed_redis)))) {
            environ[count++] = *at;
        } else {
            /* /proc shows the text, whatever environ points to. */
            explicit_bzero(*at, strlen(*at));
        }
    }
    if (environ != NULL) {
        environ[count] = NULL;
    }
    if (process != BY_SERVE_SUPERVISOR) {
        by__serve_close_files(-1);
    }
}
