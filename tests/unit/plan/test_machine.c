/* The measured machine: what is kept between processes, and what happens when it cannot be. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "temporary.h"

typedef struct fixture {
    char *directory;
    char *cache; /* the file that by_machine_store writes */
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->directory = temporary_make();
    setenv("XDG_CACHE_HOME", f->directory, 1);
    unsetenv("BANYAN_ISA");
    assert_int_equal(by_machine_cache_path(&f->cache, NULL), BY_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    temporary_remove(f->directory);
    free(f->cache);
    free(f);
    unsetenv("BANYAN_ISA");
    return 0;
}

/* This machine with figures that no measurement gives. */
static by_machine invented(double unit)
{
    by_machine m;
    assert_int_equal(by_machine_describe(&m, "cpu", 1, NULL), BY_OK);
    m.f32_gflops = 1.5 * unit;
    m.bf16_gflops = 2.25 * unit;
    m.int8_gops = 3.5 * unit;
    m.own_f32_gflops = 1.25 * unit;
    m.own_bf16_gflops = 2.125 * unit;
    m.read_gbps = 4.5 * unit;
    m.copy_gbps = 5.5 * unit;
    m.disk_write_gbps = 6.5 * unit;
    m.disk_read_gbps = 7.5 * unit;
    m.disk_direct = true;
    return m;
}

static void assert_same_figures(const by_machine *a, const by_machine *b)
{
    assert_true(a->f32_gflops == b->f32_gflops && a->bf16_gflops == b->bf16_gflops);
    assert_true(a->int8_gops == b->int8_gops);
    assert_true(a->own_f32_gflops == b->own_f32_gflops);
    assert_true(a->own_bf16_gflops == b->own_bf16_gflops);
    assert_true(a->read_gbps == b->read_gbps && a->copy_gbps == b->copy_gbps);
    assert_true(a->disk_write_gbps == b->disk_write_gbps);
    assert_true(a->disk_read_gbps == b->disk_read_gbps);
    assert_int_equal(a->disk_direct, b->disk_direct);
}

static void put(const fixture *f, const char *text)
{
    char *directory = by__strndup(f->cache, (size_t)(strrchr(f->cache, '/') - f->cache));
    assert_int_equal(by__make_dirs(directory, NULL), BY_OK);
    assert_int_equal(by__file_write(f->cache, text, strlen(text), NULL), BY_OK);
    free(directory);
}

static void test_round_trip(void **state)
{
    BY_UNUSED(state);
    by_machine stored = invented(1e6);
    by_machine loaded;
    assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_ALL, NULL), BY_OK);
    assert_string_equal(loaded.cpu, stored.cpu);
    assert_string_equal(loaded.isa, stored.isa);
    assert_int_equal(loaded.threads, 1);
    assert_same_figures(&loaded, &stored);
    double peak;
    assert_int_equal(by_machine_peak(&peak, BY_F32, "cpu", 1, NULL), BY_OK);
    assert_true(peak == stored.f32_gflops);
    assert_int_equal(by_machine_peak(&peak, BY_BF16, "auto", 1, NULL), BY_OK);
    assert_true(peak == stored.bf16_gflops);
}

/* An entry belongs to a CPU, a number of threads and a level; storing one keeps the others. */
static void test_entries(void **state)
{
    const fixture *f = *state;
    by_machine one = invented(1e6);
    by_machine three = invented(2e6);
    by_machine other = invented(3e6);
    by_machine slow = invented(4e6);
    three.threads = 3;
    (void)snprintf(other.cpu, sizeof other.cpu, "another CPU");
    (void)snprintf(slow.isa, sizeof slow.isa, "reference");
    assert_int_equal(by_machine_store(&one, NULL), BY_OK);
    assert_int_equal(by_machine_store(&three, NULL), BY_OK);
    assert_int_equal(by_machine_store(&other, NULL), BY_OK);
    assert_int_equal(by_machine_store(&slow, NULL), BY_OK);
    one.f32_gflops = 9e6;
    assert_int_equal(by_machine_store(&one, NULL), BY_OK);

    by_machine loaded;
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_ALL, NULL), BY_OK);
    assert_same_figures(&loaded, &one);
    assert_int_equal(by_machine_load(&loaded, "cpu", 3, BY_MACHINE_ALL, NULL), BY_OK);
    assert_same_figures(&loaded, &three);
    setenv("BANYAN_ISA", "reference", 1);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_ALL, NULL), BY_OK);
    assert_string_equal(loaded.isa, "reference");
    assert_same_figures(&loaded, &slow);
    by_machine found = other;
    found.f32_gflops = 0.0;
    by__plan_machine_recall(&found, f->cache);
    assert_same_figures(&found, &other);
}

