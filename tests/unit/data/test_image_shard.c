/* Shards of pictures: which samples tar archives, TFRecords and MDS have, and damage in them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/image/image_shard.h"
#include "formats/shards/shard_file.h"
#include "temporary.h"

enum { LIMIT = 1 << 16 };

/* A file that is put together. */
typedef struct bytes {
    uint8_t data[LIMIT];
    size_t size;
} bytes;

static bytes file;
static char path[512];

static void put(const void *data, size_t size)
{
    assert_true(file.size + size <= LIMIT);
    memcpy(file.data + file.size, data, size);
    file.size += size;
}

static void put_number(uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)(value >> (8 * i));
        put(&byte, 1);
    }
}

static void write_file(const char *name)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, sizeof path, "%s/%d-%s", folder == NULL ? "/tmp" : folder, (int)getpid(),
                   name);
    assert_int_equal(by__file_write(path, file.data, file.size, NULL), BY_OK);
}

/* Lists the file under this name; the message of the error, or "". */
static const char *list(by__image_folder *out, const char *name)
{
    static by_error error;
    error = (by_error){0};
    *out = (by__image_folder){0};
    write_file(name);
    assert_true(by__image_is_shard(path));
    by_status status = by__image_shard_add(out, path, true, &error);
    assert_int_equal(unlink(path), 0);
    assert_true(status == BY_OK || status == BY_EFORMAT);
    return status == BY_OK ? "" : error.message;
}

static void check(const by__image_folder *f, size_t i, const char *picture, int label)
{
    assert_true(i < f->count);
    assert_null(f->files[i].range.problem);
    assert_int_equal(f->files[i].range.size, strlen(picture));
    assert_memory_equal(file.data + f->files[i].range.begin, picture, strlen(picture));
    assert_int_equal(f->files[i].label, label);
}

/* ---- tar ---- */

static void put_header(const char *name, const char *prefix, char type, size_t size)
{
    char header[512] = {0};
    unsigned sum = 0;
    memcpy(header, name, strlen(name) < 100 ? strlen(name) : 100);
    (void)snprintf(header + 124, 12, "%011o", (unsigned)size);
    memset(header + 148, ' ', 8);
    header[156] = type;
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    memcpy(header + 345, prefix, strlen(prefix));
    for (size_t i = 0; i < sizeof header; i++) {
        sum += (uint8_t)header[i];
    }
    (void)snprintf(header + 148, 8, "%06o", sum);
    put(header, sizeof header);
}

static void put_member(const char *name, const char *prefix, char type, const char *text)
{
    static const uint8_t zeros[512];
    put_header(name, prefix, type, strlen(text));
    put(text, strlen(text));
    put(zeros, (512 - strlen(text) % 512) % 512);
}

static void make_tar(void)
{
    static const uint8_t zeros[1024];
    char name[200];
    char record[300];
    file.size = 0;
    put_member("d/", "", '5', "");
    put_member("__meta.json", "", '0', "{}");
    put_member("d/a.1.JPG", "", '0', "first"); /* field 1.jpg: no picture */
    put_member("d/b.cls", "", '0', " 7\n");
    put_member("d/b.jpg", "", '0', "second");
    put_member("c.png", "deep/er", '0', "third");
    put_member("c.json", "deep/er", '0', "{\"label\": 3, \"other\": [1]}");
    memset(name, 'n', sizeof name);
    (void)snprintf(name + 150, 20, ".jpeg");
    put_member("././@LongLink", "", 'L', name);
    put_member("nnn", "", '0', "fourth");
    (void)snprintf(name + 150, 20, ".cls");
    (void)snprintf(record, sizeof record, "168 path=%s\n", name);
    assert_int_equal(strlen(record), 164);
    (void)snprintf(record, sizeof record, "164 path=%s\n", name);
    put_member("pax", "", 'x', record);
    put_member("nnn", "", '0', "11");
    put(zeros, sizeof zeros);
}

