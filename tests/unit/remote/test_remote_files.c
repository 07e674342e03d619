/* Remote files, read through the cache from a server of this process that fails as told: whatever
 * it does, bytes are right or there is an error. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/threads.h"
#include "remote/remote.h"

/* Not a multiple of a block. */
enum { SIZE = 3 * 1024 * 1024 + 12345 };

typedef enum fault { NONE, FLAKY, CHANGED, DENIED, MISSING, WHOLE, UNTAGGED, BUSY, HANGS } fault;

static struct {
    int listener;
    int port;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    fault fault;
    int requests;
    uint64_t sent;   /* bytes of files */
    uint32_t served; /* bits: which of the first 32 blocks were begun, and */
    bool twice;      /* whether one was a second time */
    bool stop;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint8_t data[SIZE];
static char folder[256];

/* ---- the server ---- */

static void send_all(int to, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t sent = send(to, (const char *)from + done, n - done, MSG_NOSIGNAL);
        if (sent <= 0) {
            return;
        }
        done += (size_t)sent;
    }
}

static void send_status(int to, const char *line)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", line);
    send_all(to, head, (size_t)n);
}

/* Answers a request for a range. The server is locked. */
static void answer(int to, const char *request)
{
    unsigned long first = 0;
    unsigned long last = SIZE - 1;
    char head[512];
    const char *range = strstr(request, "Range: bytes=");
    bool unless = strstr(request, "If-None-Match: \"v1\"") != NULL;
    int number = server.requests++ % 10;
    const char *tag = server.fault == CHANGED && server.requests > 2 ? "\"v2\"" : "\"v1\"";
    if (range != NULL) {
        assert_int_equal(sscanf(range, "Range: bytes=%lu-%lu", &first, &last), 2);
    }
    last = last < SIZE ? last : SIZE - 1;
    bool fails = server.fault == FLAKY && (number == 1 || number == 4 || number == 7);
    if (server.fault == DENIED || server.fault == MISSING) {
        send_status(to, server.fault == DENIED ? "403 Forbidden" : "404 Not Found");
    } else if (server.fault == BUSY) {
        send_status(to, "503 Service Unavailable\r\nRetry-After: 100000");
    } else if (fails && number == 1) {
        send_status(to, "503 Service Unavailable");
    } else if (fails && number == 4) {
        return; /* cut before the answer */
    } else if (unless && server.fault != WHOLE && server.fault != UNTAGGED &&
               strcmp(tag, "\"v1\"") == 0) {
        send_status(to, "304 Not Modified\r\nETag: \"v1\"");
    } else if (server.fault == WHOLE) {
        int n =
            snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", SIZE);
        send_all(to, head, (size_t)n);
        send_all(to, data, SIZE);
    } else {
        size_t size = last - first + 1;
        int n = snprintf(
            head, sizeof head,
            "HTTP/1.1 206 Partial Content\r\nContent-Length: %zu\r\n%s%s%s"
            "Content-Range: bytes %lu-%lu/%d\r\nConnection: close\r\n\r\n",
            size, server.fault == UNTAGGED ? "" : "ETag: ", server.fault == UNTAGGED ? "" : tag,
            server.fault == UNTAGGED ? "" : "\r\n", first, last, SIZE);
        size = fails ? size / 3 : size;
        server.sent += size;
        for (size_t b = first / BY__REMOTE_BLOCK; b < 32 && b * BY__REMOTE_BLOCK <= last; b++) {
            server.twice = server.twice || (server.served >> b & 1) != 0;
            server.served |= 1u << b;
        }
        send_all(to, head, (size_t)n);
        send_all(to, data + first, size);
    }
}

