/* Rotary positions beyond the trained context: the keys for the scaling of frequencies, their
 * translation to and from config.json, and the resulting rotation. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

#define OWN(field) BY__OWN(by__nn_llama_keys, rope.field)
static const by__config_key key_rows[] = {
    {"model", "rope_theta", BY__KEY_REAL, OWN(theta), "10000", 1, 1e12,
     .help = "base of the rotary frequencies"},
    {"model", "rope_scaling", BY__KEY_TEXT, OWN(scaling), "none",
     .choices = "none|linear|ntk|dynamic|yarn|llama3", .later = true,
     .help = "scaling of the rotary frequencies for contexts longer than the original one; `ntk` "
             "multiplies rope_theta by rope_factor^(d / (d - 2)), where d is the width of a head, "
             "which divides the lowest frequency by rope_factor and keeps the highest; `dynamic` "
             "scales nothing up to model.context and allows no longer context"},
    {"model", "rope_factor", BY__KEY_REAL, OWN(factor), "1", 1, 1e6, .later = true,
     .help = "`rope_scaling`: factor that the low frequencies are divided by"},
    {"model", "rope_original_context", BY__KEY_INT, OWN(original_context), "-1", 1, BY__MI30,
     .derived = "model.context", .later = true,
     .help = "`rope_scaling` yarn and llama3: context of the original training"},
    {"model", "rope_low_freq_factor", BY__KEY_REAL, OWN(low_freq_factor), "1", 0, 1e6,
     BY__ABOVE_MIN, .later = true,
     .help = "`rope_scaling` llama3: frequencies with fewer periods in the original context than "
             "this are divided by rope_factor"},
    {"model", "rope_high_freq_factor", BY__KEY_REAL, OWN(high_freq_factor), "4", 0, 1e6,
     BY__ABOVE_MIN, .later = true,
     .help = "`rope_scaling` llama3: frequencies with more periods than this are kept; above "
             "`rope_low_freq_factor`"},
    {"model", "rope_beta_fast", BY__KEY_REAL, OWN(beta_fast), "32", 0, 1e6, BY__ABOVE_MIN,
     .later = true,
     .help = "`rope_scaling` yarn: frequencies with more periods in the original context than this "
             "are kept"},
    {"model", "rope_beta_slow", BY__KEY_REAL, OWN(beta_slow), "1", 0, 1e6, BY__ABOVE_MIN,
     .later = true,
     .help = "`rope_scaling` yarn: frequencies with fewer periods than this are divided by "
             "rope_factor; at most `rope_beta_fast`"},
    {"model", "rope_attention_factor", BY__KEY_REAL, OWN(attention_factor), "-1", 0, 1e6,
     BY__ABOVE_MIN, .derived = "0.1 ln(rope_factor) + 1", .later = true,
     .help = "`rope_scaling` yarn: factor on the cosines and sines"},
};
const by__config_key_list by__nn_rope_key_list = BY__KEY_LIST(key_rows);

static bool is_scaled_by(const by__nn_rope_keys *keys, const char *scaling)
{
    return strcmp(keys->scaling, scaling) == 0;
}

by_status by__nn_rope_resolve(const by_config *config, const by__nn_rope_keys *keys,
                              by_error *error)
{
    if (is_scaled_by(keys, "llama3") && keys->low_freq_factor >= keys->high_freq_factor) {
        return by_error_set(
            error, BY_ECONFIG, "%s: rope_low_freq_factor %g is not below rope_high_freq_factor %g",
            by__config_where(config, "model.rope_low_freq_factor", "model.rope_high_freq_factor"),
            keys->low_freq_factor, keys->high_freq_factor);
    }
    if (is_scaled_by(keys, "yarn") && keys->beta_slow > keys->beta_fast) {
        return by_error_set(
            error, BY_ECONFIG, "%s: rope_beta_slow %g is above rope_beta_fast %g",
            by__config_where(config, "model.rope_beta_slow", "model.rope_beta_fast"),
            keys->beta_slow, keys->beta_fast);
    }
    return BY_OK;
}

const char *by__nn_rope_bounded(const by__nn_rope_keys *keys)
{
    return is_scaled_by(keys, "dynamic")
               ? "dynamic rope scaling changes the angles of all keys with the length of the text; "
                 "rope_type yarn or linear in config.json gives longer contexts"
               : NULL;
}

/* The (fractional) index of the pair that makes this many turns within a context. */
static double pair_of_turns(double turns, double context, double theta, double width)
{
    return width * log(context / (turns * 2.0 * M_PI)) / (2.0 * log(theta));
}

