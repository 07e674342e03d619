/* The table of transforms, and chains of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/transform/transform.h"

/* Stream of the partner of a mixed sample: its place, and the seed of all draws for its image. */
#define STREAM_PARTNER 0x70617274u /* "part" in ASCII */

/* One row per transform: by__transform_NAME of NAME.c. */
#define TRANSFORMS(ROW)                                                                            \
    ROW(shift)                                                                                     \
    ROW(flip)                                                                                      \
    ROW(resized_crop)                                                                              \
    ROW(rotate)                                                                                    \
    ROW(jitter)                                                                                    \
    ROW(erase)                                                                                     \
    ROW(randaugment)                                                                               \
    ROW(autoaugment)                                                                               \
    ROW(autoaugment_cifar)                                                                         \
    ROW(mixup)                                                                                     \
    ROW(cutmix)

#define DECLARE(name) extern const by__transform_row by__transform_##name;
#define ADDRESS(name) &by__transform_##name,
TRANSFORMS(DECLARE)
static const by__transform_row *const rows[] = {TRANSFORMS(ADDRESS)};

/* ---- from text ---- */

static const by__transform_row *find_row(const char *name, size_t length)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (strlen(rows[i]->name) == length && memcmp(rows[i]->name, name, length) == 0) {
            return rows[i];
        }
    }
    return NULL;
}

static size_t parameters_of(const by__transform_row *row)
{
    size_t count = 0;
    while (count < BY__TRANSFORM_PARAMETERS && row->parameters[count].name != NULL) {
        count++;
    }
    return count;
}

static by_status refuse_name(const char *text, by_error *error)
{
    char names[512];
    size_t at = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows) && at < sizeof names; i++) {
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i == 0 ? "" : ", ",
                               rows[i]->name);
        for (size_t k = 0; k < parameters_of(rows[i]) && at < sizeof names; k++) {
            at += (size_t)snprintf(names + at, sizeof names - at, "%c%s", k == 0 ? '=' : ':',
                                   rows[i]->parameters[k].name);
        }
    }
    return by_error_set(error, BY_EARG, "'%s' is none of the transforms: %s", text, names);
}

static by_status parse_value(by__transform_step *step, size_t i, const char *text, size_t length,
                             const char *whole, by_error *error)
{
    char number[64];
    if (i >= parameters_of(step->row)) {
        return by_error_set(error, BY_EARG, "'%s': %s takes %zu values", whole, step->row->name,
                            parameters_of(step->row));
    }
    const by__transform_parameter *p = &step->row->parameters[i];
    double value = (double)NAN;
    if (length > 0 && length < sizeof number) {
        memcpy(number, text, length);
        number[length] = '\0';
        value = by__parse_f64(number, &value) ? value : (double)NAN;
    }
    if (!(value >= p->min && value <= p->max) || (p->whole && value != rint(value))) {
        return by_error_set(error, BY_EARG, "'%s': %s must be a %snumber from %g to %g", whole,
                            p->name, p->whole ? "whole " : "", p->min, p->max);
    }
    step->parameters[i] = value;
    return BY_OK;
}

by_status by__transform_add(by__transform_chain *chain, const char *text, by_error *error)
{
    size_t length = strcspn(text, "=");
    by__transform_step step = {.row = find_row(text, length)};
    if (step.row == NULL) {
        return refuse_name(text, error);
    }
    if (chain->count == BY__TRANSFORM_CHAIN) {
        return by_error_set(error, BY_EARG, "'%s': there are at most %d transforms", text,
                            BY__TRANSFORM_CHAIN);
    }
    for (size_t i = 0; i < parameters_of(step.row); i++) {
        step.parameters[i] = step.row->parameters[i].fallback;
    }
    const char *at = text + length;
    for (size_t i = 0; *at != '\0'; i++) {
        size_t digits = strcspn(++at, ":");
        BY_TRY(parse_value(&step, i, at, digits, text, error));
        at += digits;
    }
    for (size_t i = 0; i < chain->count; i++) {
        step.turn += chain->steps[i].row == step.row;
        if (step.row->mix != NULL && chain->steps[i].row->mix != NULL) {
            return by_error_set(error, BY_EARG,
                                "'%s': only one transform mixes images, and %s does already", text,
                                chain->steps[i].row->name);
        }
    }
    chain->steps[chain->count++] = step;
    return BY_OK;
}

/* ---- chains ---- */

by_status by__transform_check(const by__transform_chain *chain, by_error *error)
{
    for (size_t i = 0; i < chain->count; i++) {
        const by__transform_step *s = &chain->steps[i];
        BY_TRY(s->row->check == NULL ? BY_OK : s->row->check(s->parameters, &chain->size, error));
    }
    return BY_OK;
}

