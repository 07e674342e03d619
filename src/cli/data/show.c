/* banyan data show: what the model sees of the training data. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/plot.h"
#include "banyan/train_events.h"
#include "data/show.h"

#define LINE 96 /* bytes of a line below an image */

static void show_note(void *user, const by_train_event *event)
{
    (void)user;
    if (event->kind == BY_TRAIN_NOTE) {
        cli_print_lines(stderr, event->text);
        fprintf(stderr, "\n");
    }
}

by_status cli_open_training_data(by_task_data **out, by_config *config, const char *run,
                                 by_error *error)
{
    const by_train_options options = {
        .resume = run, .event = show_note, .stop = cli_stop_requested};
    const by_task_request what = {.purpose = BY_TASK_TRAIN, .config = config, .progress = &options};
    by_status status = by_task_open(out, NULL, &what, error);
    if (status == BY_OK && run != NULL) {
        config->model.from[0] = '\0'; /* a run has its sizes, and may outlive what it began on */
        config->lora.from[0] = '\0';
    }
    if (status == BY_OK) {
        status = by_task_complete(*out, config, error);
        if (status != BY_OK) {
            by_task_close(out);
        }
    }
    return status;
}

/* ---- images ---- */

/* A picture of the grid, and what it takes from two batches with the same samples. */
typedef struct showing {
    const by_task_data *data;
    const cli_show_request *request;
    by_loader *loaders[2]; /* before augmentation, and after */
    by_task_kept kept;
    by_tiles tiles;
    by_tile *items;
    char (*lines)[BY_TILE_LINES][LINE];
    by_example_name *examples; /* of the tiles */
    uint8_t *pixels;
    size_t bytes; /* of an image */
} showing;

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: images");
}

/* Takes the size of the images from the first batch. */
static by_status allocate(showing *s, const by_array *images, by_error *error)
{
    size_t count = (size_t)s->request->count;
    if (images->shape.rank != 4) {
        return by_error_set(error, BY_EARG, "the images of a batch are not [N, C, H, W]");
    }
    s->tiles = (by_tiles){.images = 2,
                          .channels = (size_t)images->shape.dim[1],
                          .height = (size_t)images->shape.dim[2],
                          .width = (size_t)images->shape.dim[3]};
    s->bytes = s->tiles.channels * s->tiles.height * s->tiles.width;
    s->items = calloc(count, sizeof *s->items);
    s->lines = calloc(count, sizeof *s->lines);
    s->examples = calloc(count, sizeof *s->examples);
    s->pixels = calloc(count, 2 * s->bytes);
    s->tiles.tiles = s->items;
    bool complete =
        s->items != NULL && s->lines != NULL && s->examples != NULL && s->pixels != NULL;
    return complete ? BY_OK : no_memory(error);
}

/* "cat", or of a mixed sample a line of each class: "cat 0.70"; or the number to predict. */
static void describe(char out[BY_TILE_LINES][LINE], const showing *s, const by_batch *batch,
                     size_t i)
{
    char text[2][32];
    const by_array *labels = by_batch_array(batch, "labels");
    const by_array *second = by_batch_array(batch, "second_labels");
    const by_array *weight = by_batch_array(batch, "weight");
    const by_array *first_weight = by_batch_array(batch, "first_weight");
    const by_array *targets = by_batch_array(batch, "targets");
    if (labels != NULL && labels->shape.rank == 1) {
        int32_t class = ((const int32_t *)labels->data)[i];
        int32_t other = second == NULL ? class : ((const int32_t *)second->data)[i];
        const char *name = cli_class_name(text[0], &s->kept, class);
        double all = weight == NULL ? 1.0 : (double)((const float *)weight->data)[i];
        double share = first_weight == NULL || !(all > 0.0)
                           ? 1.0
                           : (double)((const float *)first_weight->data)[i] / all;
        if (class == other || share >= 1.0) {
            (void)snprintf(out[0], LINE, "%.70s", name);
        } else {
            (void)snprintf(out[0], LINE, "%.70s %.2f", name, share);
            (void)snprintf(out[1], LINE, "%.70s %.2f", cli_class_name(text[1], &s->kept, other),
                           1.0 - share);
        }
    } else if (targets != NULL && targets->dtype == BY_F32 && targets->shape.rank == 1) {
        (void)snprintf(out[0], LINE, "%g", (double)((const float *)targets->data)[i]);
    }
}