static void *serve(void *user)
{
    char request[4096];
    BY_UNUSED(user);
    for (;;) {
        int to = accept(server.listener, NULL, NULL);
        (void)pthread_mutex_lock(&server.lock);
        bool stop = server.stop;
        (void)pthread_mutex_unlock(&server.lock);
        if (stop) {
            (void)close(to);
            return NULL;
        }
        size_t n = 0;
        request[0] = '\0';
        while (n + 1 < sizeof request && strstr(request, "\r\n\r\n") == NULL) {
            ssize_t got = recv(to, request + n, sizeof request - 1 - n, 0);
            if (got <= 0) {
                break;
            }
            n += (size_t)got;
            request[n] = '\0';
        }
        (void)pthread_mutex_lock(&server.lock);
        bool hangs = server.fault == HANGS;
        if (!hangs) {
            answer(to, request);
        }
        (void)pthread_mutex_unlock(&server.lock);
        if (!hangs) {
            (void)shutdown(to, SHUT_WR);
        }
        while (recv(to, request, sizeof request, 0) > 0) {
        }
        (void)close(to);
    }
}

static int connect_here(void)
{
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(s, (struct sockaddr *)&at, sizeof at), 0);
    return s;
}

static int begin(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    const char *temporary = getenv("TMPDIR");
    BY_UNUSED(state);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    (void)snprintf(folder, sizeof folder, "%s/remote-%d", temporary == NULL ? "/tmp" : temporary,
                   (int)getpid());
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server.listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(server.listener, 64) != 0 ||
        getsockname(server.listener, (struct sockaddr *)&at, &length) != 0) {
        return 1;
    }
    server.port = ntohs(at.sin_port);
    return pthread_create(&server.thread, NULL, serve, NULL);
}

static int end(void **state)
{
    BY_UNUSED(state);
    (void)pthread_mutex_lock(&server.lock);
    server.stop = true;
    (void)pthread_mutex_unlock(&server.lock);
    (void)close(connect_here());
    (void)pthread_join(server.thread, NULL);
    (void)close(server.listener);
    return by__remove_tree(folder, NULL) == BY_OK ? 0 : 1;
}

static void set_fault(fault f)
{
    (void)pthread_mutex_lock(&server.lock);
    server.fault = f;
    server.requests = 0;
    server.sent = 0;
    server.served = 0;
    server.twice = false;
    (void)pthread_mutex_unlock(&server.lock);
}

static uint64_t bytes_sent(void)
{
    (void)pthread_mutex_lock(&server.lock);
    uint64_t sent = server.sent;
    (void)pthread_mutex_unlock(&server.lock);
    return sent;
}

/* ---- reading ---- */

static const char *url_of(int number)
{
    static char url[128];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d/file-%d.bin?secret=1", server.port,
                   number);
    return url;
}

static by__remote *open_remote(uint64_t bytes)
{
    by__remote *r = NULL;
    const by_remote_options options = {.cache = folder, .bytes = bytes};
    assert_int_equal(by__remote_open(&r, &options, NULL), BY_OK);
    return r;
}

static void check_range(by__remote_file *f, size_t at, size_t n)
{
    uint8_t *out = malloc(n + 1);
    assert_non_null(out);
    assert_int_equal(by__remote_read(f, at, out, n, NULL), BY_OK);
    assert_memory_equal(out, data + at, n);
    free(out);
}

static void check_ranges(by__remote_file *f)
{
    uint32_t state = 7;
    assert_int_equal(by__remote_size(f), SIZE);
    for (int i = 0; i < 40; i++) {
        state = state * 1664525 + 1013904223;
        size_t at = state % SIZE;
        size_t n = (state >> 8) % 300000;
        check_range(f, at, n < SIZE - at ? n : SIZE - at);
    }
    check_range(f, SIZE, 0);
    check_range(f, SIZE - 1, 1);
    uint8_t byte;
    assert_int_equal(by__remote_read(f, SIZE, &byte, 1, NULL), BY_EFORMAT);
}

static void check_whole(by__remote_file *f)
{
    by__map map;
    assert_int_equal(by__remote_map(&map, f, NULL), BY_OK);
    assert_int_equal(map.size, SIZE);
    assert_memory_equal(map.data, data, SIZE);
    by__map_close(&map);
}

static void clear_cache(void)
{
    assert_int_equal(by__remove_tree(folder, NULL), BY_OK);
}

