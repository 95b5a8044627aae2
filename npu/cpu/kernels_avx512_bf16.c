//go:build unix

#define KERNELS_BF16
#include "kernels_avx512.c"
