//go:build unix

#define KERNELS_BF16
#include "kernels_avx2.c"