/* Nothing is fetched twice, now or by the next process. */
static void test_ranges(void **state)
{
    by__remote *r;
    by__remote_file *f;
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    r = open_remote(0);
    assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
    check_range(f, 2 * BY__REMOTE_BLOCK - 5, 10);
    assert_int_equal(bytes_sent(), 3 * BY__REMOTE_BLOCK);
    check_ranges(f);
    check_whole(f);
    assert_int_equal(bytes_sent(), SIZE);
    by__remote_close(&r);
    r = open_remote(0);
    assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
    check_ranges(f);
    check_whole(f);
    assert_int_equal(bytes_sent(), SIZE);
    by__remote_close(&r);
}

static void test_flaky(void **state)
{
    by__remote *r;
    by__remote_file *f;
    BY_UNUSED(state);
    clear_cache();
    set_fault(FLAKY);
    r = open_remote(0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(by__remote_find(&f, r, url_of(i), NULL), BY_OK);
        check_ranges(f);
        check_whole(f);
    }
    by__remote_close(&r);
}

static const char *message_of(fault f)
{
    static by_error error;
    by__remote *r;
    by__remote_file *file;
    uint8_t byte;
    clear_cache();
    set_fault(f);
    error = (by_error){0};
    r = open_remote(0);
    by_status status = by__remote_find(&file, r, url_of(1), &error);
    if (status == BY_OK) {
        check_range(file, BY__REMOTE_BLOCK, 1);
        status = by__remote_read(file, SIZE - 1, &byte, 1, &error);
    }
    by__remote_close(&r);
    assert_int_not_equal(status, BY_OK);
    assert_null(strstr(error.message, "secret"));
    assert_non_null(strstr(error.message, "/file-1.bin"));
    return error.message;
}

static void test_errors(void **state)
{
    by__remote *r;
    by__remote_file *f;
    by_error error = {0};
    BY_UNUSED(state);
    assert_non_null(strstr(message_of(CHANGED), "has changed since it was opened"));
    assert_non_null(strstr(message_of(DENIED), "access is denied (status 403)"));
    assert_non_null(strstr(message_of(MISSING), "no such file (status 404)"));
    assert_non_null(strstr(message_of(WHOLE), "does not send parts"));
    r = open_remote(2 << 20);
    set_fault(NONE);
    assert_int_equal(by__remote_find(&f, r, url_of(1), &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "data.remote_cache_size"));
    by__remote_close(&r);
    r = open_remote(0); /* which has reached no server yet: it gives up early */
    assert_int_equal(by__remote_find(&f, r, "http://127.0.0.1:1/x", &error), BY_EIO);
    assert_non_null(strstr(error.message, "attempts failed"));
    by__remote_close(&r);
}

