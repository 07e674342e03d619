/* Events: what is written reads back, also after a crash and a resume; and the environment's JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "temporary.h"
#include "track/track.h"

static char *in(const char *directory, const char *name)
{
    char *path = by__path_join(directory, name);
    assert_non_null(path);
    return path;
}

static void read_all(char **text, const char *path, size_t *length)
{
    assert_int_equal(by__file_read(text, length, path, 1 << 20, NULL), BY_OK);
}

static double loss_of(uint64_t step)
{
    return step % 7 == 3 ? (double)NAN : step % 7 == 5 ? -INFINITY : 1.0 / (double)step;
}

/* Events of steps first..last, an evaluation at every third. */
static void log_steps(const char *path, uint64_t first, uint64_t last)
{
    by_events *events;
    assert_int_equal(by_events_open(&events, path, NULL), BY_OK);
    for (uint64_t step = first; step <= last; step++) {
        by_events_begin(events, "train", step);
        by_events_number(events, "loss", loss_of(step));
        by_events_integer(events, "tokens", (int64_t)step * 768);
        assert_int_equal(by_events_end(events, NULL), BY_OK);
        if (step % 3 == 0) {
            by_events_begin(events, "eval", step);
            by_events_number(events, "loss", -loss_of(step));
            by_events_string(events, "note", "a \"quote\"\n\xff");
            assert_int_equal(by_events_end(events, NULL), BY_OK);
        }
    }
    by_events_close(&events);
    assert_null(events);
}

static void numbers_read_back(void **state)
{
    (void)state;
    static const double values[] = {0.1, 1.0 / 3, -0.0,     1e-300,    DBL_MAX,      DBL_TRUE_MIN,
                                    3,   1e22,    INFINITY, -INFINITY, 123456789.125};
    char *directory = temporary_make();
    char *path = in(directory, "events.jsonl");
    by_events *events;
    by_series series;
    assert_int_equal(by_events_open(&events, path, NULL), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
        by_events_begin(events, "train", i);
        by_events_number(events, "x", values[i]);
        assert_int_equal(by_events_end(events, NULL), BY_OK);
    }
    by_events_close(&events);
    assert_int_equal(by_events_read(&series, directory, "train", "x", NULL), BY_OK);
    assert_int_equal(series.count, BY_ARRAY_LENGTH(values));
    for (size_t i = 0; i < series.count; i++) {
        assert_int_equal(series.steps[i], i);
        assert_memory_equal(&series.values[i], &values[i], sizeof values[i]);
    }
    by_series_free(&series);
    free(path);
    temporary_remove(directory);
}

static void series_by_event_and_key(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = in(directory, "events.jsonl");
    by_series series;
    log_steps(path, 1, 9);
    assert_int_equal(by_events_read(&series, path, "train", "loss", NULL), BY_OK);
    assert_int_equal(series.count, 9);
    assert_true(isnan(series.values[2]) && series.steps[2] == 3);
    assert_true(series.values[1] == 0.5);
    by_series_free(&series);
    assert_int_equal(by_events_read(&series, path, "eval", "loss", NULL), BY_OK);
    assert_int_equal(series.count, 3);
    assert_true(series.steps[1] == 6 && series.values[1] == -1.0 / 6);
    by_series_free(&series);
    assert_int_equal(by_events_read(&series, path, NULL, "loss", NULL), BY_OK);
    assert_int_equal(series.count, 12);
    by_series_free(&series);
    assert_int_equal(by_events_read(&series, path, "eval", "note", NULL), BY_OK);
    assert_int_equal(series.count, 0); /* a text is not a number */
    by_series_free(&series);
    free(path);
    temporary_remove(directory);
}

/* The file without its wall-clock field. */
static char *without_time(const char *path)
{
    size_t length;
    char *text = NULL;
    read_all(&text, path, &length);
    by_string kept = {0};
    char *out;
    for (const char *p = text; *p != '\0';) {
        const char *time = strstr(p, ",\"time\":");
        if (time == NULL) {
            by__string_append(&kept, p);
            break;
        }
        by_string_add(&kept, p, (size_t)(time - p));
        p = strchr(time, '}');
    }
    free(text);
    assert_int_equal(by__string_release(&kept, &out, NULL), BY_OK);
    return out;
}

static void a_resumed_file_equals_an_uninterrupted_one(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *whole = in(directory, "whole.jsonl");
    char *resumed = in(directory, "resumed.jsonl");
    size_t length;
    assert_int_equal(by_events_rewind(resumed, 5, false, NULL), BY_OK); /* not there yet */
    log_steps(whole, 1, 20);
    log_steps(resumed, 1, 13);
    char *content = NULL;
    read_all(&content, resumed, &length);
    free(content);
    assert_int_equal(truncate(resumed, (off_t)length - 9), 0); /* killed in the middle of a line */
    assert_int_equal(by_events_rewind(resumed, 9, false, NULL), BY_OK);
    log_steps(resumed, 10, 20);
    char *a = without_time(whole);
    char *b = without_time(resumed);
    assert_string_equal(a, b);
    free(a);
    free(b);
    free(whole);
    free(resumed);
    temporary_remove(directory);
}