static void test_tar(void **state)
{
    by__image_folder f;
    BY_UNUSED(state);
    make_tar();
    assert_string_equal(list(&f, "x.tar"), "");
    assert_int_equal(f.count, 4);
    assert_non_null(strstr(f.files[0].range.problem, "the sample has no picture"));
    assert_string_equal(f.files[0].range.sample, "d/a");
    assert_string_equal(f.files[2].range.sample, "deep/er/c");
    check(&f, 1, "second", 7);
    check(&f, 2, "third", 3);
    check(&f, 3, "fourth", 11);
    by__image_folder_free(&f);
    /* Every archive that is cut off is refused: nothing of it is lost without a word. */
    size_t whole = file.size;
    for (file.size = 512; file.size <= whole - 1024; file.size += 100) {
        assert_true(list(&f, "x.tar")[0] != '\0');
        by__image_folder_free(&f);
    }
    /* A hole in the middle is no end. */
    file.size = whole;
    char kept[512];
    memcpy(kept, file.data + 512 * 5, sizeof kept);
    memset(file.data + 512 * 5, 0, sizeof kept);
    assert_non_null(strstr(list(&f, "x.tar"), "goes on behind it"));
    by__image_folder_free(&f);
    memcpy(file.data + 512 * 5, kept, sizeof kept);
    file.data[512 * 5 + 3] ^= 1;
    assert_non_null(strstr(list(&f, "x.tar"), "the checksum of a header is wrong"));
    by__image_folder_free(&f);
}

static void test_labels(void **state)
{
    static const uint8_t zeros[1024];
    by__image_folder f;
    BY_UNUSED(state);
    file.size = 0;
    put_member("a.jpg", "", '0', "picture");
    put(zeros, sizeof zeros);
    assert_string_equal(list(&f, "x.tar"), "");
    assert_int_equal(f.files[0].label, -1);
    assert_non_null(
        strstr(f.files[0].range.problem, "it has no label: that is a file cls or json"));
    assert_non_null(strstr(f.files[0].range.problem, "follow each other"));
    by__image_folder_free(&f);
    file.size = 0;
    put_member("a.jpg", "", '0', "picture");
    put_member("a.cls", "", '0', "cat\n");
    put(zeros, sizeof zeros);
    assert_non_null(strstr(list(&f, "x.tar"), "set data.label_names"));
    by__image_folder_free(&f);
    char *names[] = {(char[]){"dog"}, (char[]){"cat"}};
    write_file("x.tar");
    f = (by__image_folder){0};
    assert_int_equal(by__image_folder_fix(&f, names, 2, NULL), BY_OK);
    assert_int_equal(by__image_shard_add(&f, path, true, NULL), BY_OK);
    check(&f, 0, "picture", 1);
    by__image_folder_free(&f);
    assert_int_equal(unlink(path), 0);
}