/* Measures only what is asked for and missing, and keeps what was there. */
static void test_missing_figure(void **state)
{
    const fixture *f = *state;
    by_machine stored = invented(1e6);
    by_machine loaded;
    stored.read_gbps = 0.0;
    assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_F32, NULL), BY_OK);
    assert_true(loaded.read_gbps == 0.0);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_MEMORY | BY_MACHINE_F32, NULL),
                     BY_OK);
    assert_true(loaded.read_gbps > 0.0 && loaded.read_gbps < 1e5);
    assert_true(loaded.f32_gflops == stored.f32_gflops);
    by_machine kept = stored;
    by__plan_machine_recall(&kept, f->cache);
    assert_true(kept.read_gbps > 0.0 && kept.f32_gflops == stored.f32_gflops);
}

/* A figure that was measured on a busy machine is measured again when it is asked for, and the
 * larger value stays. */
static void test_busy_figures(void **state)
{
    const fixture *f = *state;
    by_machine stored = invented(1e6);
    by_machine loaded;
    stored.f32_gflops = stored.own_f32_gflops = 1e-3;
    stored.busy = BY_MACHINE_F32 | BY_MACHINE_MEMORY;
    assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_BF16, NULL), BY_OK);
    assert_same_figures(&loaded, &stored);
    assert_int_equal(loaded.busy, stored.busy);

    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_F32 | BY_MACHINE_MEMORY, NULL),
                     BY_OK);
    assert_true(loaded.own_f32_gflops > 1e-3 && loaded.f32_gflops >= loaded.own_f32_gflops);
    assert_true(loaded.f32_gflops < 1e5);
    assert_true(loaded.read_gbps == stored.read_gbps && loaded.copy_gbps == stored.copy_gbps);
    assert_true(loaded.bf16_gflops == stored.bf16_gflops);
    by_machine kept;
    assert_int_equal(by_machine_describe(&kept, "auto", 1, NULL), BY_OK);
    by__plan_machine_recall(&kept, f->cache);
    assert_true(fabs(kept.f32_gflops - loaded.f32_gflops) <= 1e-5 * loaded.f32_gflops);
    assert_int_equal(kept.busy, loaded.busy);
}

/* ... a limited number of times: a machine may always be busy. */
static void test_busy_for_ever(void **state)
{
    by_machine stored = invented(1e6);
    by_machine loaded;
    stored.f32_gflops = stored.own_f32_gflops = 1e-3;
    stored.busy = BY_MACHINE_F32;
    stored.retries = BY_MACHINE_RETRIES;
    assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_F32, NULL), BY_OK);
    assert_same_figures(&loaded, &stored);

    stored.retries = BY_MACHINE_RETRIES - 1;
    assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_F32, NULL), BY_OK);
    assert_true(loaded.own_f32_gflops > 1e-3);
    by_machine kept;
    assert_int_equal(by_machine_describe(&kept, "auto", 1, NULL), BY_OK);
    by__plan_machine_recall(&kept, ((const fixture *)*state)->cache);
    assert_int_equal(kept.retries, BY_MACHINE_RETRIES);
}

/* Two processes a core that compute as well: what is measured meanwhile is marked. */
static void test_busy_machine(void **state)
{
    BY_UNUSED(state);
    by_machine m;
    pid_t others[64];
    if (access("/proc/self/schedstat", R_OK) != 0) {
        skip(); /* a kernel without CONFIG_SCHED_INFO */
    }
    assert_int_equal(by_machine_describe(&m, "cpu", -1, NULL), BY_OK);
    size_t count = 2 * (size_t)m.cores < BY_ARRAY_LENGTH(others) ? 2 * (size_t)m.cores : 0;
    if (count == 0) {
        skip(); /* more cores than a test should take */
    }
    for (size_t i = 0; i < count; i++) {
        others[i] = fork();
        assert_true(others[i] >= 0);
        if (others[i] == 0) {
            (void)alarm(60); /* should the test itself be ended */
            for (volatile unsigned turn = 0;; turn++) {
            }
        }
    }
    by_status status = by_machine_measure(&m, BY_MACHINE_F32, NULL);
    for (size_t i = 0; i < count; i++) {
        (void)kill(others[i], SIGKILL);
        assert_int_equal(waitpid(others[i], NULL, 0), others[i]);
    }
    assert_int_equal(status, BY_OK);
    assert_int_equal(m.busy, BY_MACHINE_F32);
}

