#include "train/train_dial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Configs of one name. */
#define MOST_FILES 10000

int cli_check_dial(const cli_command *command, const cli_dial *d, int positional)
{
    bool limited = d->minutes > 0.0 || d->until != NULL || d->flops > 0.0 || d->money > 0.0 ||
                   d->memory != NULL || d->layers > 0;
    bool own =
        d->until != NULL || d->flops > 0.0 || d->money > 0.0 || d->memory != NULL || d->layers > 0;
    if ((d->prices != NULL) != (d->priced != NULL) || (d->region != NULL && d->prices == NULL)) {
        return cli_misuse(command, "--prices and --price-device belong together, and "
                                   "--price-region to both");
    }
    if (d->data == NULL) {
        return own ? cli_misuse(command, "--until, --flops, --money, --memory and --depth choose "
                                         "a config for --data TEXT")
                   : -1;
    }
    if (positional > 0) {
        return cli_misuse(command, "--data chooses a config: give it or a config file, whose "
                                   "text --set data.text=TEXT sets");
    }
    if (!limited) {
        return cli_misuse(command, "--data: say what the run may take: --minutes, --until, "
                                   "--flops, --money, --memory or --depth");
    }
    return d->money > 0.0 && d->prices == NULL
               ? cli_misuse(command, "--money, --prices and --price-device belong together")
               : -1;
}

by_status cli_dial_rates(by_train_rates *out, const cli_dial *dial, by_error *error)
{
    by_price price;
    by_region region = {.grams_per_kwh = (double)NAN, .pue = 1.0};
    *out = (by_train_rates){(double)NAN, (double)NAN, (double)NAN, 1.0};
    if (dial->prices == NULL) {
        return BY_OK;
    }
    by_status status = by_price_read(&price, dial->prices, dial->priced, error);
    if (status == BY_OK && dial->region != NULL) {
        status = by_region_read(&region, dial->prices, dial->region, error);
    }
    if (status == BY_OK) {
        *out = (by_train_rates){price.watts, price.per_hour, region.grams_per_kwh, region.pue};
    }
    return status;
}

/* ---- what the run may take ---- */

/* Seconds from now to a local time, "2027-01-31T18:30" or the next "18:30". */
static by_status seconds_until(double *out, const char *text, by_error *error)
{
    time_t now = time(NULL);
    struct tm when;
    char *end = NULL;
    (void)localtime_r(&now, &when);
    when.tm_sec = 0;
    bool dated = strchr(text, '-') != NULL;
    end = strptime(text, dated ? "%Y-%m-%dT%H:%M" : "%H:%M", &when);
    when.tm_isdst = -1;
    time_t then = end == NULL || *end != '\0' ? (time_t)-1 : mktime(&when);
    if (then == (time_t)-1) {
        return by_error_set(error, BY_EARG,
                            "--until '%s' is no time such as 2027-01-31T18:30 or 18:30", text);
    }
    double left = difftime(then, now);
    left += !dated && left <= 0.0 ? 86400.0 : 0.0;
    if (left <= 0.0) {
        return by_error_set(error, BY_EARG, "--until %s is over", text);
    }
    *out = left;
    return BY_OK;
}

static by_status seconds_of_money(double *out, const cli_dial *d, by_error *error)
{
    by_price price;
    by_status status = by_price_read(&price, d->prices, d->priced, error);
    if (status == BY_OK && !(price.per_hour > 0.0)) {
        status = by_error_set(error, BY_EARG, "%s: '%s' has no price_per_hour above 0", d->prices,
                              d->priced);
    }
    *out = status == BY_OK ? 3600.0 * d->money / price.per_hour : 0.0;
    return status;
}

/* A size by the rules of the config. */
static by_status read_size(uint64_t *out, const char *text, by_error *error)
{
    by_config *config;
    char setting[96];
    by_status status = by_config_default(&config, error);
    if (status != BY_OK) {
        return status;
    }
    (void)snprintf(setting, sizeof setting, "memory.budget=%.64s", text);
    status = by_config_set(config, setting, error);
    *out = status == BY_OK ? (uint64_t)config->memory.budget : 0;
    by_config_close(&config);
    return status;
}