/* A shard numbers its labels as the names in it say, not as those of the model are numbered. */
static void test_names(void **state)
{
    static const uint8_t zeros[1024];
    static const struct {
        const char *names;
        int label; /* of 0 in the shard; -1: refused */
    } cases[] = {{"{\"names\": [\"a\", \"b\", \"c\"]}", 0},
                 {"{\"names\": [\"c\", \"b\"]}", 2},
                 {"{\"names\": [\"one\", \"two\"]}", 0},
                 {"{\"names\": [\"c\", \"two\"]}", -1}};
    char *names[] = {(char[]){"a"}, (char[]){"b"}, (char[]){"c"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__image_folder f = {0};
        by_error error = {0};
        file.size = 0;
        put_member("__classes.json", "", '0', cases[i].names);
        put_member("a.jpg", "", '0', "picture");
        put_member("a.cls", "", '0', "0");
        put(zeros, sizeof zeros);
        write_file("x.tar");
        assert_int_equal(by__image_folder_fix(&f, names, 3, NULL), BY_OK);
        by_status status = by__image_shard_add(&f, path, true, &error);
        assert_int_equal(status, cases[i].label < 0 ? BY_EFORMAT : BY_OK);
        if (cases[i].label < 0) {
            assert_non_null(strstr(error.message, "the class 'two'"));
        } else {
            check(&f, 0, "picture", cases[i].label);
        }
        by__image_folder_free(&f);
        assert_int_equal(unlink(path), 0);
    }
}

/* Lists a tar archive of these members, name and content; an empty name ends them. `type`: of the
 * first. */
static by__image_folder list_members(const char *const *members, char type)
{
    static const uint8_t zeros[1024];
    by__image_folder f;
    file.size = 0;
    for (size_t i = 0; members[i] != NULL; i += 2) {
        put_member(members[i], "", i == 0 ? type : '0', members[i + 1]);
    }
    put(zeros, sizeof zeros);
    assert_string_equal(list(&f, "x.tar"), "");
    assert_int_equal(f.count, 1);
    assert_string_equal(f.files[0].range.sample, "a");
    return f;
}

static void check_problem(const char *const *members, char type, const char *problem)
{
    by__image_folder f = list_members(members, type);
    assert_non_null(f.files[0].range.problem);
    if (strstr(f.files[0].range.problem, problem) == NULL) {
        fail_msg("'%s' is not '%s'", f.files[0].range.problem, problem);
    }
    by__image_folder_free(&f);
}

/* What could be meant in two ways is a problem of the sample that names both. */
static void test_ambiguous(void **state)
{
    static const char *const two[] = {"a.jpg", "x", "a.png", "y", "a.cls", "1", NULL};
    static const char *const twice[] = {"a.jpg", "x", "a.JPG", "y", "a.cls", "1", NULL};
    static const char *const differ[] = {"a.jpg",          "x", "a.cls", "1", "a.json",
                                         "{\"label\": 2}", NULL};
    static const char *const reversed[] = {"a.json", "{\"label\": 2}", "a.jpg", "x", "a.cls", "1",
                                           NULL};
    static const char *const inside[] = {"a.jpg", "x", "a.json", "{\"label\": 2, \"cls\": 3}",
                                         NULL};
    static const char *const agree[] = {"a.jpg",          "x", "a.cls", "2", "a.json",
                                        "{\"label\": 2}", NULL};
    static const char *const other[] = {"a.png", "x", "a.cls", "2", "a.json", "{\"id\": 7}", NULL};
    static const char *const empty[] = {"a.png", "", "a.cls", "2", NULL};
    static const char *const jpg[] = {"a.jpg", "", "a.cls", "1", NULL};
    BY_UNUSED(state);
    check_problem(two, '0', "it has two pictures, jpg and png");
    check_problem(twice, '0', "it has two pictures, jpg and jpg");
    check_problem(differ, '0', "its labels contradict each other: 1 in cls and 2 in json (label)");
    check_problem(reversed, '0', "2 in json (label) and 1 in cls");
    check_problem(inside, '0', "2 in json (label) and 3 in json (cls)");
    check_problem(empty, '0', "its picture, png, is empty");
    check_problem(jpg, '1', "its jpg is a link: store the files themselves");
    check_problem(jpg, '2', "its jpg is a link");
    check_problem(jpg, 'S', "its jpg is stored sparsely");
    for (int i = 0; i < 2; i++) {
        by__image_folder f = list_members(i == 0 ? agree : other, '0');
        check(&f, 0, "x", 2);
        by__image_folder_free(&f);
    }
}

/* The label of a JSON object may be the name of a class. */
static void test_named_in_json(void **state)
{
    static const uint8_t zeros[1024];
    char *names[] = {(char[]){"dog"}, (char[]){"cat"}};
    by__image_folder f = {0};
    BY_UNUSED(state);
    file.size = 0;
    put_member("a.jpg", "", '0', "picture");
    put_member("a.json", "", '0', "{\"label\": \"cat\"}");
    put(zeros, sizeof zeros);
    write_file("x.tar");
    assert_int_equal(by__image_folder_fix(&f, names, 2, NULL), BY_OK);
    assert_int_equal(by__image_shard_add(&f, path, true, NULL), BY_OK);
    check(&f, 0, "picture", 1);
    by__image_folder_free(&f);
    assert_int_equal(unlink(path), 0);
}

/* Also one whose name says so, and one that only begins so. */
static void test_compressed(void **state)
{
    static const uint8_t gzip[32] = {0x1f, 0x8b, 8};
    static const char *const names[] = {"x.tar.gz", "x.tgz", "x.tar",
                                        "x.tfrecord-00000-of-00001.gz"};
    by__image_folder f;
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        file.size = 0;
        put(gzip, sizeof gzip);
        assert_non_null(strstr(list(&f, names[i]), "is compressed"));
        by__image_folder_free(&f);
    }
}