/* Adds a line with the number and the file of a sample's example. */
static void name_example(showing *s, const by_batch *plain, size_t i, size_t tile)
{
    const by_array *numbers = by_batch_array(plain, "example");
    by_example_name *name = &s->examples[tile];
    char(*lines)[LINE] = s->lines[tile];
    size_t line = 0;
    if (numbers == NULL || s->data->task->name_trained == NULL) {
        return;
    }
    s->data->task->name_trained(s->data, (uint64_t)((const int32_t *)numbers->data)[i], name);
    while (line + 1 < BY_TILE_LINES && lines[line][0] != '\0') {
        line++;
    }
    (void)snprintf(lines[line], LINE, "%" PRIu64 " %.70s", name->index, cli_example_name(name));
}

static void add_tile(showing *s, size_t at, const uint8_t *pixels)
{
    by_tile *tile = &s->items[at];
    tile->pixels = pixels;
    for (size_t i = 0; i < BY_TILE_LINES && s->lines[at][i][0] != '\0'; i++) {
        tile->lines[i] = s->lines[at][i];
    }
}

/* Adds the samples of two batches to the tiles. */
static by_status add_batch(showing *s, const by_batch batches[2], by_error *error)
{
    const by_array *images[2] = {by_batch_array(&batches[0], "images"),
                                 by_batch_array(&batches[1], "images")};
    if (s->items == NULL) {
        by_status status = allocate(s, images[1], error);
        if (status != BY_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < batches[1].batch && s->tiles.count < (size_t)s->request->count; i++) {
        size_t at = s->tiles.count++;
        uint8_t *pixels = s->pixels + at * 2 * s->bytes;
        for (size_t k = 0; k < 2; k++) {
            s->data->task->pixels(s->data, images[k], i, pixels + k * s->bytes);
        }
        describe(s->lines[at], s, &batches[1], i);
        name_example(s, &batches[0], i, at);
        add_tile(s, at, pixels);
    }
    return BY_OK;
}

static by_status collect(showing *s, by_error *error)
{
    while (s->tiles.count < (size_t)s->request->count) {
        by_batch batches[2] = {{0}, {0}};
        for (size_t k = 0; k < 2; k++) {
            by_status status = by_loader_next(s->loaders[k], &batches[k], error);
            if (status != BY_OK) {
                return status;
            }
        }
        by_status status = add_batch(s, batches, error);
        if (status != BY_OK) {
            return status;
        }
        if (cli_stop_requested(NULL)) {
            return by_error_set(error, BY_ESTOPPED, "interrupted");
        }
    }
    return BY_OK;
}

static by_status seek(by_loader *loader, int64_t epoch, by_error *error)
{
    uint64_t samples = by_loader_epoch_samples(loader);
    return (uint64_t)epoch > ((uint64_t)1 << 62) / samples
               ? by_error_set(error, BY_EARG, "--epoch %" PRId64 ": there are not so many", epoch)
               : by_loader_seek(loader, (uint64_t)epoch * samples, error);
}

static void print_examples(const showing *s, const char *out)
{
    printf("{\"out\":");
    cli_print_json_string(out);
    printf(",\"epoch\":%" PRId64 ",\"samples\":%zu,\"examples\":[", s->request->epoch,
           s->tiles.count);
    for (size_t i = 0; i < s->tiles.count; i++) {
        const by_example_name *name = &s->examples[i];
        printf("%s{\"example\":%" PRIu64, i == 0 ? "" : ",", name->index);
        if (name->file != NULL) {
            printf(",\"file\":");
            cli_print_json_string(name->file);
        }
        if (name->sample != NULL) {
            printf(",\"sample\":");
            cli_print_json_string(name->sample);
        }
        printf("}");
    }
    printf("]}\n");
}

static by_status show_images(by_task_data *data, const by_config *config, const cli_show_request *r,
                             by_error *error)
{
    char title[128];
    const char *out = r->out == NULL ? "data.png" : r->out;
    showing s = {.data = data, .request = r};
    by_status status =
        data->task->keep == NULL ? BY_OK : data->task->keep(data, config, &s.kept, error);
    if (status == BY_OK) {
        status = by_task_plain_loader(&s.loaders[0], data, config, error);
    }
    if (status == BY_OK) {
        status = by_task_loader(&s.loaders[1], data, config, true, error);
    }
    for (size_t k = 0; k < 2 && status == BY_OK; k++) {
        status = seek(s.loaders[k], r->epoch, error);
    }
    if (status == BY_OK) {
        status = collect(&s, error);
    }
    if (status == BY_OK) {
        (void)snprintf(title, sizeof title, "epoch %" PRId64 ": before and after augmentation",
                       r->epoch);
        s.tiles.title = title;
        status = by_tiles_write(&s.tiles, out, error);
    }
    if (status == BY_OK) {
        cli_tell_written(out);
    }
    if (status == BY_OK && r->json) {
        print_examples(&s, out);
    }
    by_loader_close(&s.loaders[0]);
    by_loader_close(&s.loaders[1]);
    free(s.items);
    free(s.lines);
    free(s.examples);
    free(s.pixels);
    return status;
}

/* ---- texts ---- */

/* Adds the text of some tokens; an id that the tokenizer does not have is "#ID". */
static by_status add_tokens(by_string *out, by_task_data *data, const int32_t *ids, size_t count,
                            by_error *error)
{
    char *text;
    size_t length;
    by_error why = {0};
    by_status status = data->task->decode(data, ids, count, &text, &length, &why);
    if (status == BY_OK) {
        by_string_add(out, text, length);
        free(text);
        return BY_OK;
    }
    if (status == BY_EMEMORY) {
        return by_error_set(error, status, "%s", why.message);
    }
    for (size_t i = 0; i < count; i++) {
        by_string_format(out, "#%d", ids[i]);
    }
    return BY_OK;
}

/* The text of a sample. Where tokens are hidden, those with a number in `hidden`, [count]: {what is
 * seen|what is to be found}. */
static by_status add_sample(by_string *out, by_task_data *data, const int32_t *tokens,
                            const int32_t *hidden, size_t count, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK;) {
        size_t end = i;
        if (hidden[i] >= 0) {
            by_string_add(out, "{", 1);
            status = add_tokens(out, data, tokens + i, 1, error);
            by_string_add(out, "|", 1);
            status = status == BY_OK ? add_tokens(out, data, hidden + i, 1, error) : status;
            by_string_add(out, "}", 1);
            i++;
            continue;
        }
        while (end < count && hidden[end] < 0) {
            end++;
        }
        status = add_tokens(out, data, tokens + i, end - i, error);
        i = end;
    }
    return status;
}

