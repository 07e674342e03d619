/* Shares in which two images are mixed. */
#ifndef BY_DATA_TRANSFORM_MIX_H
#define BY_DATA_TRANSFORM_MIX_H

#include "data/transform/transform.h"

/* Parts into which a share is divided: shares of pixels are whole numbers of them, so that no
 * processor rounds them differently. */
#define BY__MIX_PARTS 256

/* Parameters of transforms that mix, in this order: alpha of the distribution and how often. */
enum { BY__MIX_ALPHA, BY__MIX_PROBABILITY };

/* Draws the share of the first image from Beta(alpha, alpha), rounded, in parts; all of them if the
 * draw is not to mix. Uses blocks from 1 on; words 0 and 1 of block 0 are the caller's. */
uint32_t by__transform_mix_share(const double *parameters, const by__transform_draw *draw);

#endif