/* A folder stands for its shards, in the order of their names; files other than
 * pictures are ignored. */
static void test_folder(void **state)
{
    static const uint8_t zeros[1024];
    static const char *const names[] = {"b.tar", "a.tar", "index.json"};
    const char *tmp = getenv("TMPDIR");
    char folder[256];
    by__image_folder f = {0};
    BY_UNUSED(state);
    (void)snprintf(folder, sizeof folder, "%s/shards-%d", tmp == NULL ? "/tmp" : tmp,
                   (int)getpid());
    assert_int_equal(by__make_dirs(folder, NULL), BY_OK);
    assert_false(by__image_is_shard(folder));
    for (size_t i = 0; i < 3; i++) {
        const char label[2] = {(char)('0' + i), '\0'};
        file.size = 0;
        put_member("x.jpg", "", '0', "picture");
        put_member("x.cls", "", '0', label);
        put(zeros, sizeof zeros);
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(by__file_write(path, file.data, file.size, NULL), BY_OK);
    }
    assert_true(by__image_is_shard(folder));
    assert_int_equal(by__image_shard_add(&f, folder, true, NULL), BY_OK);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.ignored, 1);
    assert_int_equal(f.files[0].label, 1);
    assert_int_equal(f.files[1].label, 0);
    by__image_folder_free(&f);
    /* A picture beside them is not left out silently. */
    by_error error = {0};
    f = (by__image_folder){0};
    (void)snprintf(path, sizeof path, "%s/c.png", folder);
    assert_int_equal(by__file_write(path, "", 0, NULL), BY_OK);
    assert_int_equal(by__image_shard_add(&f, folder, true, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "and also c.png"));
    by__image_folder_free(&f);
    assert_int_equal(by__remove_tree(folder, NULL), BY_OK);
}

/* ---- TFRecord ---- */

static uint32_t masked(const uint8_t *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
        }
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_record(const char *data, size_t size)
{
    size_t at = file.size;
    put_number(size, 8);
    put_number(masked(file.data + at, 8), 4);
    put(data, size);
    put_number(masked((const uint8_t *)data, size), 4);
}

/* Example{features{feature{key: "image" value{bytes_list{"PIX"}}} feature{key: "label"
 * value{int64_list{5}}}}}; the number packed, and in `loose` not. */
static const char packed[] = "\x0a\x22"
                             "\x0a\x10\x0a\x05image\x12\x07\x0a\x05\x0a\x03PIX"
                             "\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x05";
static const char loose[] = "\x0a\x21"
                            "\x0a\x10\x0a\x05image\x12\x07\x0a\x05\x0a\x03PIX"
                            "\x0a\x0d\x0a\x05label\x12\x04\x1a\x02\x08\x05";

static void make_tfrecord(void)
{
    file.size = 0;
    put_record(packed, sizeof packed - 1);
    put_record(loose, sizeof loose - 1);
}