/* ---- conversations ---- */

/* What of a sample is learned, and where its documents begin. */
typedef struct sample_marks {
    const int32_t *targets;
    const int32_t *starts; /* NULL: there is one document */
    const float *weights;  /* NULL: all targets are learned */
    const char *on;        /* before what is learned: \001 if it is coloured, */
    const char *off;       /* and behind it: \002 */
} sample_marks;

/* Finds the marks of row i of tokens; false: the batch has none. */
static bool find_marks(sample_marks *out, const by_batch *batch, size_t i, size_t count,
                       const cli_show_request *r)
{
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *starts = by_batch_array(batch, "starts");
    const by_array *weights = by_batch_array(batch, "weight");
    bool coloured = r->out == NULL && !r->json && isatty(STDOUT_FILENO) != 0;
    bool pairs = targets != NULL && targets->shape.rank == 3;
    bool packed = targets != NULL && starts != NULL && weights != NULL && weights->shape.rank == 2;
    if (!pairs && !packed) {
        return false;
    }
    *out = (sample_marks){.targets = (const int32_t *)targets->data + i * count,
                          .starts = pairs ? NULL : (const int32_t *)starts->data + i * count,
                          .weights = pairs ? NULL : (const float *)weights->data + i * count,
                          .on = coloured ? "\001" : "[[",
                          .off = coloured ? "\002" : "]]"};
    return true;
}

/* Token k is a target that has a weight. */
static bool is_learned(const sample_marks *m, size_t k)
{
    return k > 0 && m->targets[k - 1] >= 0 && (m->weights == NULL || m->weights[k - 1] > 0.0f);
}

/* Where the document of token k begins. */
static int32_t start_of(const sample_marks *m, size_t k)
{
    return m->starts == NULL ? 0 : m->starts[k];
}

/* The tokens of a sample, without those that pad it. */
static size_t used_tokens(const sample_marks *m, size_t count)
{
    size_t used = count;
    while (used > 1 && m->targets[used - 2] < 0 && m->targets[used - 1] < 0) {
        used--;
    }
    return used;
}