/* The path of a file of the cache's only entry. */
static void entry_path(char out[512], const char *name)
{
    char **names;
    size_t count;
    assert_int_equal(by__list_dir(&names, &count, folder, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        if (strlen(names[i]) == 32) {
            (void)snprintf(out, 512, "%s/%s/%s", folder, names[i], name);
        }
    }
    by__names_free(names, count);
}

/* A block that is damaged, or was torn, is fetched again, and none else. */
static void test_damage(void **state)
{
    by__remote *r;
    by__remote_file *f;
    char path[512];
    const char byte = '!';
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    for (int round = 0; round < 3; round++) {
        r = open_remote(0);
        assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
        check_whole(f);
        by__remote_close(&r);
        assert_int_equal(bytes_sent(), SIZE + (round > 0 ? 1 : 0) * BY__REMOTE_BLOCK +
                                           (round > 1 ? 1 : 0) * BY__REMOTE_BLOCK);
        entry_path(path, round == 0 ? "file-1.bin" : ".blocks");
        FILE *file = fopen(path, "r+");
        assert_non_null(file);
        assert_int_equal(fseek(file, round == 0 ? 2 * (long)BY__REMOTE_BLOCK + 17 : 512 + 9, 0), 0);
        assert_int_equal(fwrite(&byte, 1, 1, file), 1);
        assert_int_equal(fclose(file), 0);
    }
    /* A head that is damaged costs the entry. */
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    r = open_remote(0);
    assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
    check_whole(f);
    by__remote_close(&r);
}

/* Without a tag, the first block tells. */
static void test_untagged(void **state)
{
    by__remote *r;
    by__remote_file *f;
    BY_UNUSED(state);
    clear_cache();
    set_fault(UNTAGGED);
    for (int round = 0; round < 3; round++) {
        data[5] ^= round == 2;
        r = open_remote(0);
        assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
        check_whole(f);
        by__remote_close(&r);
        assert_int_equal(bytes_sent(), round == 0   ? SIZE
                                       : round == 1 ? SIZE + BY__REMOTE_BLOCK
                                                    : 2 * (uint64_t)SIZE + BY__REMOTE_BLOCK);
    }
    data[5] ^= 1;
}

static uint64_t cache_bytes(void)
{
    char **names;
    size_t count;
    uint64_t total = 0;
    assert_int_equal(by__list_dir(&names, &count, folder, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        char path[512];
        struct stat info;
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        char **files;
        size_t n;
        if (strlen(names[i]) != 32 || by__list_dir(&files, &n, path, NULL) != BY_OK) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            (void)snprintf(path, sizeof path, "%s/%s/%s", folder, names[i], files[k]);
            assert_int_equal(stat(path, &info), 0);
            total += (uint64_t)info.st_blocks * 512;
        }
        by__names_free(files, n);
    }
    by__names_free(names, count);
    return total;
}

/* A cache that holds two of six files. */
static void test_small_cache(void **state)
{
    const uint64_t limit = 8 << 20;
    by__remote *r;
    by__remote_file *f[6];
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    r = open_remote(limit);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(by__remote_find(&f[i], r, url_of(i), NULL), BY_OK);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            check_ranges(f[i]);
            assert_true(cache_bytes() <= limit + (64 << 10));
        }
        check_whole(f[round]);
    }
    /* What has a path stays, and where nothing else fits, that is said. */
    const char *path;
    const char *other;
    by_error error = {0};
    assert_int_equal(by__remote_local(&path, f[0], NULL), BY_OK);
    assert_int_equal(by__remote_local(&other, f[1], NULL), BY_OK);
    assert_true(by__path_exists(path) && by__path_exists(other));
    check_whole(f[0]);
    assert_int_equal(by__remote_local(&other, f[2], &error), BY_EIO);
    assert_non_null(strstr(error.message, "full of files that are in use"));
    assert_true(by__path_exists(path));
    by__remote_close(&r);
}

static by_status read_whole(void *context, size_t i, by_error *error)
{
    by__remote *r = open_remote(0);
    by__remote_file *f;
    BY_UNUSED(context);
    BY_UNUSED(i);
    by_status status = by__remote_find(&f, r, url_of(1), error);
    if (status == BY_OK) {
        check_ranges(f);
        check_whole(f);
    }
    by__remote_close(&r);
    return status;
}

/* Ranks of a host, each with a cache of its own in the same directory, share each block. */
static void test_shared(void **state)
{
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    assert_int_equal(by__threads_run(4, read_whole, NULL, NULL), BY_OK);
    assert_int_equal(bytes_sent(), SIZE);
    assert_false(server.twice);
}

static bool refuse_progress(void *user, uint64_t done, uint64_t total)
{
    uint64_t *last = user;
    assert_true(done <= total && done >= *last);
    *last = done;
    return done < 1 << 20;
}

/* Progress is told, and may end it. */
static void test_progress(void **state)
{
    by__remote *r = NULL;
    by__remote_file *f;
    uint64_t last = 0;
    const by_remote_options options = {.cache = folder, .progress = refuse_progress, .user = &last};
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    assert_int_equal(by__remote_open(&r, &options, NULL), BY_OK);
    assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
    assert_int_equal(by__remote_fetch(f, NULL), BY_ESTOPPED);
    by__remote_close(&r);
}

