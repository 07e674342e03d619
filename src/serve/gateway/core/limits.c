#include "serve/gateway/core/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define MAX_FILE ((size_t)64 << 20)
#define DAY      86400.0
/* Seconds by which two clocks may drift apart without either being set. */
#define SLEW 60.0

typedef struct limits_account {
    const char *name; /* owned by the keys; "": the account of all clients without a key */
    int64_t requests_per_minute;
    int64_t tokens_per_minute;
    int64_t tokens_per_day;
    double requests;
    double tokens;
    double filled; /* `now` of the last update; 0: both buckets are full */
    double today;  /* tokens used on `day` */
    int64_t day;   /* since 1970 */
    double back;   /* `now` when the wall clock was last set back to an earlier day */
    double rest;   /* seconds left of that day then; 0: it was not set back */
} limits_account;

struct by__gateway_limits {
    limits_account *accounts;
    size_t count;
    size_t capacity;
    char *path;
    bool changed; /* since it was last printed */
};

/* ---- the file ---- */

/* {"day": N, "used": {"NAME": TOKENS, ...}} */
static by_status read_used(by__gateway_limits *l, by_error *error)
{
    char *text = NULL;
    size_t length;
    const char *name;
    json_t *value;
    if (l->path == NULL || !by__path_exists(l->path)) {
        return BY_OK;
    }
    BY_TRY(by__file_read(&text, &length, l->path, MAX_FILE, error));
    json_t *whole = by_json_load(text, length, 0, NULL);
    const json_t *day = json_object_get(whole, "day");
    json_t *used = json_object_get(whole, "used");
    by_status status = BY_OK;
    if (!json_is_integer(day) || !json_is_object(used)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s does not contain the usage of keys: remove it to start from 0",
                              l->path);
    }
    json_object_foreach(used, name, value)
    {
        for (size_t i = 0; i < l->count && status == BY_OK; i++) {
            double tokens = json_number_value(value);
            if (strcmp(l->accounts[i].name, name) == 0 && tokens >= 0.0) {
                l->accounts[i].today = tokens;
                l->accounts[i].day = json_integer_value(day);
            }
        }
    }
    json_decref(whole);
    free(text);
    return status;
}

/* Starts a new day: forgets what was used on an earlier one. Tokens used on a later day, by a wrong
 * clock, count for today: setting the clock back, even repeatedly, gives no tokens back. Returns
 * whether it was set back. */
static bool turn_day(limits_account *a, double now, double wall)
{
    int64_t day = (int64_t)floor(wall / DAY);
    bool back = day < a->day;
    if (back) {
        a->back = now;
        a->rest = ((double)day + 1.0) * DAY - wall;
    } else if (day > a->day) {
        bool forth = now - a->back < a->rest - SLEW;
        a->today = forth ? a->today : 0.0;
        a->rest = 0.0;
    }
    a->day = day;
    return back;
}

char *by__gateway_limits_print(by__gateway_limits *limits, double now, double wall)
{
    by__gateway_limits *l = limits;
    for (size_t i = 0; i < l->count; i++) {
        l->changed = turn_day(&l->accounts[i], now, wall) || l->changed;
    }
    if (!l->changed || l->path == NULL) {
        return NULL;
    }
    json_t *used = json_object();
    for (size_t i = 0; i < l->count; i++) {
        const limits_account *a = &l->accounts[i];
        if (a->today > 0.0) {
            (void)json_object_set_new(used, a->name, json_real(a->today));
        }
    }
    json_t *whole = json_pack("{sI so}", "day", (json_int_t)floor(wall / DAY), "used", used);
    char *text = by__json_dump(whole, JSON_COMPACT);
    json_decref(whole);
    l->changed = text == NULL;
    return text;
}

/* ---- opening ---- */

static void set_account(limits_account *a, const by_serve_limits_config *config, const char *name)
{
    const by_limit_config *rows = config->keys.items;
    *a = (limits_account){.name = name,
                          .requests_per_minute = config->requests_per_minute,
                          .tokens_per_minute = config->tokens_per_minute,
                          .tokens_per_day = config->tokens_per_day};
    for (size_t i = 0; i < config->keys.count; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            a->requests_per_minute = rows[i].requests_per_minute;
            a->tokens_per_minute = rows[i].tokens_per_minute;
            a->tokens_per_day = rows[i].tokens_per_day;
        }
    }
    a->requests = (double)a->requests_per_minute;
    a->tokens = (double)a->tokens_per_minute;
}