/* Whatever is in the file: nothing is taken from it, and the next store makes it whole. */
static void test_broken_cache(void **state)
{
    const fixture *f = *state;
    static const char *const broken[] = {
        "",
        "not json",
        "{\"version\": 2, \"machines\": [{\"cpu\":",
        "[1, 2]",
        "null",
        "{\"version\": 1, \"machines\": []}",
        "{\"version\": 2, \"machines\": {}}",
        "{\"version\": 2, \"machines\": [1, null, [], {\"cpu\": 7}]}",
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(broken); i++) {
        by_machine stored = invented(1e6);
        by_machine empty;
        by_machine loaded;
        assert_int_equal(by_machine_describe(&empty, "cpu", 1, NULL), BY_OK);
        put(f, broken[i]);
        by__plan_machine_recall(&empty, f->cache);
        assert_true(empty.f32_gflops == 0.0 && empty.read_gbps == 0.0);
        assert_int_equal(by_machine_store(&stored, NULL), BY_OK);
        assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_ALL, NULL), BY_OK);
        assert_same_figures(&loaded, &stored);
    }
}

static void test_broken_figures(void **state)
{
    const fixture *f = *state;
    by_machine m;
    by_string text = {0};
    assert_int_equal(by_machine_describe(&m, "cpu", 1, NULL), BY_OK);
    by__string_append(&text, "{\"version\": 2, \"machines\": [{\"cpu\": ");
    by_string_json(&text, m.cpu, strlen(m.cpu));
    by_string_format(
        &text,
        ", \"key\": \"%s\", \"isa\": \"%s\", \"threads\": 1, \"f32_gflops\": \"fast\", "
        "\"bf16_gflops\": -5, "
        "\"read_gbps\": 12.5, \"disk_direct\": 1}]}",
        m.key, m.isa);
    put(f, text.data);
    by_string_free(&text);
    by__plan_machine_recall(&m, f->cache);
    assert_true(m.f32_gflops == 0.0 && m.bf16_gflops == 0.0);
    assert_true(m.read_gbps == 12.5);
    assert_false(m.disk_direct);
}

/* A cache that cannot be written is an error of by_machine_store alone. */
static void test_no_cache(void **state)
{
    const fixture *f = *state;
    by_error error = {0};
    by_machine stored = invented(1e6);
    by_machine loaded;
    char *file = by__path_join(f->directory, "file");
    assert_int_equal(by__file_write(file, "x", 1, NULL), BY_OK);
    setenv("XDG_CACHE_HOME", file,
           1); /* a file where a directory should be: root cannot write it either */
    assert_int_equal(by_machine_store(&stored, &error), BY_EIO);
    assert_non_null(strstr(error.message, file));
    assert_int_equal(by_machine_load(&loaded, "cpu", 1, BY_MACHINE_MEMORY, &error), BY_OK);
    assert_true(loaded.read_gbps > 0.0 && loaded.copy_gbps > 0.0);
    free(file);
}

static void test_cache_path(void **state)
{
    BY_UNUSED(state);
    char *home = by__strdup(getenv("HOME") == NULL ? "" : getenv("HOME"));
    char *path = NULL;
    by_error error = {0};
    setenv("HOME", "/home/somebody", 1);
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_int_equal(by_machine_cache_path(&path, NULL), BY_OK);
    assert_string_equal(path, "/home/somebody/.cache/banyan/machine.json");
    free(path);
    setenv("HOME", "", 1);
    assert_int_equal(by_machine_cache_path(&path, &error), BY_EIO);
    assert_non_null(strstr(error.message, "XDG_CACHE_HOME"));
    setenv("HOME", home, 1);
    free(home);
}

static void test_describe(void **state)
{
    BY_UNUSED(state);
    by_machine m;
    by_error error = {0};
    size_t count;
    const char *const *levels = by_machine_levels(&count);
    assert_true(count >= 1);
    assert_string_equal(levels[0], "baseline");
    for (size_t i = 0; i < count; i++) {
        setenv("BANYAN_ISA", levels[i], 1);
        assert_int_equal(by_machine_describe(&m, "cpu", 5, NULL), BY_OK);
        assert_string_equal(m.isa, levels[i]);
    }
    assert_int_equal(m.threads, 5);
    assert_true(m.cores >= 1);
    assert_true(m.cpu[0] != '\0');
    setenv("BANYAN_ISA", "quantum", 1);
    assert_int_equal(by_machine_describe(&m, "cpu", 1, &error), BY_EARG);
    assert_non_null(strstr(error.message, "quantum"));
}