static void a_torn_line_is_dropped_at_open(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = in(directory, "events.jsonl");
    char *torn;
    char *expected;
    size_t length;
    by_series series;
    log_steps(path, 1, 2);
    char *text = NULL;
    read_all(&text, path, &length);
    size_t line = (size_t)(strchr(text, '\n') + 1 - text);
    /* Longer than one block of the backwards search, and cut at each place of a short line. */
    by_string longer = {0};
    by_string_add(&longer, text, line);
    for (int i = 0; i < 1000; i++) {
        by__string_append(&longer, "{\"event\":");
    }
    assert_int_equal(by__file_write(path, longer.data, longer.length, NULL), BY_OK);
    by_string_free(&longer);
    log_steps(path, 2, 2);
    expected = without_time(path);
    for (size_t cut = line; cut < length; cut++) {
        assert_int_equal(by__file_write(path, text, cut, NULL), BY_OK);
        assert_int_equal(by_events_read(&series, path, "train", "loss", NULL), BY_OK);
        assert_int_equal(series.count, 1);
        by_series_free(&series);
        log_steps(path, 2, 2);
        torn = without_time(path);
        assert_string_equal(torn, expected);
        free(torn);
    }
    /* Nothing but a torn line. */
    assert_int_equal(by__file_write(path, "{\"ev", 4, NULL), BY_OK);
    log_steps(path, 1, 2);
    torn = without_time(path);
    assert_string_equal(torn, expected);
    free(torn);
    free(expected);
    free(text);
    free(path);
    temporary_remove(directory);
}

static void a_broken_line_is_named(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "", "x", "[]", "{}", "{\"step\":-1}", "{\"step\":\"1\"}", "{\"step\":1"};
    char *directory = temporary_make();
    char *path = in(directory, "events.jsonl");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        by_string text = {0};
        by_series series;
        by_error error = {0};
        by_string_format(&text, "{\"event\":\"a\",\"step\":1}\n%s\n{\"event\":\"a\",\"step\":2}\n",
                         lines[i]);
        assert_int_equal(by__file_write(path, text.data, text.length, NULL), BY_OK);
        assert_int_equal(by_events_read(&series, path, NULL, "x", &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, "events.jsonl:2:"));
        assert_int_equal(by_events_rewind(path, 1, false, &error), BY_EFORMAT);
        char *unchanged = NULL;
        read_all(&unchanged, path, &text.capacity);
        assert_string_equal(unchanged, text.data);
        free(unchanged);
        by_string_free(&text);
    }
    free(path);
    temporary_remove(directory);
}

static void a_full_disk_leaves_no_part_of_a_line(void **state)
{
    (void)state;
    char *directory = temporary_make();
    char *path = in(directory, "events.jsonl");
    by_events *events;
    by_error error = {0};
    size_t length;
    struct rlimit old;
    log_steps(path, 1, 1);
    char *before = NULL;
    read_all(&before, path, &length);
    assert_int_equal(by_events_open(&events, path, NULL), BY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit small = old;
    small.rlim_cur = length + 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    by_events_begin(events, "train", 2);
    by_events_number(events, "loss", 1);
    by_status status = by_events_end(events, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, BY_EIO);
    assert_non_null(strstr(error.message, path));
    char *after = NULL;
    read_all(&after, path, &length);
    assert_string_equal(before, after);
    /* It was kept, and goes in front of the next one. */
    by_series series;
    by_events_begin(events, "train", 3);
    by_events_number(events, "loss", 2);
    assert_int_equal(by_events_end(events, &error), BY_OK);
    assert_int_equal(by_events_flush(events, &error), BY_OK);
    by_events_close(&events);
    assert_int_equal(by_events_read(&series, path, "train", "loss", &error), BY_OK);
    assert_int_equal(series.count, 3);
    assert_true(series.steps[1] == 2 && series.values[1] == 1.0);
    assert_true(series.steps[2] == 3 && series.values[2] == 2.0);
    by_series_free(&series);
    free(before);
    free(after);
    free(path);
    temporary_remove(directory);
}

static void the_environment_is_json(void **state)
{
    (void)state;
    const by_environment_fact libraries[] = {{"oneDNN", "2.6.3"}, {"a\"b", "1"}};
    const by_environment_fact job[] = {{"ranks", "2"}, {"mesh", "data 2"}};
    char *text;
    assert_int_equal(by_environment_json(&text, libraries, 2, job, 2, NULL), BY_OK);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "banyan")), BY_VERSION);
    assert_true(json_integer_value(json_object_get(root, "cores")) >= 1);
    assert_true(json_integer_value(json_object_get(root, "usable_cores")) >= 1);
    assert_true(json_integer_value(json_object_get(root, "memory_bytes")) > 1 << 20);
    assert_true(json_is_array(json_object_get(root, "isa")));
    assert_non_null(strstr(json_string_value(json_object_get(root, "kernel")), "Linux"));
    assert_non_null(strstr(json_string_value(json_object_get(root, "compiler")), "."));
    const json_t *found = json_object_get(root, "libraries");
    assert_string_equal(json_string_value(json_object_get(found, "oneDNN")), "2.6.3");
    assert_string_equal(json_string_value(json_object_get(found, "a\"b")), "1");
    assert_string_equal(json_string_value(json_object_get(found, "jansson")),
                        jansson_version_str());
    found = json_object_get(root, "job");
    assert_string_equal(json_string_value(json_object_get(found, "mesh")), "data 2");
    assert_int_equal(strlen(json_string_value(json_object_get(root, "build"))), 32);
    assert_true(json_is_string(json_object_get(root, "revision")));
    json_decref(root);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(series_by_event_and_key),
        cmocka_unit_test(a_resumed_file_equals_an_uninterrupted_one),
        cmocka_unit_test(a_torn_line_is_dropped_at_open),
        cmocka_unit_test(a_broken_line_is_named),
        cmocka_unit_test(a_full_disk_leaves_no_part_of_a_line),
        cmocka_unit_test(the_environment_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