static void test_tfrecord(void **state)
{
    by__image_folder f;
    BY_UNUSED(state);
    make_tfrecord();
    assert_string_equal(list(&f, "x.tfrecord"), "");
    assert_int_equal(f.count, 2);
    check(&f, 0, "PIX", 5);
    check(&f, 1, "PIX", 5);
    by__image_folder_free(&f);
    /* A bit in a record's content costs that record, one in its length all that follows. */
    for (size_t i = 0; i < sizeof packed - 1 + 16; i++) {
        make_tfrecord();
        file.data[i] ^= 0x10;
        if (i < 12) {
            assert_non_null(strstr(list(&f, "x.tfrecord"), "is no shard of pictures"));
            by__image_folder_free(&f);
            continue;
        }
        assert_string_equal(list(&f, "x.tfrecord"), "");
        assert_string_equal(f.files[0].range.problem, "the record does not fit its checksum");
        assert_int_equal(f.files[0].label, -1);
        check(&f, 1, "PIX", 5);
        by__image_folder_free(&f);
    }
    size_t second = sizeof packed - 1 + 16;
    make_tfrecord();
    file.data[second] ^= 1;
    assert_non_null(strstr(list(&f, "x.tfrecord"), "what follows cannot be read"));
    by__image_folder_free(&f);
    for (size_t cut = 1; cut < sizeof loose - 1 + 16; cut++) {
        make_tfrecord();
        file.size -= cut;
        assert_non_null(strstr(list(&f, "x.tfrecord"), "it is truncated"));
        by__image_folder_free(&f);
    }
}

/* Two labels that differ, in a record. */
static void test_contradicting_record(void **state)
{
    static const char both[] = "\x0a\x32"
                               "\x0a\x10\x0a\x05image\x12\x07\x0a\x05\x0a\x03PIX"
                               "\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x05"
                               "\x0a\x0e\x0a\x05"
                               "class\x12\x05\x1a\x03\x0a\x01\x06";
    by__image_folder f;
    BY_UNUSED(state);
    file.size = 0;
    put_record(both, sizeof both - 1);
    assert_string_equal(list(&f, "x.tfrecord"), "");
    assert_string_equal(f.files[0].range.problem,
                        "its labels contradict each other: 5 in label and 6 in class");
    by__image_folder_free(&f);
}

/* The record of the format's own documentation. */
static void test_record_of_abc(void **state)
{
    static const uint8_t record[] = {3,    0,    0,   0,   0,   0,    0,    0,    0xb0, 0x99,
                                     0x49, 0x0e, 'a', 'b', 'c', 0x6e, 0x57, 0xf1, 0x21};
    by__image_folder f;
    BY_UNUSED(state);
    file.size = 0;
    put(record, sizeof record);
    assert_string_equal(list(&f, "x.tfrecord"), "");
    assert_string_equal(f.files[0].range.problem, "the record is no tf.train.Example");
    by__image_folder_free(&f);
}

/* ---- MDS ---- */

static void make_mds(void)
{
    static const char config[] =
        "{\"column_names\": [\"id\", \"image\", \"label\"], \"column_encodings\": [\"str\", "
        "\"jpeg\", \"int\"], \"column_sizes\": [null, null, 8]}";
    static const char *const pictures[] = {"one", "three"};
    uint64_t begin = 4 + 4 * 3 + sizeof config - 1;
    file.size = 0;
    put_number(2, 4);
    put_number(begin, 4);
    put_number(begin + 8 + 2 + 3 + 8, 4);
    put_number(begin + 2 * (8 + 2 + 8) + 3 + 5, 4);
    put(config, sizeof config - 1);
    for (size_t i = 0; i < 2; i++) {
        put_number(2, 4);
        put_number(strlen(pictures[i]), 4);
        put("id", 2);
        put(pictures[i], strlen(pictures[i]));
        put_number(i + 40, 8);
    }
}