static size_t image_bytes(const by__transform_chain *chain)
{
    const by__transform_size *size = &chain->size;
    return by__round_up(size->channels * size->height * size->width, BY_CACHE_LINE);
}

/* Images of a thread: two for each that the steps change in turn. */
static size_t image_count(const by__transform_chain *chain)
{
    return by__transform_mixes(chain) ? 4 : 2;
}

size_t by__transform_scratch(const by__transform_chain *chain)
{
    size_t most = 0;
    for (size_t i = 0; i < chain->count; i++) {
        const by__transform_row *row = chain->steps[i].row;
        size_t own = row->scratch == NULL ? 0 : row->scratch(&chain->size);
        most = own > most ? own : most;
    }
    return chain->count == 0
               ? 0
               : image_count(chain) * image_bytes(chain) + by__round_up(most, BY_CACHE_LINE);
}

bool by__transform_mixes(const by__transform_chain *chain)
{
    bool mixes = false;
    for (size_t i = 0; i < chain->count; i++) {
        mixes = mixes || chain->steps[i].row->mix != NULL;
    }
    return mixes;
}

uint64_t by__transform_partner(const by_source_sample *sample, uint64_t samples)
{
    uint32_t random[4];
    by_source_random(sample, STREAM_PARTNER, random);
    return ((uint64_t)random[0] << 32 | random[1]) % samples;
}

by_source_sample by__transform_partner_sample(const by_source_sample *sample)
{
    by_source_sample partner = *sample;
    uint32_t random[4];
    by_source_random(sample, STREAM_PARTNER, random);
    partner.seed = (uint64_t)random[2] << 32 | random[3];
    return partner;
}

static by__transform_draw draw_of(const by__transform_step *s, const by_source_sample *sample,
                                  void *scratch)
{
    return (by__transform_draw){
        .sample = sample, .purpose = s->row->stream + (s->turn << 32), .scratch = scratch};
}

by__transform_draw by__transform_draw_of(const by__transform_step *step,
                                         const by_source_sample *sample)
{
    return draw_of(step, sample, NULL);
}

/* Applies the steps from *at on up to one that mixes, in two images of scratch. */
static const uint8_t *apply_steps(const by__transform_chain *chain, size_t *at,
                                  const by_source_sample *sample, const uint8_t *in,
                                  uint8_t *const images[2], void *own)
{
    for (; *at < chain->count && chain->steps[*at].row->mix == NULL; ++*at) {
        const by__transform_step *s = &chain->steps[*at];
        const by__transform_draw draw = draw_of(s, sample, own);
        uint8_t *out = images[in == images[0]];
        if ((s->row->moves || !chain->size.labels) &&
            s->row->apply(s->parameters, &chain->size, &draw, in, out)) {
            in = out;
        }
    }
    return in;
}

const uint8_t *by__transform_apply(const by__transform_chain *chain, const by_source_sample *sample,
                                   const uint8_t *in, const uint8_t *other, void *scratch,
                                   double *share)
{
    size_t bytes = image_bytes(chain);
    uint8_t *const images[2] = {scratch, (uint8_t *)scratch + bytes};
    void *own = (uint8_t *)scratch + image_count(chain) * bytes;
    size_t at = 0;
    *share = 1.0;
    in = apply_steps(chain, &at, sample, in, images, own);
    if (at == chain->count) {
        return in;
    }
    uint8_t *const others[2] = {(uint8_t *)scratch + 2 * bytes, (uint8_t *)scratch + 3 * bytes};
    const by__transform_step *mixing = &chain->steps[at];
    const by__transform_draw draw = draw_of(mixing, sample, own);
    const by_source_sample partner = by__transform_partner_sample(sample);
    size_t same = 0;
    other = apply_steps(chain, &same, &partner, other, others, own);
    uint8_t *out = images[in == images[0]];
    *share = mixing->row->mix(mixing->parameters, &chain->size, &draw, in, other, out);
    at++;
    return apply_steps(chain, &at, sample, *share < 1.0 ? out : in, images, own);
}

const uint8_t *by__transform_apply_labels(const by__transform_chain *chain,
                                          const by_source_sample *sample, const uint8_t *in,
                                          void *scratch)
{
    by__transform_chain plane = *chain;
    size_t bytes = image_bytes(chain);
    uint8_t *const images[2] = {scratch, (uint8_t *)scratch + bytes};
    size_t at = 0;
    plane.size.channels = 1;
    plane.size.labels = true;
    return apply_steps(&plane, &at, sample, in, images,
                       (uint8_t *)scratch + image_count(chain) * bytes);
}
