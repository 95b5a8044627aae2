//go:build unix

/* NEON on arm64, plain C with a correctly rounded fmaf elsewhere. */
#define KERNELS_TABLE KERNELS_TABLE_OF(portable)
#define KERNELS_SUPPORTED 1
#include "../csrc/kernels.h"
