//go:build unix

#include "declare.h"

#define MMA_TABLE mma_portable
#define MMA_SUPPORTED 1
#include "product.h"