by_status by__gateway_limits_extend(by__gateway_limits *limits,
                                    const by_serve_limits_config *config,
                                    const by__gateway_keys *keys, by_error *error)
{
    by__gateway_limits *l = limits;
    size_t count = l->count;
    for (size_t i = 0; i < by__gateway_keys_count(keys); i++) {
        size_t number = by__gateway_keys_at(keys, i)->account;
        count = number + 1 > count ? number + 1 : count;
    }
    BY_TRY(by__reserve((void **)&l->accounts, &l->capacity, count, sizeof *l->accounts, error));
    for (; l->count < count; l->count++) {
        set_account(&l->accounts[l->count], config, "");
    }
    for (size_t i = 0; i < by__gateway_keys_count(keys); i++) {
        const by__gateway_client *c = by__gateway_keys_at(keys, i);
        if (strcmp(l->accounts[c->account].name, c->name) != 0) {
            set_account(&l->accounts[c->account], config, c->name);
        }
    }
    return BY_OK;
}

by_status by__gateway_limits_open(by__gateway_limits **out, const by_serve_limits_config *config,
                                  const by__gateway_keys *keys, const char *path, by_error *error)
{
    by__gateway_limits *l = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "limits", error));
    by_status status =
        by__reserve((void **)&l->accounts, &l->capacity, 1, sizeof *l->accounts, error);
    if (status == BY_OK && path != NULL) {
        l->path = by__strdup(path);
        status = l->path != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: limits");
    }
    if (status == BY_OK) {
        set_account(&l->accounts[0], config, "");
        l->count = 1;
        status = keys == NULL ? BY_OK : by__gateway_limits_extend(l, config, keys, error);
    }
    if (status == BY_OK) {
        status = read_used(l, error);
    }
    if (status != BY_OK) {
        by__gateway_limits_close(&l);
    }
    *out = l;
    return status;
}

void by__gateway_limits_close(by__gateway_limits **limits)
{
    if (*limits != NULL) {
        free((*limits)->accounts);
        free((*limits)->path);
        free(*limits);
        *limits = NULL;
    }
}

/* ---- charging ---- */

static double refill(double level, double rate, double seconds)
{
    double filled = level + seconds * rate / 60.0;
    return filled < rate ? filled : rate;
}

/* Seconds until a bucket has the needed amount; 0: now. */
static double wait_for(double level, double rate, double needed)
{
    double enough = needed < rate ? needed : rate;
    return rate <= 0.0 || level >= enough ? 0.0 : (enough - level) * 60.0 / rate;
}

static void renew(limits_account *a, double now, double wall)
{
    double seconds = a->filled == 0.0 || now < a->filled ? 0.0 : now - a->filled;
    a->requests = refill(a->requests, (double)a->requests_per_minute, seconds);
    a->tokens = refill(a->tokens, (double)a->tokens_per_minute, seconds);
    a->filled = now;
    (void)turn_day(a, now, wall);
}

static by__gateway_allowance remaining_of(const limits_account *a, const char *over)
{
    return (by__gateway_allowance){.requests_per_minute = a->requests_per_minute,
                                   .tokens_per_minute = a->tokens_per_minute,
                                   .tokens_per_day = a->tokens_per_day,
                                   .requests = a->requests > 0.0 ? a->requests : 0.0,
                                   .tokens = a->tokens > 0.0 ? a->tokens : 0.0,
                                   .today = a->today,
                                   .over = over};
}

double by__gateway_limits_charge(by__gateway_limits *limits, size_t account_number, double requests,
                                 double tokens, double now, double wall,
                                 by__gateway_allowance *left)
{
    limits_account *a = &limits->accounts[account_number];
    double limit = (double)a->tokens_per_day;
    renew(a, now, wall);
    double by_requests = wait_for(a->requests, (double)a->requests_per_minute, requests);
    double by_tokens = wait_for(a->tokens, (double)a->tokens_per_minute, tokens);
    double by_day = 0.0;
    /* A request that alone exceeds a day's tokens may run as the first one of a day. */
    if (limit > 0.0 && tokens > 0.0 && a->today > 0.0 && a->today + tokens > limit) {
        by_day = ((double)a->day + 1.0) * DAY - wall;
        by_day = by_day > 1.0 ? by_day : 1.0;
    }
    double wait = by_requests > by_tokens ? by_requests : by_tokens;
    const char *over = by_day > 0.0        ? "tokens_per_day"
                       : by_tokens > 0.0   ? "tokens"
                       : by_requests > 0.0 ? "requests"
                                           : NULL;
    wait = by_day > wait ? by_day : wait;
    if (over == NULL) {
        a->requests -= a->requests_per_minute > 0 ? requests : 0.0;
        a->tokens -= a->tokens_per_minute > 0 ? tokens : 0.0;
        a->today += tokens;
        limits->changed = limits->changed || tokens > 0.0;
    }
    *left = remaining_of(a, over);
    return wait;
}

void by__gateway_limits_settle(by__gateway_limits *limits, size_t account_number, double charged,
                               double used)
{
    limits_account *a = &limits->accounts[account_number];
    double most = (double)a->tokens_per_minute;
    double back = charged - used;
    if (back == 0.0) {
        return;
    }
    if (a->tokens_per_minute > 0) {
        a->tokens = a->tokens + back < most ? a->tokens + back : most;
    }
    a->today = a->today > back ? a->today - back : 0.0;
    limits->changed = true;
}