static by_status read_budget(by_dial_budget *out, const cli_dial *d, by_error *error)
{
    double seconds = 0.0;
    by_status status = BY_OK;
    *out = (by_dial_budget){.seconds = 60.0 * d->minutes, .flops = d->flops, .layers = d->layers};
    if (d->until != NULL) {
        status = seconds_until(&seconds, d->until, error);
        out->seconds = out->seconds > 0.0 ? fmin(out->seconds, seconds) : seconds;
    }
    if (status == BY_OK && d->money > 0.0) {
        status = seconds_of_money(&seconds, d, error);
        out->seconds = out->seconds > 0.0 ? fmin(out->seconds, seconds) : seconds;
    }
    if (status == BY_OK && d->memory != NULL) {
        status = read_size(&out->bytes, d->memory, error);
        if (status == BY_OK && out->bytes == 0) {
            status =
                by_error_set(error, BY_EARG, "--memory %s: nothing trains in no memory", d->memory);
        }
    }
    return status;
}

/* ---- the config ---- */

/* "book" of "texts/book.txt", in letters that a directory may have. */
static void name_of(char out[64], const char *path)
{
    const char *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/') {
        end--;
    }
    const char *begin = end;
    while (begin > path && begin[-1] != '/') {
        begin--;
    }
    const char *dot = memchr(begin, '.', (size_t)(end - begin));
    end = dot != NULL && dot > begin ? dot : end;
    size_t count = 0;
    for (; begin < end && count < 40; begin++) {
        bool plain = (*begin >= '0' && *begin <= '9') || (*begin >= 'a' && *begin <= 'z') ||
                     (*begin >= 'A' && *begin <= 'Z') || *begin == '_' || *begin == '-';
        out[count++] = plain ? *begin : '-';
    }
    (void)snprintf(out + count, 64 - count, "%s", count == 0 ? "text" : "");
}

/* Writes `text` to NAME.yaml, or NAME-2.yaml and so on: a file that is there may be the user's. */
static by_status write_file(char path[96], const char *name, const char *text, by_error *error)
{
    FILE *file = NULL;
    (void)snprintf(path, 96, "%s.yaml", name);
    for (int i = 2; i < MOST_FILES && (file = fopen(path, "wx")) == NULL && errno == EEXIST; i++) {
        (void)snprintf(path, 96, "%s-%d.yaml", name, i);
    }
    bool written = file != NULL && fputs(text, file) >= 0;
    written = file != NULL && fclose(file) == 0 && written;
    return written ? BY_OK
                   : by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno));
}

static void print_json(const by_dial_choice *c, const char *path)
{
    char text[8][32];
    long long micro_batch = (long long)(c->micro_batch > 0 ? c->micro_batch : c->batch);
    printf("{\"event\":\"dial\",\"layers\":%lld,\"width\":%lld,\"context\":%lld,\"batch\":%lld,"
           "\"micro_batch\":%lld,\"precision\":\"%s\",\"planned_bytes\":%llu,\"steps\":%lld,\"lr\":"
           "%s,\"parameters\":%s,\"tokens\":%s,\"epochs\":%s,"
           "\"seconds\":%s,\"bits_per_byte\":%s,\"low\":%s,\"high\":%s,\"config\":\"%s\"}\n",
           (long long)c->layers, (long long)c->width, (long long)c->context, (long long)c->batch,
           micro_batch, c->precision, (unsigned long long)c->planned, (long long)c->steps,
           cli_json_number(text[0], c->lr, 4), cli_json_number(text[1], c->parameters, 6),
           cli_json_number(text[2], c->tokens, 6), cli_json_number(text[3], c->epochs, 4),
           cli_json_number(text[4], c->seconds, 4), cli_json_number(text[5], c->bits, 5),
           cli_json_number(text[6], c->low, 5), cli_json_number(text[7], c->high, 5), path);
}

by_status cli_turn_dial(cli_dial *d, char **path, const by_train_options *options,
                        const cli_list *overrides, bool show, bool json, by_error *error)
{
    char name[64];
    char file[96];
    char *yaml = NULL;
    char *lines = NULL;
    char *text[] = {(char *)(uintptr_t)d->data};
    name_of(name, d->data);
    by_dial_request request = {.text = {text, 1},
                               .name = name,
                               .began = d->began,
                               .overrides = overrides->items,
                               .override_count = overrides->count,
                               .options = options};
    by_status status = read_budget(&request.budget, d, error);
    if (status == BY_OK) {
        status = by_dial_turn(&d->choice, &yaml, &lines, &request, error);
    }
    if (status == BY_OK) {
        status = write_file(file, name, yaml, error);
    }
    *path = status == BY_OK ? strdup(file) : NULL;
    if (status == BY_OK && *path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    if (status == BY_OK && json) {
        print_json(&d->choice, file);
    } else if (status == BY_OK && show) {
        printf("%sconfig     %s\n", lines, file);
    }
    free(yaml);
    free(lines);
    return status;
}