/* Between documents. */
static const char border[] = "\n--------\n";

/* The text of a sample of conversations, with what is learned between marks. */
static by_status add_marked(by_string *out, by_task_data *data, const int32_t *tokens,
                            const sample_marks *m, size_t count, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK;) {
        bool learned = is_learned(m, i);
        size_t end = i + 1;
        while (end < count && is_learned(m, end) == learned && start_of(m, end) == start_of(m, i)) {
            end++;
        }
        if (i > 0 && start_of(m, i) != start_of(m, i - 1)) {
            by_string_add(out, border, sizeof border - 1);
        }
        by_string_add(out, m->on, learned ? strlen(m->on) : 0);
        status = add_tokens(out, data, tokens + i, end - i, error);
        by_string_add(out, m->off, learned ? strlen(m->off) : 0);
        i = end;
    }
    return status;
}

/* ---- batches of texts ---- */

/* The targets of example i of a batch; *count: 0 if there are none. */
static const int32_t *targets_of(size_t *count, const by_batch *batch, size_t i)
{
    const by_array *targets = by_batch_array(batch, "targets");
    bool known = targets != NULL && targets->dtype == BY_I32 && targets->shape.rank == 2;
    *count = known ? (size_t)targets->shape.dim[1] : 0;
    return known ? (const int32_t *)targets->data + i * *count : NULL;
}

/* Sets which tokens of example i are hidden, of a batch that says it (by_masked_source_open); -1:
 * one is not. */
static void find_hidden(int32_t *hidden, size_t count, const by_batch *batch, size_t i)
{
    const by_array *chosen = by_batch_array(batch, "chosen");
    size_t wanted;
    size_t next = 0;
    const int32_t *targets = targets_of(&wanted, batch, i);
    bool hides = chosen != NULL && chosen->dtype == BY_I32 && chosen->shape.rank >= 2 &&
                 chosen->shape.dim[1] == (int64_t)count;
    for (size_t k = 0; k < count; k++) {
        bool taken = hides && next < wanted && ((const int32_t *)chosen->data)[i * count + k] >= 0;
        hidden[k] = taken ? targets[next++] : -1;
    }
}

/* The targets of example i: of conversations, those that are learned. */
static size_t count_targets(const by_batch *batch, size_t i, const sample_marks *marks,
                            size_t tokens)
{
    size_t count;
    size_t found = 0;
    const int32_t *targets = targets_of(&count, batch, i);
    for (size_t k = 0; marks != NULL && k < tokens; k++) {
        found += is_learned(marks, k + 1);
    }
    for (size_t k = 0; marks == NULL && k < count; k++) {
        found += targets[k] >= 0;
    }
    return found;
}

/* Prints a text of n bytes and a NUL, with what is between \001 and \002 in colour if `coloured`,
 * and a NUL within it as the picture of one, U+2400. */
static void print_text(char *text, size_t n, bool coloured)
{
    for (char *at = text, *end = text + n; at < end;) {
        size_t length = strcspn(at, coloured ? "\001\002" : "");
        char mark = at[length];
        at[length] = '\0';
        cli_print_lines(stdout, at);
        at += length;
        if (at < end) {
            fputs(mark == '\001'   ? "\033[32m"
                  : mark == '\002' ? "\033[0m"
                                   : "\xe2\x90\x80",
                  stdout);
            at++;
        }
    }
}

static void print_sample(by_string *text, size_t tokens, size_t targets, int64_t sample,
                         const cli_show_request *r)
{
    if (r->json) {
        printf("{\"epoch\":%" PRId64 ",\"sample\":%" PRId64 ",\"tokens\":%zu,\"targets\":%zu",
               r->epoch, sample, tokens, targets);
        printf(",\"text\":");
        cli_print_json_text(text->data, text->length - 1);
        printf("}\n");
        return;
    }
    printf("%ssample %" PRId64 " of epoch %" PRId64 ": %zu tokens, %zu to predict\n",
           sample > 0 ? "\n" : "", sample, r->epoch, tokens, targets);
    print_text(text->data, text->length - 1, r->out == NULL && isatty(STDOUT_FILENO) != 0);
    printf("\n");
}

