/* How wide a register tile over packed panels is: two vectors of columns with many rows; with few,
 * all columns of a panel, whose memory is then read in one stream. Several passes would each read a
 * part of every step. */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_PACKED_TILE_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_PACKED_TILE_H

#include "base/packing/packing.h"
#include "device/cpu/kernels/simd.h"

#define BY__PANEL_VECTORS (BY_PACKED_COLUMNS / BY__LANES)
/* Up to so many rows have the sums of a whole panel in registers. */
#if defined(__AVX2__) || defined(__aarch64__)
#define BY__WIDE_ROWS 2
#else
#define BY__WIDE_ROWS 1
#endif
/* Vectors of columns of a tile. */
#define BY__TILE_VECTORS(height) ((height) <= BY__WIDE_ROWS ? BY__PANEL_VECTORS : 2)
#define BY__EACH_VECTOR          _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)

#endif