static void test_mds(void **state)
{
    by__image_folder f;
    BY_UNUSED(state);
    make_mds();
    assert_string_equal(list(&f, "shard.00000.mds"), "");
    assert_int_equal(f.count, 2);
    check(&f, 0, "one", 40);
    check(&f, 1, "three", 41);
    by__image_folder_free(&f);
    size_t whole = file.size;
    for (file.size = 8; file.size < whole; file.size++) {
        assert_non_null(strstr(list(&f, "shard.00000.mds"), "the MDS shard is damaged"));
        by__image_folder_free(&f);
    }
    make_mds();
    memset(file.data + whole - 8, 0xff, 8);
    file.data[whole - 8] = 0xfb;
    assert_non_null(strstr(list(&f, "shard.00000.mds"), "its label, -5, is negative"));
    by__image_folder_free(&f);
    make_mds();
    memcpy(strstr((char *)file.data + 16, "\"label\""), "\"other\"", 7);
    assert_string_equal(list(&f, "shard.00000.mds"), "");
    assert_non_null(strstr(f.files[0].range.problem,
                           "it has no label: that is a column label, class, cls or y"));
    by__image_folder_free(&f);
    make_mds();
    file.data[whole - 8 - 5 - 2 - 4] = 6; /* the size of a picture */
    assert_string_equal(list(&f, "shard.00000.mds"), "");
    assert_non_null(f.files[1].range.problem);
    by__image_folder_free(&f);
}

/* ---- indexes ---- */

/* Writes make_tar()'s archive, so large that an index of it is kept. */
static void write_large(const char *name)
{
    static const uint8_t zeros[1024];
    make_tar();
    file.size -= sizeof zeros;
    put_header("__pad.bin", "", '0', (1 << 20));
    write_file(name);
    FILE *out = fopen(path, "ab");
    assert_non_null(out);
    for (int i = 0; i < 1024 + 1; i++) { /* and the end mark */
        assert_int_equal(fwrite(zeros, 1, sizeof zeros, out), sizeof zeros);
    }
    assert_int_equal(fclose(out), 0);
}

static void check_large(const char *indexes, int64_t label)
{
    by__image_folder f = {.indexes = indexes};
    assert_int_equal(by__image_shard_add(&f, path, true, NULL), BY_OK);
    assert_int_equal(f.count, 4);
    assert_non_null(strstr(f.files[0].range.problem, "the sample has no picture"));
    assert_string_equal(f.files[0].range.sample, "d/a");
    assert_int_equal(f.files[1].label, label);
    assert_int_equal(f.files[3].number, 3);
    check(&f, 2, "third", 3);
    check(&f, 3, "fourth", 11);
    by__image_folder_free(&f);
}

/* What is in a shard is read once; an index that is damaged, or of another version, is not used. */
static void test_index(void **state)
{
    char *indexes = temporary_make();
    char index[512];
    char **names;
    size_t count;
    BY_UNUSED(state);
    write_large("large.tar");
    check_large(indexes, 7);
    assert_int_equal(by__list_dir(&names, &count, indexes, NULL), BY_OK);
    assert_int_equal(count, 1);
    (void)snprintf(index, sizeof index, "%s/%s", indexes, names[0]);
    by__names_free(names, count);
    /* It is used: the label in it, with a hash that is right, is what is found. */
    char *text;
    size_t size;
    assert_int_equal(by__file_read(&text, &size, index, 1 << 20, NULL), BY_OK);
    char *seven = memchr(text + 32 + 81, 7, size - 32 - 81);
    assert_non_null(seven);
    *seven = 8;
    uint64_t hash = by__hash64(text, size - 8);
    memcpy(text + size - 8, &hash, 8);
    assert_int_equal(by__file_write(index, text, size, NULL), BY_OK);
    check_large(indexes, 8);
    for (size_t i = 0; i < size; i += 11) {
        text[i] ^= 1;
        assert_int_equal(by__file_write(index, text, size, NULL), BY_OK);
        check_large(indexes, 7);
        text[i] ^= 1;
    }
    assert_int_equal(by__file_write(index, text, size, NULL), BY_OK);
    check_large(indexes, 8);
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    check_large(indexes, 7);
    free(text);
    assert_int_equal(unlink(path), 0);
    temporary_remove(indexes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),     cmocka_unit_test(test_tar),
        cmocka_unit_test(test_ambiguous),  cmocka_unit_test(test_named_in_json),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_contradicting_record),
        cmocka_unit_test(test_labels),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_tfrecord),   cmocka_unit_test(test_record_of_abc),
        cmocka_unit_test(test_mds),        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