/* The tokens of a row up to its last one, of a batch that says it; else all. */
static size_t rated_tokens(const by_batch *batch, size_t row, size_t count)
{
    const by_array *last = by_batch_array(batch, "last");
    size_t k = 0;
    while (last != NULL && k < count && ((const float *)last->data)[row * count + k] == 0.0f) {
        k++;
    }
    return last == NULL || k == count ? count : k + 1;
}

/* Adds a row of tokens, of which `hidden` has room for as many numbers. */
static by_status add_row(by_string *text, by_task_data *data, const by_batch *batch, size_t row,
                         size_t count, int32_t *hidden, size_t *targets, const cli_show_request *r,
                         by_error *error)
{
    sample_marks marks;
    const int32_t *ids = (const int32_t *)by_batch_array(batch, "tokens")->data + row * count;
    bool marked = find_marks(&marks, batch, row, count, r);
    *targets += count_targets(batch, row, marked ? &marks : NULL, count);
    find_hidden(hidden, count, batch, row);
    return marked ? add_marked(text, data, ids, &marks, used_tokens(&marks, count), error)
                  : add_sample(text, data, ids, hidden, rated_tokens(batch, row, count), error);
}

/* A sample is one row of tokens, or two that are compared. */
static by_status print_samples(by_task_data *data, const by_batch *batch, int64_t *done,
                               const cli_show_request *r, by_error *error)
{
    const by_array *tokens = by_batch_array(batch, "tokens");
    int rank = tokens == NULL ? 0 : tokens->shape.rank;
    if (tokens == NULL || tokens->dtype != BY_I32 || rank < 2 || rank > 3) {
        return by_error_set(error, BY_EARG, "show: the samples have no tokens");
    }
    size_t rows = rank == 3 ? (size_t)tokens->shape.dim[1] : 1;
    size_t count = (size_t)tokens->shape.dim[rank - 1];
    int32_t *hidden = calloc(count, sizeof *hidden);
    by_status status = hidden == NULL ? no_memory(error) : BY_OK;
    for (size_t i = 0; i < batch->batch && *done < r->count && status == BY_OK; i++, ++*done) {
        by_string text = {0};
        size_t targets = 0;
        for (size_t k = 0; k < rows && status == BY_OK; k++) {
            by_string_add(&text, border, k > 0 ? sizeof border - 1 : 0);
            status = add_row(&text, data, batch, i * rows + k, count, hidden, &targets, r, error);
        }
        by_string_add(&text, "", 1);
        if (status == BY_OK) {
            status = by_string_check(&text, error);
        }
        if (status == BY_OK) {
            print_sample(&text, rows * count, targets, *done, r);
        }
        by_string_free(&text);
    }
    free(hidden);
    return status;
}

static by_status show_texts(by_task_data *data, const by_config *config, const cli_show_request *r,
                            by_error *error)
{
    by_loader *loader;
    int64_t done = 0;
    by_status status = cli_redirect(r->out, error);
    if (status == BY_OK) {
        status = by_task_loader(&loader, data, config, true, error);
    }
    if (status != BY_OK) {
        return status;
    }
    status = seek(loader, r->epoch, error);
    while (status == BY_OK && done < r->count) {
        by_batch batch = {0};
        status = cli_stop_requested(NULL) ? by_error_set(error, BY_ESTOPPED, "interrupted")
                                          : by_loader_next(loader, &batch, error);
        if (status == BY_OK) {
            status = print_samples(data, &batch, &done, r, error);
        }
    }
    by_loader_close(&loader);
    cli_tell_written(status == BY_OK ? r->out : NULL);
    return status;
}

by_status cli_show_data(void *request, by_config *config, by_error *error)
{
    const cli_show_request *r = request;
    by_task_data *data;
    by_status status = cli_open_training_data(&data, config, r->run, error);
    if (status != BY_OK) {
        return status;
    }
    const char *reads = by_model_reads(&config->model);
    if (r->list) {
        status = cli_list_data(data, config, r, error);
    } else if (strcmp(reads, "images") == 0 && data->task->pixels != NULL) {
        status = show_images(data, config, r, error);
    } else if (data->task->decode != NULL) {
        status = show_texts(data, config, r, error);
    } else {
        status =
            by_error_set(error, BY_EARG,
                         "show is of images and texts; a model of kind %s reads %s: add --list "
                         "for the rows, and `banyan data stats FILE` says what is in a table",
                         config->model.kind, reads);
    }
    by_task_close(&data);
    return status;
}
