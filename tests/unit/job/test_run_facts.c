/* What is read of run directories: events as they are written, tags, and all facts of a run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/runs.h"
#include "banyan/track.h"
#include "temporary.h"

typedef struct heard {
    size_t count;
    uint64_t last_step;
    double sum;
} heard;

static void hear(void *user, const char *event, uint64_t step, const char *key, double value)
{
    heard *h = user;
    assert_true(strcmp(event, "train") == 0 || strcmp(event, "eval") == 0);
    if (strcmp(key, "time") != 0) {
        h->count++;
        h->last_step = step;
        h->sum += isfinite(value) ? value : 0.0;
    }
}

static void put(const char *folder, const char *name, const char *text)
{
    char *path = by__path_join(folder, name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
    free(path);
}

static const char lines[] =
    "{\"event\":\"train\",\"step\":1,\"loss\":3.5,\"lr\":0.25,\"time\":1.0}\n"
    "{\"event\":\"eval\",\"step\":1,\"valid_loss\":\"nan\",\"note\":\"text\",\"time\":2.0}\n";
static const char more[] =
    "{\"event\":\"train\",\"step\":1,\"loss\":3.5,\"lr\":0.25,\"time\":1.0}\n"
    "{\"event\":\"eval\",\"step\":1,\"valid_loss\":\"nan\",\"note\":\"text\",\"time\":2.0}\n"
    "{\"event\":\"train\",\"step\":2,\"loss\":2.5,\"time\":3.0}\n"
    "{\"event\":\"train\",\"st";

/* Each event is handed out once, a line that is being written when it is whole, and a file that
 * became shorter from its beginning. */
static void test_follow(void **state)
{
    char *folder = temporary_make();
    uint64_t offset = 0;
    bool restarted = true;
    heard h = {0};
    by_error error = {0};
    BY_UNUSED(state);
    assert_int_equal(by_events_follow(folder, &offset, &restarted, hear, &h, &error), BY_OK);
    assert_false(restarted);
    assert_int_equal(h.count, 0);
    put(folder, "events.jsonl", lines);
    assert_int_equal(by_events_follow(folder, &offset, &restarted, hear, &h, &error), BY_OK);
    assert_int_equal(h.count, 3); /* the text is not a number */
    assert_true(h.sum == 3.75);
    assert_int_equal(offset, strlen(lines));
    put(folder, "events.jsonl", more);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(by_events_follow(folder, &offset, NULL, hear, &h, &error), BY_OK);
        assert_int_equal(h.count, 4);
        assert_int_equal(h.last_step, 2);
    }
    put(folder, "events.jsonl", lines);
    assert_int_equal(by_events_follow(folder, &offset, &restarted, hear, &h, &error), BY_OK);
    assert_true(restarted);
    assert_int_equal(offset, 0);
    assert_int_equal(h.count, 4);
    uint64_t inside = 5; /* of a line: the file was written anew, and is longer by now */
    assert_int_equal(by_events_follow(folder, &inside, &restarted, hear, &h, &error), BY_OK);
    assert_true(restarted);
    assert_int_equal(inside, 0);
    assert_int_equal(h.count, 4);
    put(folder, "events.jsonl", "{\"event\":\"train\",\"step\":1,\"loss\":1}\nno event\n");
    assert_int_equal(by_events_follow(folder, &offset, NULL, hear, &h, &error), BY_EFORMAT);
    assert_int_equal(h.count, 5);
    temporary_remove(folder);
}

static void test_tags(void **state)
{
    char *folder = temporary_make();
    by_tag_list tags;
    by_error error = {0};
    BY_UNUSED(state);
    assert_int_equal(by_tags_read(&tags, folder, &error), BY_OK);
    assert_int_equal(tags.count, 0);
    by_tag_list_free(&tags);
    assert_int_equal(by_tags_set(folder, "b", "two = 2", &error), BY_OK);
    assert_int_equal(by_tags_set(folder, "a", "one", &error), BY_OK);
    assert_int_equal(by_tags_set(folder, "c", "three", &error), BY_OK);
    assert_int_equal(by_tags_set(folder, "c", NULL, &error), BY_OK);
    assert_int_equal(by_tags_set(folder, "absent", NULL, &error), BY_OK);
    assert_int_equal(by_tags_read(&tags, folder, &error), BY_OK);
    assert_int_equal(tags.count, 2);
    assert_string_equal(tags.items[0].key, "a");
    assert_string_equal(tags.items[1].value, "two = 2");
    by_tag_list_free(&tags);
    assert_int_equal(by_tags_set(folder, "", "x", &error), BY_EARG);
    assert_int_equal(by_tags_set(folder, "x", "\xff", &error), BY_EARG);
    put(folder, "tags.json", "{\"a\": 1}");
    assert_int_equal(by_tags_read(&tags, folder, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "tags.json: expected an object of strings"));
    temporary_remove(folder);
}

static void expect(const by_run_facts *facts, const char *key, const char *value, bool is_number)
{
    const by_fact *fact = by_run_facts_find(facts, key);
    if (fact == NULL) {
        fail_msg("there is no %s", key);
    }
    assert_string_equal(fact->value, value);
    assert_int_equal(fact->is_number, is_number);
}

static void test_facts(void **state)
{
    char *folder = temporary_make();
    by_run_facts facts;
    by_error error = {0};
    BY_UNUSED(state);
    assert_int_equal(by_run_facts_read(&facts, folder, &error), BY_EIO);
    put(folder, "run.json",
        "{\"name\": \"one\", \"config_hash\": \"abc\", \"started\": \"s\", \"updated\": \"u\", "
        "\"status\": \"running\", \"step\": 2, \"steps\": 9, \"best_loss\": null}");
    put(folder, "events.jsonl", more);
    put(folder, "config.yaml", "name: one\nmodel:\n  layers: 7\n");
    put(folder, "environment.json",
        "{\"cpu\": \"x\", \"isa\": [\"avx\", \"fma\"], \"cores\": 2, \"libraries\": {\"l\": "
        "\"1\"}, "
        "\"parity\": true}");
    assert_int_equal(by_tags_set(folder, "kind", "base", NULL), BY_OK);
    if (by_run_facts_read(&facts, folder, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    expect(&facts, "run.name", "one", false);
    expect(&facts, "run.status", "killed", false); /* nobody holds its lock */
    expect(&facts, "run.step", "2", true);
    assert_null(by_run_facts_find(&facts, "run.best_loss"));
    expect(&facts, "last.train.loss", "2.5", true);
    expect(&facts, "last.train.lr", "0.25", true);
    assert_false(by_run_facts_find(&facts, "last.eval.valid_loss")->is_number);
    expect(&facts, "tag.kind", "base", false);
    expect(&facts, "config.name", "one", false);
    expect(&facts, "config.model.layers", "7", true);
    expect(&facts, "config.optimizer.kind", "adamw", false);
    expect(&facts, "environment.isa", "avx fma", false);
    expect(&facts, "environment.cores", "2", true);
    expect(&facts, "environment.libraries.l", "1", false);
    expect(&facts, "environment.parity", "true", false);
    by_run_facts_free(&facts);
    put(folder, "environment.json", "[");
    assert_int_equal(by_run_facts_read(&facts, folder, &error), BY_EFORMAT);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