static bool end_later(void *user, uint64_t done, uint64_t total)
{
    int *left = user;
    assert_true(done <= total);
    return --*left > 0;
}

/* A server that says nothing, or to come again much later, does not keep from stopping. */
static void test_stops(void **state)
{
    BY_UNUSED(state);
    for (int hangs = 0; hangs < 2; hangs++) {
        by__remote *r = NULL;
        by__remote_file *f;
        by_error error = {0};
        int left = 1 + hangs;
        const by_remote_options options = {.cache = folder, .progress = end_later, .user = &left};
        clear_cache();
        set_fault(hangs ? HANGS : BUSY);
        assert_int_equal(by__remote_open(&r, &options, NULL), BY_OK);
        assert_int_equal(by__remote_find(&f, r, url_of(1), &error), BY_ESTOPPED);
        assert_string_equal(error.message, "stopped while files were fetched");
        by__remote_close(&r);
    }
    set_fault(NONE);
}

/* Another process that holds blocks, as one that fetches them, does not keep from stopping, nor
 * from telling that one waits. */
static void test_held(void **state)
{
    by__remote *r = NULL;
    by__remote_file *f;
    char path[512];
    uint8_t byte;
    by_error error = {0};
    int left = 3; /* once when the file is found, and twice while it waits */
    const by_remote_options options = {.cache = folder, .progress = end_later, .user = &left};
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    assert_int_equal(by__remote_open(&r, &options, NULL), BY_OK);
    assert_int_equal(by__remote_find(&f, r, url_of(1), NULL), BY_OK);
    entry_path(path, ".blocks");
    int held = open(path, O_RDWR | O_CLOEXEC);
    assert_true(held >= 0 && fcntl(held, F_OFD_SETLK, &all) == 0);
    assert_int_equal(by__remote_read(f, SIZE / 2, &byte, 1, &error), BY_ESTOPPED);
    assert_string_equal(error.message, "stopped while another process fetched what this one needs");
    assert_int_equal(left, 0);
    (void)close(held);
    by__remote_close(&r);
}

/* Files are fetched ahead if they fit together; closing does not wait for them. */
static void test_ahead(void **state)
{
    by__remote *r;
    by__remote_file *f[3];
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    r = open_remote(0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(by__remote_find(&f[i], r, url_of(i), NULL), BY_OK);
    }
    assert_int_equal(by__remote_ahead(r, f, 3, NULL), BY_OK);
    check_ranges(f[2]);
    check_whole(f[0]);
    by__remote_close(&r);
    r = open_remote(4 << 20);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(by__remote_find(&f[i], r, url_of(i), NULL), BY_OK);
    }
    assert_int_equal(by__remote_ahead(r, f, 3, NULL), BY_OK);
    check_ranges(f[2]);
    by__remote_close(&r);
}

/* Files that do not fit together leave nothing behind: the next ones are fetched ahead. */
static void test_ahead_again(void **state)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    by__remote *r;
    by__remote_file *f[2];
    BY_UNUSED(state);
    clear_cache();
    set_fault(NONE);
    r = open_remote(4 << 20);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(by__remote_find(&f[i], r, url_of(i), NULL), BY_OK);
    }
    assert_int_equal(by__remote_ahead(r, f, 2, NULL), BY_OK);
    assert_int_equal(bytes_sent(), 2 * BY__REMOTE_BLOCK);
    assert_int_equal(by__remote_ahead(r, f, 1, NULL), BY_OK);
    while (bytes_sent() < SIZE + BY__REMOTE_BLOCK) {
        (void)nanosleep(&pause, NULL);
    }
    check_whole(f[0]);
    by__remote_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),   cmocka_unit_test(test_flaky),
        cmocka_unit_test(test_errors),   cmocka_unit_test(test_damage),
        cmocka_unit_test(test_untagged), cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_shared),   cmocka_unit_test(test_progress),
        cmocka_unit_test(test_stops),    cmocka_unit_test(test_held),
        cmocka_unit_test(test_ahead),    cmocka_unit_test(test_ahead_again),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
