/* banyan pack --images (pack_images.c). */
#ifndef CLI_DATA_PACK_IMAGES_H
#define CLI_DATA_PACK_IMAGES_H

#include "banyan/image_pack.h"
#include "base/cli.h"

/* Packs this process's share, and prints what came of it. Returns an exit code. */
int cli_pack_images(by_image_pack_options *options, bool json);

#endif