/* Sets YaRN's range: below its first pair frequencies are unchanged, from its last pair on they are
 * divided. If the context is so long or short that the range lies beyond the head's pairs, all or
 * none are unchanged. */
static void set_yarn(by_rotation *r, const by__nn_rope_keys *keys, double context, int64_t width)
{
    double last = (double)width - 1.0;
    double low = floor(pair_of_turns(keys->beta_fast, context, keys->theta, (double)width));
    double high = ceil(pair_of_turns(keys->beta_slow, context, keys->theta, (double)width));
    low = fmax(low, 0.0);
    high = fmin(high, last);
    if (high < 0.0) {
        low = last;
        high = last + 1.0;
    } else if (low > high) {
        low = -1.0;
        high = 0.0;
    }
    double mscale = 0.1 * log(keys->factor) + 1.0;
    r->low = (float)low;
    r->high = (float)(low == high ? high + 0.001 : high);
    r->amplitude = (float)(keys->attention_factor < 0.0 ? mscale : keys->attention_factor);
}

/* The base for which the slowest frequency, that of pair d / 2 - 1, is divided by the factor
 * (NTK-aware scaling, as in transformers' `dynamic` for one length). A head of one pair has only
 * the fastest frequency. */
static double ntk_theta(const by__nn_rope_keys *keys, int64_t width)
{
    double d = (double)width;
    return width > 2 ? keys->theta * pow(keys->factor, d / (d - 2.0)) : keys->theta;
}

by_rotation by__nn_rope_rotation(const by__nn_rope_keys *keys, const by_model_config *c)
{
    by_rotation r = {.theta = (float)keys->theta};
    bool given = keys->original_context > 0;
    double context = (double)(given ? keys->original_context : c->context);
    if (is_scaled_by(keys, "ntk")) {
        r.theta = (float)ntk_theta(keys, c->head_dim);
        return r;
    }
    if (is_scaled_by(keys, "none") || is_scaled_by(keys, "dynamic")) {
        return r;
    }
    r.factor = (float)keys->factor;
    if (is_scaled_by(keys, "linear")) {
        r.low = -1.0f;
    } else if (is_scaled_by(keys, "yarn")) {
        set_yarn(&r, keys, context, c->head_dim);
    } else {
        r.low = (float)keys->low_freq_factor;
        r.high = (float)keys->high_freq_factor;
        r.wave = (float)context;
    }
    return r;
}

/* ---- config.json ---- */

void by__nn_rope_write_config(json_t *out, const by__nn_rope_keys *keys, const by_model_config *c)
{
    bool yarn = is_scaled_by(keys, "yarn");
    bool llama3 = is_scaled_by(keys, "llama3");
    int64_t original = keys->original_context > 0 ? keys->original_context : c->context;
    if (is_scaled_by(keys, "ntk")) { /* has no name in config.json */
        (void)json_object_set_new(out, "rope_theta", json_real(ntk_theta(keys, c->head_dim)));
        return;
    }
    (void)json_object_set_new(out, "rope_theta", json_real(keys->theta));
    if (is_scaled_by(keys, "none")) {
        return;
    }
    json_t *scaling = json_object();
    (void)json_object_set_new(scaling, "rope_type", json_string(keys->scaling));
    (void)json_object_set_new(scaling, "factor", json_real(keys->factor));
    if (yarn || llama3) {
        (void)json_object_set_new(scaling, "original_max_position_embeddings",
                                  json_integer(original));
    }
    if (llama3) {
        (void)json_object_set_new(scaling, "low_freq_factor", json_real(keys->low_freq_factor));
        (void)json_object_set_new(scaling, "high_freq_factor", json_real(keys->high_freq_factor));
    }
    if (yarn) {
        (void)json_object_set_new(scaling, "beta_fast", json_real(keys->beta_fast));
        (void)json_object_set_new(scaling, "beta_slow", json_real(keys->beta_slow));
        if (keys->attention_factor > 0.0) {
            (void)json_object_set_new(scaling, "attention_factor",
                                      json_real(keys->attention_factor));
        }
    }
    (void)json_object_set_new(out, "rope_scaling", scaling);
}

