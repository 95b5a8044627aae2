//go:build unix

#define _GNU_SOURCE
#include "../csrc/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_THREADS 1024
#define HUGE_PAGE (2 << 20)

/* The header of an allocation. It occupies BLOCK_BYTES, so that the values after it are aligned
 * to 64 bytes. */
typedef struct block {
  struct block *prev, *next;
} block;
#define BLOCK_BYTES 64

typedef struct {
  easyrl_device base;
  block blocks; /* head of the ring of all allocations */
} cpu_device;

/* Returns memory aligned to 64 bytes, or NULL. It asks for huge pages for a large block. */
static void *aligned(int64_t bytes) {
  void *mem;
  int huge = bytes >= 2 * HUGE_PAGE;
  if (posix_memalign(&mem, huge ? HUGE_PAGE : 64, (size_t)bytes)) return 0;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(mem, (size_t)bytes, MADV_HUGEPAGE);
#endif
  return mem;
}

easyrl_device *device_open(const char *name, int32_t threads, char *err, int64_t err_len) {
  if (threads <= 0) threads = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  if (threads < 1) threads = 1;
  if (threads > MAX_THREADS) {
    snprintf(err, (size_t)err_len, "%d threads, expected at most %d", (int)threads, MAX_THREADS);
    return 0;
  }
  cpu_device *d = calloc(1, sizeof *d);
  if (d) d->base.pool = pool_open(threads);
  if (!d || !d->base.pool) {
    snprintf(err, (size_t)err_len, "cannot start %d threads", (int)threads);
    free(d);
    return 0;
  }
  d->base.name = name;
  d->blocks.prev = d->blocks.next = &d->blocks;
  return &d->base;
}

easyrl_device *device_fork(easyrl_device *d, int32_t threads, char *err, int64_t err_len) {
  return device_open(d->name, threads, err, err_len);
}

void device_close(easyrl_device *base) {
  cpu_device *d = (cpu_device *)base;
  pool_close(base->pool);
  while (d->blocks.next != &d->blocks) device_free(base, (char *)d->blocks.next + BLOCK_BYTES);
  free(base->scratch);
  free(d);
}

const char *device_name(easyrl_device *d) { return d->name; }

int32_t device_threads(easyrl_device *d) { return pool_threads(d->pool); }

void device_limit(easyrl_device *d, int32_t n) { pool_limit(d->pool, n); }

void *device_alloc(easyrl_device *base, int64_t bytes) {
  cpu_device *d = (cpu_device *)base;
  if (bytes < 0 || bytes > INT64_MAX / 2) return 0;
  block *b = aligned(round_up(BLOCK_BYTES + bytes, 64));
  if (!b) return 0;
  b->prev = &d->blocks;
  b->next = d->blocks.next;
  b->prev->next = b->next->prev = b;
  return (char *)b + BLOCK_BYTES;
}

void device_free(easyrl_device *base, void *mem) {
  (void)base;
  if (!mem) return;
  block *b = (block *)((char *)mem - BLOCK_BYTES);
  b->prev->next = b->next;
  b->next->prev = b->prev;
  free(b);
}

void *device_host_alloc(easyrl_device *d, int64_t bytes) {
  (void)d;
  return bytes < 0 || bytes > INT64_MAX / 2 ? 0 : aligned(round_up(bytes, 64));
}

void device_host_free(easyrl_device *d, void *mem) {
  (void)d;
  free(mem);
}

float *device_scratch(easyrl_device *d, int64_t n) {
  if (n <= d->scratch_floats) return d->scratch;
  free(d->scratch);
  d->scratch = aligned(round_up(n * 4, 64));
  d->scratch_floats = d->scratch ? n : 0;
  if (!d->scratch) device_fail(d, "out of memory: cannot allocate %lld bytes of scratch", (long long)n * 4);
  return d->scratch;
}

void device_fail(easyrl_device *d, const char *format, ...) {
  if (d->failed) return;
  d->failed = 1;
  va_list args;
  va_start(args, format);
  vsnprintf(d->failure, sizeof d->failure, format, args);
  va_end(args);
}

int32_t device_sync(easyrl_device *d, char *err, int64_t err_len) {
  if (!d->failed) return 0;
  snprintf(err, (size_t)err_len, "%s", d->failure);
  d->failed = 0;
  return 1;
}

void device_transfer(easyrl_device *d, void *dst, const void *src, int64_t bytes) {
  (void)d;
  memmove(dst, src, (size_t)bytes);
}

void device_zero(easyrl_device *d, void *x, int64_t bytes) {
  (void)d;
  memset(x, 0, (size_t)bytes);
}

/* Returns the table of an instruction set by its number, in ascending order of speed. It returns NULL if this machine
 * does not support the instruction set. */
EASYRL_INTERNAL const easyrl_device_api *easyrl_cpu_table(int32_t isa, easyrl_dtype type) {
  typedef const easyrl_device_api *(*table)(void);
  static const table float32[] = {easyrl_cpu_portable, easyrl_cpu_avx2, easyrl_cpu_avx512};
  static const table bfloat16[] = {easyrl_cpu_portable_bf16, easyrl_cpu_avx2_bf16, easyrl_cpu_avx512_bf16};
  return (type == EASYRL_FLOAT32 ? float32 : bfloat16)[isa]();
}

__attribute__((visibility("default"))) const easyrl_device_api *easyrl_device_api_v5(easyrl_dtype type) {
  for (int32_t isa = 2; isa > 0; isa--)
    if (easyrl_cpu_table(isa, type)) return easyrl_cpu_table(isa, type);
  return easyrl_cpu_table(0, type);
}
