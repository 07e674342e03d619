/* Damaged token data: what is found, that no sample has any of it, and that what stands in for it
 * is the same for every part of a batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "banyan/pack.h"
#include "base/base.h"
#include "temporary.h"

enum { TOKENS = 60000, SHARD = 20000, CONTEXT = 50, HEADER = 128, BLOCK = 4096 };

/* Text of lines "0000a 0001a ...", whose characters are the tokens, in three shards. */
static char *pack(const char *directory)
{
    by_error error = {0};
    char *path = by__path_join(directory, "text.txt");
    char *output = by__path_join(directory, "packed");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < TOKENS / 6; i++) {
        assert_true(fprintf(file, "%05d%c", i, i % 40 == 39 ? '\n' : ' ') == 6);
    }
    assert_int_equal(fclose(file), 0);
    const char *inputs[] = {path};
    const by_pack_options options = {.inputs = inputs,
                                     .input_count = 1,
                                     .output = output,
                                     .tokenizer_kind = "char",
                                     .shard_tokens = SHARD};
    if (by_pack(&options, NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(path);
    return output;
}

/* Writes bytes at a token of a shard. */
static void spoil(const char *packed, int shard, size_t token, const char *bytes, size_t n)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/tokens-%05d.npy", packed, shard);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(HEADER + 2 * token), SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static by_dataset *open_skipping(const char *packed)
{
    by_error error = {0};
    by_dataset *data = NULL;
    if (by_dataset_open(&data, packed, &(by_dataset_options){.skip = true}, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return data;
}

static void check_damage(const by_dataset *data, size_t index, uint64_t begin, uint64_t count,
                         const char *reason)
{
    size_t found;
    const by_damage *items = by_dataset_damage(data, &found);
    assert_true(index < found);
    assert_int_equal(items[index].begin, begin);
    assert_int_equal(items[index].count, count);
    if (strstr(items[index].reason, reason) == NULL) {
        fail_msg("reason: %s", items[index].reason);
    }
}

static size_t count_damage(const by_dataset *data)
{
    size_t count;
    (void)by_dataset_damage(data, &count);
    return count;
}

/* What the blocks' checksums locate; without them the shard is lost. */
static void test_finding(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *packed = pack(directory);
    char *blocks = by__path_join(packed, "blocks.npy");
    char *missing = by__path_join(packed, "tokens-00002.npy");
    by_error error = {0};
    by_dataset *data = open_skipping(packed);
    assert_int_equal(count_damage(data), 0);
    by_dataset_close(&data);
    spoil(packed, 0, 5000, "\x01\x00\x02\x00", 4);
    spoil(packed, 1, 19999, "\xff\xff", 2); /* the last block of a shard is shorter */
    assert_int_equal(by_dataset_open(&data, packed, &(by_dataset_options){.verify = true}, &error),
                     BY_EFORMAT);
    data = open_skipping(packed);
    assert_int_equal(count_damage(data), 2);
    check_damage(data, 0, BLOCK, BLOCK, "checksum is wrong");
    check_damage(data, 1, SHARD + 4 * BLOCK, SHARD - 4 * BLOCK, "not below the vocabulary");
    by_dataset_close(&data);
    assert_int_equal(unlink(blocks), 0);
    data = open_skipping(packed);
    assert_int_equal(count_damage(data), 2);
    check_damage(data, 0, 0, SHARD, "checksum is wrong");
    check_damage(data, 1, SHARD, SHARD, "checksum is wrong");
    by_dataset_close(&data);
    assert_int_equal(unlink(missing), 0);
    data = open_skipping(packed);
    assert_int_equal(count_damage(data), 3);
    check_damage(data, 2, 2 * SHARD, SHARD, "tokens-00002.npy");
    by_source *source;
    const by_token_options options = {.context = CONTEXT, .shuffle = true};
    assert_int_equal(by_token_source_open(&source, data, &options, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "all of its 60000 tokens are damaged"));
    by_dataset_close(&data);
    free(missing);
    free(blocks);
    free(packed);
    temporary_remove(directory);
}

/* A stamp has the damage as long as the files are the same; one that is no stamp is not believed.
 */
static void test_stamp(void **state)
{
    static const char *const lines[] = {"damaged 0 8320 4096 4096 its checksum is wrong",
                                        "damaged 0 8320 4096 0 its checksum is wrong\n",
                                        "damaged 0 8320 4096 40960 its checksum is wrong\n",
                                        "damaged 9 8320 4096 4096 its checksum is wrong\n",
                                        "damaged 0 8320 99999999999999999999 1 x\n",
                                        "damage\n",
                                        "damaged 0 0 4096 10 x\ndamaged 0 0 4000 10 x\n"};
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *packed = pack(directory);
    char *stamp = by__path_join(packed, ".verified");
    char *clean;
    size_t length;
    by_error error = {0};
    assert_int_equal(by_data_verify(packed, NULL, &error), BY_OK);
    assert_int_equal(by__file_read(&clean, &length, stamp, 1 << 20, &error), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        by_string text = {0};
        by__string_append(&text, clean);
        by__string_append(&text, lines[i]);
        assert_int_equal(by__file_write(stamp, text.data, text.length, &error), BY_OK);
        by_dataset *data = open_skipping(packed);
        assert_int_equal(count_damage(data), 0);
        by_dataset_close(&data);
        by_string_free(&text);
    }
    spoil(packed, 0, 5000, "\x01\x00\x02\x00", 4);
    assert_int_equal(by_data_verify(packed, NULL, &error), BY_EFORMAT);
    const by_data_verify_options skip = {.skip = true};
    assert_int_equal(by_data_verify(packed, &skip, &error), BY_OK);
    free(clean);
    assert_int_equal(by__file_read(&clean, &length, stamp, 1 << 20, &error), BY_OK);
    assert_non_null(strstr(clean, "damaged 0 8320 4096 4096 its checksum is wrong\n"));
    by_dataset *data = open_skipping(packed);
    check_damage(data, 0, BLOCK, BLOCK, "its checksum is wrong");
    by_dataset_close(&data);
    assert_int_equal(by_data_verify(packed, NULL, &error), BY_EFORMAT); /* still no clean one */
    free(clean);
    free(stamp);
    free(packed);
    temporary_remove(directory);
}

static by_loader *open_loader(const by_dataset *data, bool shuffle, bool documents,
                              by_token_packing packing, size_t first, size_t count)
{
    by_source *source;
    by_loader *loader = NULL;
    by_error error = {0};
    const by_token_options options = {
        .context = CONTEXT, .shuffle = shuffle, .documents = documents, .packing = packing};
    const by_loader_options part = {.batch = 8, .seed = 7, .first = first, .count = count};
    if (by_token_source_open(&source, data, &options, &error) != BY_OK ||
        by_loader_open(&loader, source, &part, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return loader;
}

static uint64_t targets_in(const by_batch *batch)
{
    const int32_t *targets = by_batch_array(batch, "targets")->data;
    uint64_t count = 0;
    for (size_t i = 0; i < batch->batch * CONTEXT; i++) {
        count += targets[i] >= 0;
    }
    return count;
}

/* One loader of whole batches and two of parts: the same rows, the same counts, no token of 9s,
 * which damage has written. */
static void check_training(const by_dataset *data, bool documents, by_token_packing packing)
{
    by_loader *all = open_loader(data, true, documents, packing, 0, 0);
    by_loader *parts[2] = {open_loader(data, true, documents, packing, 0, 5),
                           open_loader(data, true, documents, packing, 5, 3)};
    uint64_t damaged = 0;
    uint64_t samples = by_loader_epoch_samples(all);
    for (uint64_t at = 0; at < 2 * samples; at += 8) {
        by_batch whole;
        by_batch half[2];
        assert_int_equal(by_loader_next(all, &whole, NULL), BY_OK);
        const int32_t *tokens = by_batch_array(&whole, "tokens")->data;
        for (size_t i = 1; i < whole.batch * CONTEXT; i++) {
            assert_false(tokens[i] == 3 && tokens[i - 1] == 3 && i % CONTEXT >= 5 &&
                         tokens[i - 2] == 3 && tokens[i - 3] == 3 && tokens[i - 4] == 3 &&
                         tokens[i - 5] == 3);
        }
        assert_int_equal(targets_in(&whole), whole.valid_targets);
        assert_int_equal(whole.global_targets, whole.valid_targets);
        size_t row = 0;
        for (int k = 0; k < 2; k++) {
            assert_int_equal(by_loader_next(parts[k], &half[k], NULL), BY_OK);
            assert_int_equal(half[k].global_targets, whole.valid_targets);
            assert_int_equal(half[k].damaged, whole.damaged);
            assert_int_equal(half[k].first_damaged, whole.first_damaged);
            for (size_t i = 0; i < half[k].array_count; i++) {
                assert_memory_equal(half[k].arrays[i].data,
                                    (const int32_t *)whole.arrays[i].data + row * CONTEXT,
                                    half[k].batch * CONTEXT * sizeof(int32_t));
            }
            row += half[k].batch;
        }
        assert_true(whole.damaged == 0 ||
                    (whole.first_damaged >= at && whole.first_damaged < at + 8));
        damaged += whole.damaged;
    }
    assert_true(damaged > samples / 10 && damaged < samples);
    by_loader_close(&parts[1]);
    by_loader_close(&parts[0]);
    by_loader_close(&all);
}

static void test_samples(void **state)
{
    static const char nines[64] = {3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0,
                                   3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 0};
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *packed = pack(directory);
    spoil(packed, 0, 5000, nines, 40);
    spoil(packed, 2, 10, nines, 40);
    by_dataset *data = open_skipping(packed);
    assert_int_equal(count_damage(data), 2);
    check_training(data, false, BY_TOKENS_STREAM);
    check_training(data, true, BY_TOKENS_STREAM);
    check_training(data, true, BY_TOKENS_BEST_FIT);
    /* A pass replaces nothing: windows with damage have no targets. */
    by_loader *pass = open_loader(data, false, false, BY_TOKENS_STREAM, 0, 0);
    uint64_t targets = 0;
    uint64_t damaged = 0;
    for (;;) {
        by_batch batch;
        assert_int_equal(by_loader_next(pass, &batch, NULL), BY_OK);
        if (batch.batch == 0) {
            break;
        }
        assert_int_equal(targets_in(&batch), batch.valid_targets);
        targets += batch.valid_targets;
        damaged += batch.damaged;
    }
    uint64_t windows = BLOCK / CONTEXT + 2; /* that a block touches, at most */
    assert_true(damaged >= 2 * (windows - 1) && damaged <= 2 * windows);
    assert_int_equal(targets + damaged * CONTEXT, TOKENS - 1);
    by_loader_close(&pass);
    by_dataset_close(&data);
    free(packed);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finding),
        cmocka_unit_test(test_stamp),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
