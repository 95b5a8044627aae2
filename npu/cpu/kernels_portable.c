//go:build unix

/* NEON on arm64, plain C with a correctly rounded fmaf elsewhere. */
#define KERNELS_TABLE easyrl_cpu_portable
#define KERNELS_SUPPORTED 1
#include "../csrc/kernels.h"