/* Machines of one name are told apart by what their cores are. */
static void test_identify(void **state)
{
    const fixture *f = *state;
    static const char zen[] = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n"
                              "model\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n"
                              "flags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel\t\t: 99\n";
    static const char *const others[][2] = {
        {"25\n", "26\n"}, {"17\n", "18\n"}, {": 1\n", ": 2\n"}, {"avx2", "avx3"}};
    by_machine first;
    by_machine other;
    char *path = by__path_join(f->directory, "cpuinfo");
    assert_int_equal(by__file_write(path, zen, strlen(zen), NULL), BY_OK);
    by__plan_machine_identify(&first, path);
    assert_string_equal(first.cpu, "AMD EPYC");
    assert_non_null(strstr(first.key, "family 25 model 17 stepping 1 flags "));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        char text[sizeof zen];
        memcpy(text, zen, sizeof zen);
        char *at = strstr(text, others[i][0]);
        assert_non_null(at);
        memcpy(at, others[i][1], strlen(others[i][1]));
        assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
        by__plan_machine_identify(&other, path);
        assert_string_equal(other.cpu, first.cpu);
        assert_string_not_equal(other.key, first.key);
    }
    static const char arm[] = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
                              "CPU part\t: 0xd4f\n";
    assert_int_equal(by__file_write(path, arm, strlen(arm), NULL), BY_OK);
    by__plan_machine_identify(&other, path);
    assert_string_equal(other.cpu, "implementer 0x41 part 0xd4f");
    by__plan_machine_identify(&other, "/nonexistent");
    assert_string_equal(other.cpu, "unknown");
    free(path);
}

static void test_roof(void **state)
{
    BY_UNUSED(state);
    by_machine m = {.f32_gflops = 10.0, .bf16_gflops = 40.0, .read_gbps = 5.0, .copy_gbps = 4.0};
    assert_true(by_machine_gflops(&m, BY_F32) == 10.0 && by_machine_gflops(&m, BY_BF16) == 40.0);
    assert_true(fabs(by_machine_roof(&m, BY_F32, 20e9, 1e9) - 2.0) < 1e-12);
    assert_true(fabs(by_machine_roof(&m, BY_BF16, 20e9, 1e9) - 0.5) < 1e-12);
    assert_true(fabs(by_machine_roof(&m, BY_BF16, 20e9, 10e9) - 2.0) < 1e-12);
}

static void test_disk(void **state)
{
    const fixture *f = *state;
    by_machine m = {0};
    by_error error = {0};
    char **names;
    size_t count;
    char *nowhere = by__path_join(f->directory, "nowhere");
    assert_int_equal(by_machine_measure_disk(&m, nowhere, &error), BY_EIO);
    assert_non_null(strstr(error.message, nowhere));
    assert_true(m.disk_write_gbps == 0.0 && m.disk_read_gbps == 0.0);
    assert_int_equal(by_machine_measure_disk(&m, f->directory, NULL), BY_OK);
    assert_true(m.disk_write_gbps > 0.0 && m.disk_read_gbps > 0.0);
    assert_int_equal(by__list_dir(&names, &count, f->directory, NULL), BY_OK);
    assert_int_equal(count, 0);
    by__names_free(names, count);
    free(nowhere);
}

/* A measured product peak is at least our own kernels', which are at least what one core could do
 * in 1985. */
static void test_measure(void **state)
{
    BY_UNUSED(state);
    by_machine m;
    by_error error = {0};
    double peak;
    assert_int_equal(by_machine_describe(&m, "cpu", 1, NULL), BY_OK);
    assert_int_equal(by_machine_measure(&m, BY_MACHINE_F32, NULL), BY_OK);
    assert_true(m.own_f32_gflops > 1e-3 && m.f32_gflops >= m.own_f32_gflops);
    assert_true(m.bf16_gflops == 0.0 && m.read_gbps == 0.0);
    assert_int_equal(by_machine_peak(&peak, BY_I32, "cpu", 1, &error), BY_EARG);
    assert_int_equal(by_machine_measure_peak(&peak, BY_U8, "cpu", 1, &error), BY_EARG);
}

/* A probe of any size reads all that it holds, which is never nothing. */
static void test_memory_probe(void **state)
{
    BY_UNUSED(state);
    static const size_t sizes[] = {1, 100000, (size_t)3 << 20};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sizes); i++) {
        by_memory_probe *probe = NULL;
        double gbps = 0.0;
        by_error error;
        assert_int_equal(by_memory_probe_open(&probe, sizes[i], 3, &error), BY_OK);
        assert_int_equal(by_memory_probe_read(probe, &gbps, &error), BY_OK);
        assert_true(gbps > 0.0);
        by_memory_probe_close(&probe);
        assert_null(probe);
        by_memory_probe_close(&probe);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),   TEST(test_entries),        TEST(test_missing_figure),
        TEST(test_busy_figures), TEST(test_busy_for_ever),  TEST(test_busy_machine),
        TEST(test_broken_cache), TEST(test_broken_figures), TEST(test_no_cache),
        TEST(test_cache_path),   TEST(test_describe),       TEST(test_roof),
        TEST(test_disk),         TEST(test_measure),        TEST(test_memory_probe),
        TEST(test_identify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