static double mscale_of(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* YaRN's factor of cosines and sines is given itself, or follows from two other keys, one of which
 * is DeepSeek's; -1 if it follows from `factor` alone. */
static by_status read_yarn(by__nn_rope_keys *keys, const char *name, const json_t *in,
                           by_error *error)
{
    double mscale;
    double all;
    BY_TRY(by__nn_json_number(&keys->beta_fast, name, in, "beta_fast", 32.0, error));
    BY_TRY(by__nn_json_number(&keys->beta_slow, name, in, "beta_slow", 1.0, error));
    BY_TRY(by__nn_json_number(&mscale, name, in, "mscale", -1.0, error));
    BY_TRY(by__nn_json_number(&all, name, in, "mscale_all_dim", -1.0, error));
    BY_TRY(by__nn_json_number(&keys->attention_factor, name, in, "attention_factor", -1.0, error));
    if (keys->attention_factor < 0.0 && mscale > 0.0 && all > 0.0) {
        keys->attention_factor = mscale_of(keys->factor, mscale) / mscale_of(keys->factor, all);
    }
    return by__nn_json_expect_bool(name, in, "truncate", true, error);
}

static by_status read_llama3(by__nn_rope_keys *keys, const char *name, const json_t *in,
                             by_error *error)
{
    BY_TRY(by__nn_json_number(&keys->low_freq_factor, name, in, "low_freq_factor", 1.0, error));
    return by__nn_json_number(&keys->high_freq_factor, name, in, "high_freq_factor", 4.0, error);
}

/* Translates the type of scaling in an object to a choice of rope_scaling. */
static by_status read_type(by__nn_rope_keys *keys, const char *name, const json_t *in,
                           by_error *error)
{
    static const char *const known[] = {"default", "linear", "dynamic", "yarn", "llama3"};
    const json_t *type = json_object_get(in, "rope_type");
    if (type == NULL) {
        type = json_object_get(in, "type"); /* its former name */
    }
    const char *text = type == NULL ? "default" : json_string_value(type);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(known) && text != NULL; i++) {
        if (strcmp(text, known[i]) == 0) {
            return by__nn_set_string(&keys->scaling, i == 0 ? "none" : text, error);
        }
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: \"rope_type\" is \"%s\"; supported: default, linear, dynamic, yarn, "
                        "llama3",
                        name, text == NULL ? "(not a string)" : text);
}

static by_status read_scaling(by__nn_rope_keys *keys, const by_model_config *c, const char *name,
                              const json_t *root, const json_t *in, by_error *error)
{
    keys->factor = 1.0;
    keys->original_context = -1;
    keys->attention_factor = -1.0;
    BY_TRY(read_type(keys, name, in, error));
    if (is_scaled_by(keys, "none")) {
        return BY_OK;
    }
    bool by_context = is_scaled_by(keys, "yarn") || is_scaled_by(keys, "llama3");
    int64_t original;
    BY_TRY(by__nn_json_integer(&original, name, in, "original_max_position_embeddings", c->context,
                               error));
    BY_TRY(by__nn_json_integer(&original, name, root, "original_max_position_embeddings", original,
                               error));
    keys->original_context = by_context ? original : -1;
    bool implied = is_scaled_by(keys, "yarn") && c->context > original;
    BY_TRY(by__nn_json_number(&keys->factor, name, in, "factor",
                              implied ? (double)c->context / (double)original : -1.0, error));
    if (!(keys->factor >= 1.0 && keys->factor <= 1e6)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"factor\" of \"%s\" is not a number from 1 on",
                            name, keys->scaling);
    }
    return is_scaled_by(keys, "yarn")     ? read_yarn(keys, name, in, error)
           : is_scaled_by(keys, "llama3") ? read_llama3(keys, name, in, error)
                                          : BY_OK;
}

by_status by__nn_rope_read_config(by__nn_rope_keys *keys, const by_model_config *c, double theta,
                                  const char *name, const json_t *root, by_error *error)
{
    const json_t *in = json_object_get(root, "rope_scaling");
    double outer;
    if (!json_is_object(in)) {
        in = json_object_get(root, "rope_parameters");
    }
    BY_TRY(by__nn_json_number(&outer, name, root, "rope_theta", theta, error));
    BY_TRY(by__nn_json_number(&keys->theta, name, in, "rope_theta", outer, error));
    for (void *i = json_object_iter((json_t *)(uintptr_t)in); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)in, i)) {
        if (json_is_object(json_object_iter_value(i))) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: \"rope_parameters\" differ by layer (\"%.40s\"); one set for "
                                "all layers is supported",
                                name, json_object_iter_key(i));
        }
    }
    const json_t *part = json_object_get(in, "partial_rotary_factor");
    part = part == NULL ? json_object_get(root, "partial_rotary_factor") : part;
    if (json_is_number(part) && json_number_value(part) != 1.0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"partial_rotary_factor\" is %g; only heads that are rotated "
                            "whole are supported",
                            name, json_number_value(part));
    }
    return read_scaling(keys, c, name, root, in, error);
}
