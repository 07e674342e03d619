/* Normal forms of Unicode, and the case of letters. The tables are made by
 * scripts/make_unicode_forms.py. */
#ifndef BY_DATA_TOKENIZER_UNICODE_FORMS_H
#define BY_DATA_TOKENIZER_UNICODE_FORMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

/* Full decompositions of a code point as stretches of by__form_pool; canonical_length 0: itself. */
typedef struct by__decomposition {
    uint32_t code;
    uint16_t canonical;
    uint16_t compatible;
    uint8_t canonical_length;
    uint8_t compatible_length;
} by__decomposition;

typedef struct by__composition {
    uint32_t first;
    uint32_t second;
    uint32_t code;
} by__composition;

typedef struct by__code_range {
    uint32_t first;
    uint32_t last;
    uint32_t value;
} by__code_range;

/* All sorted by code point (compositions by first, then second). */
extern const uint32_t by__form_pool[];
extern const by__decomposition by__decompositions[];
extern const by__composition by__compositions[];
extern const by__code_range by__combining[]; /* combining classes that are not 0 */
extern const by__code_range by__suspects[];  /* what may change under NFC */
extern const by__code_range by__cases[];     /* by__case_class */
extern const size_t by__decomposition_count;
extern const size_t by__composition_count;
extern const size_t by__combining_count;
extern const size_t by__suspect_count;
extern const size_t by__case_count;

/* Case of a letter; BY__CASE_EITHER for letters without case. 0: neither letter nor mark. */
enum { BY__CASE_UPPER = 1, BY__CASE_LOWER = 2, BY__CASE_EITHER = 3, BY__CASE_MARK = 4 };
unsigned by__case_class(uint32_t code);

typedef enum by__form { BY__NFC, BY__NFD, BY__NFKC, BY__NFKD } by__form;

/* Code points of a text while it is brought to a normal form. {0} is empty. */
typedef struct by__codes {
    uint32_t *items;
    size_t count;
    size_t capacity;
} by__codes;

/* False when the form surely is the text as it is. */
bool by__form_changes(by__form form, const uint8_t *s, size_t n);
/* The normal form of s as code points, appended to `codes`; a byte that is not valid UTF-8 becomes
 * BY__BYTE_CODE + byte and stays where it is. */
#define BY__BYTE_CODE 0x110000u
by_status by__form_make(by__form form, const uint8_t *s, size_t n, by__codes *codes,
                        by_error *error);

#endif
