//go:build ignore

/* A device for tests, built as a shared library. It behaves like a device whose memory the host
 * cannot address: its memory is host memory, but its addresses are changed so that the host
 * faults if it uses one. It records calls, and runs them with the CPU's kernels when the host
 * waits. It fills new memory and freed memory with poison. */
#include "far.h"

#include <stdarg.h>

#define EXPORT __attribute__((visibility("default")))

_Static_assert(sizeof(void *) == 8, "addresses have 64 bits");

/* The build gives the CPU device in this library another entry name, and only one of its
 * instruction sets. */
#undef easyrl_device_api_v5
const easyrl_device_api *easyrl_far_cpu_api(easyrl_dtype);
#define ABSENT __attribute__((weak, visibility("hidden")))
ABSENT const easyrl_device_api *easyrl_cpu_avx512(void) { return 0; }
ABSENT const easyrl_device_api *easyrl_cpu_avx512_bf16(void) { return 0; }
ABSENT const easyrl_device_api *easyrl_cpu_avx2(void) { return 0; }
ABSENT const easyrl_device_api *easyrl_cpu_avx2_bf16(void) { return 0; }
ABSENT const easyrl_device_api *easyrl_cpu_portable(void) { return 0; }
ABSENT const easyrl_device_api *easyrl_cpu_portable_bf16(void) { return 0; }

static _Atomic int64_t counters[FAR_COUNTERS];
/* Bytes of live memory now, and their maximum since the last reset; the number of packed
 * matrices since then; and the number of the matrix whose packing fails, or 0 for none. */
static _Atomic int64_t live, peak, packs, broken;

static void far_count(int counter, int64_t n) { atomic_fetch_add(&counters[counter], n); }

EXPORT void easyrl_far_counters(int64_t *values) {
  for (int i = 0; i < FAR_COUNTERS; i++) values[i] = atomic_load(&counters[i]);
}

EXPORT void easyrl_far_reset(void) {
  for (int i = 0; i < FAR_COUNTERS; i++) atomic_store(&counters[i], 0);
  atomic_store(&peak, atomic_load(&live));
  atomic_store(&packs, 0);
  atomic_store(&broken, 0);
}

EXPORT void easyrl_far_memory(int64_t *values) {
  values[0] = atomic_load(&live);
  values[1] = atomic_load(&peak);
  values[2] = atomic_load(&packs);
}

EXPORT void easyrl_far_break(int64_t pack) { atomic_store(&broken, pack); }

/* Adds bytes to the live memory. */
static void far_use(int64_t bytes) {
  int64_t now = atomic_fetch_add(&live, bytes) + bytes, most = atomic_load(&peak);
  while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {}
}

/* Stops counting a block as live, once. A block counts as free when the caller frees it, although
 * commands may still use it, because an allocation that finds no memory would wait for them. */
static void far_unuse(far_block *b) {
  if (b->used) far_use(-b->bytes);
  b->used = 0;
}

static int far_breaks(void) { return atomic_fetch_add(&packs, 1) + 1 == atomic_load(&broken); }

static void far_fail(easyrl_device *d, const char *operand, const char *format, ...) {
  d->valid = 0;
  if (d->failed) return;
  d->failed = 1;
  int n = snprintf(d->failure, sizeof d->failure, "%s: %s: ", d->running, operand);
  va_list args;
  va_start(args, format);
  vsnprintf(d->failure + n, sizeof d->failure - (size_t)n, format, args);
  va_end(args);
}

static void far_poison(void *mem, int64_t bytes) {
  const uint32_t word = FAR_POISON;
  for (int64_t i = 0; i < bytes; i += 4) memcpy((char *)mem + i, &word, (size_t)(bytes - i < 4 ? bytes - i : 4));
}

/* Returns the number of blocks whose base is at most at. The caller of this and of the following
 * functions up to far_bury holds the mutex. */
static int64_t far_rank(const far_memory *m, const char *at) {
  int64_t lo = 0, hi = m->n;
  while (lo < hi) {
    int64_t mid = (lo + hi) / 2;
    if (m->blocks[mid]->base <= at) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* Returns the block that holds the host's address at, or NULL. */
static far_block *far_find(const far_memory *m, const char *at) {
  int64_t rank = far_rank(m, at);
  far_block *b = rank ? m->blocks[rank - 1] : 0;
  return b && at < b->base + b->bytes ? b : 0;
}

static void far_insert(far_memory *m, far_block *b) {
  if (m->n == m->room) {
    m->room = 2 * m->room + 64;
    m->blocks = realloc(m->blocks, (size_t)m->room * sizeof *m->blocks);
    if (!m->blocks) abort();
  }
  int64_t rank = far_rank(m, b->base);
  memmove(m->blocks + rank + 1, m->blocks + rank, (size_t)(m->n++ - rank) * sizeof *m->blocks);
  m->blocks[rank] = b;
}

static void far_remove(far_memory *m, far_block *b) {
  int64_t rank = far_rank(m, b->base);
  memmove(m->blocks + rank - 1, m->blocks + rank, (size_t)(m->n-- - rank) * sizeof *m->blocks);
  free(b->base);
  free(b);
}

/* Poisons a freed block and puts it into quarantine, so that late uses are found. Above its
 * limits, the quarantine releases its oldest blocks. */
static void far_bury(far_memory *m, far_block *b) {
  far_poison(b->base, b->bytes);
  far_unuse(b);
  b->state = FAR_FREED;
  *m->newest = b;
  m->newest = &b->next;
  m->freed++;
  m->freed_bytes += b->bytes;
  while (m->freed > FAR_QUARANTINE || m->freed_bytes > FAR_QUARANTINE_BYTES) {
    far_block *old = m->oldest;
    m->oldest = old->next;
    if (!m->oldest) m->newest = &m->oldest;
    m->freed--;
    m->freed_bytes -= old->bytes;
    far_remove(m, old);
  }
}

/* Returns at, a host address, if bytes from there on are within one block of the given state.
 * Otherwise records a failure and returns NULL. */
static void *far_within(easyrl_device *d, const char *operand, const char *at, int64_t bytes, far_state state) {
  far_memory *m = d->memory;
  pthread_mutex_lock(&m->mutex);
  const far_block *b = far_find(m, at);
  int64_t left = b ? b->bytes - (at - b->base) : 0;
  far_state found = b ? b->state : state;
  pthread_mutex_unlock(&m->mutex);
  if (b && found == state && bytes <= left) return (void *)(uintptr_t)at;
  if (!b || found == FAR_PINNED || state == FAR_PINNED) far_fail(d, operand, state == FAR_PINNED ? "memory is not pinned" : "no memory of the device");
  else if (found == FAR_FREED) far_fail(d, operand, "memory is free");
  else far_fail(d, operand, "%lld bytes at the last %lld of an allocation", (long long)bytes, (long long)left);
  return 0;
}

static void *far_near(easyrl_device *d, const char *operand, const void *address, int64_t bytes) {
  uintptr_t at = (uintptr_t)address;
  if (bytes == 0) return 0;
  if ((at & FAR_TAG) != FAR_TAG) {
    far_fail(d, operand, at ? "address of the host" : "no address");
    return 0;
  }
  return far_within(d, operand, (const char *)(at ^ FAR_TAG), bytes, FAR_LIVE);
}

static void *far_pinned(easyrl_device *d, const char *operand, const void *address, int64_t bytes) {
  return far_within(d, operand, address, bytes, FAR_PINNED);
}

static void far_indices(easyrl_device *d, const char *operand, const int32_t *p, int64_t n, int64_t lo, int64_t hi) {
  for (int64_t i = 0; p && i < n; i++) {
    if (p[i] >= lo && p[i] < hi) continue;
    far_fail(d, operand, "value %lld is %lld, expected %lld to %lld", (long long)i, (long long)p[i], (long long)lo, (long long)hi - 1);
    return;
  }
}

static void far_append(far_list *l, far_command *c) {
  if (!l->first) l->last = &l->first;
  *l->last = c;
  l->last = &c->next;
}

static void far_push(easyrl_device *d, const char *name, void (*run)(easyrl_device *, void *), const void *args, size_t bytes, const void *list,
                     size_t list_bytes) {
  far_command *c = calloc(1, sizeof *c + bytes + list_bytes);
  if (!c) abort();
  c->name = name;
  c->run = run;
  c->bytes = bytes + list_bytes;
  memcpy(c->args, args, bytes);
  if (list_bytes) memcpy(c->args + bytes, list, list_bytes);
  if (d->capture) {
    far_append(&d->capture->calls, c);
    return;
  }
  pthread_mutex_lock(&d->mutex);
  far_append(&d->queue, c);
  pthread_mutex_unlock(&d->mutex);
}

/* Takes the first command from the queue. Returns NULL if the queue is empty. */
static far_command *far_take(easyrl_device *d) {
  pthread_mutex_lock(&d->mutex);
  far_command *c = d->queue.first;
  if (c) d->queue.first = c->next;
  pthread_mutex_unlock(&d->mutex);
  return c;
}

/* Runs one command, and takes over a failure of the CPU device. */
static void far_run(easyrl_device *d, const char *name, void (*run)(easyrl_device *, void *), void *args) {
  char failure[sizeof d->failure];
  d->running = name;
  d->valid = 1;
  run(d, args);
  if (d->api->sync(d->cpu, failure, sizeof failure) && !d->failed) {
    d->failed = 1;
    memcpy(d->failure, failure, sizeof failure);
  }
}

static void far_flush(easyrl_device *d, const easyrl_event *end) {
  pthread_mutex_lock(&d->memory->running);
  for (far_command *c; !(end && atomic_load(&end->passed)) && (c = far_take(d));) {
    far_run(d, c->name, c->run, c->args);
    free(c);
  }
  pthread_mutex_unlock(&d->memory->running);
}

static void far_wait(easyrl_device *d) {
  pthread_mutex_lock(&d->mutex);
  int waits = d->queue.first != 0;
  pthread_mutex_unlock(&d->mutex);
  far_count(FAR_WAITS, waits);
  far_flush(d, 0);
}

#include "far_kernels.h"
#include "far_model.h"

ARGS(upload, char *dst; const char *pinned; int64_t bytes;)
RUN(upload) {
  a->pinned = far_pinned(d, "source", a->pinned, a->bytes);
  NEAR(dst, a->bytes);
  if (d->valid) memcpy(a->dst, a->pinned, (size_t)a->bytes);
}
static void far_upload(easyrl_device *d, void *dst, const void *pinned, int64_t bytes) {
  far_count(FAR_UPLOADS, 1);
  far_count(FAR_BYTES_UP, bytes);
  PUSH(upload, dst, pinned, bytes);
}

ARGS(download, char *pinned; const char *src; int64_t bytes;)
RUN(download) {
  a->pinned = far_pinned(d, "destination", a->pinned, a->bytes);
  NEAR(src, a->bytes);
  if (d->valid) memcpy(a->pinned, a->src, (size_t)a->bytes);
}
static void far_download(easyrl_device *d, void *pinned, const void *src, int64_t bytes) {
  far_count(FAR_DOWNLOADS, 1);
  far_count(FAR_BYTES_DOWN, bytes);
  far_poison(pinned, bytes);
  PUSH(download, pinned, src, bytes);
}

/* Allocates a poisoned block and returns its host address, or NULL. */
static void *far_new_block(easyrl_device *d, int64_t bytes, far_state state) {
  far_block *b = bytes > 0 ? calloc(1, sizeof *b) : 0;
  void *mem;
  if (!b || posix_memalign(&mem, 64, (size_t)bytes)) {
    free(b);
    return 0;
  }
  far_poison(mem, bytes);
  if (state == FAR_LIVE) far_use(bytes);
  *b = (far_block){.base = mem, .bytes = bytes, .state = state, .used = state == FAR_LIVE, .owner = d};
  pthread_mutex_lock(&d->memory->mutex);
  far_insert(d->memory, b);
  pthread_mutex_unlock(&d->memory->mutex);
  return mem;
}

static void *far_alloc(easyrl_device *d, int64_t bytes) {
  void *mem = far_new_block(d, bytes, FAR_LIVE);
  return mem ? (void *)((uintptr_t)mem ^ FAR_TAG) : 0;
}

static void *far_host_alloc(easyrl_device *d, int64_t bytes) { return far_new_block(d, bytes, FAR_PINNED); }

ARGS(free, char *mem;)
RUN(free) {
  if (!NEAR(mem, 1)) return;
  far_memory *m = d->memory;
  pthread_mutex_lock(&m->mutex);
  far_block *b = far_find(m, a->mem);
  if (b->base == a->mem) far_bury(m, b);
  else far_fail(d, "mem", "not the address of an allocation");
  pthread_mutex_unlock(&m->mutex);
}
static void far_free(easyrl_device *d, void *mem) {
  pthread_mutex_lock(&d->memory->mutex);
  far_block *b = far_find(d->memory, (char *)((uintptr_t)mem ^ FAR_TAG));
  if (b) far_unuse(b);
  pthread_mutex_unlock(&d->memory->mutex);
  PUSH(free, mem);
}

static void far_host_free(easyrl_device *d, void *mem) {
  pthread_mutex_lock(&d->memory->mutex);
  far_block *b = far_find(d->memory, mem);
  if (b && b->base == mem && b->state == FAR_PINNED) far_remove(d->memory, b);
  pthread_mutex_unlock(&d->memory->mutex);
}

/* Drops one reference to an event, and frees it after the last one. */
static void far_release(easyrl_event *e) {
  if (atomic_fetch_sub(&e->holders, 1) == 1) free(e);
}

ARGS(record, easyrl_event *event;)
RUN(record) {
  (void)d;
  atomic_store(&a->event->passed, 1);
  far_release(a->event);
}
static easyrl_event *far_record(easyrl_device *d) {
  easyrl_event *e = calloc(1, sizeof *e);
  if (!e) return 0;
  e->device = d;
  atomic_store(&e->holders, 2);
  PUSH(record, e);
  return e;
}

ARGS(await, easyrl_event *event;)
RUN(await) {
  if (!atomic_load(&a->event->passed)) far_flush(a->event->device, a->event);
  if (!atomic_load(&a->event->passed)) far_fail(d, "event", "its queue has not run up to it");
  far_release(a->event);
}
static void far_await(easyrl_device *d, easyrl_event *e) {
  atomic_fetch_add(&e->holders, 1);
  PUSH(await, e);
}

static void far_event_free(easyrl_event *e) { far_release(e); }

static void far_capture(easyrl_device *d) {
  d->capture = calloc(1, sizeof *d->capture);
  if (!d->capture) abort();
}

static easyrl_graph *far_captured(easyrl_device *d, char *err, int64_t err_len) {
  (void)err, (void)err_len;
  easyrl_graph *g = d->capture;
  d->capture = 0;
  g->next = d->graphs;
  d->graphs = g;
  far_count(FAR_CAPTURES, 1);
  return g;
}

ARGS(replay, easyrl_graph *graph;)
RUN(replay) {
  for (far_command *c = a->graph->calls.first; c; c = c->next) {
    void *args = malloc(c->bytes + 1);
    if (!args) abort();
    memcpy(args, c->args, c->bytes);
    far_run(d, c->name, c->run, args);
    free(args);
  }
}
static void far_replay(easyrl_device *d, easyrl_graph *g) {
  far_count(FAR_REPLAYS, 1);
  PUSH(replay, g);
}

ARGS(graph_free, easyrl_graph *graph;)
RUN(graph_free) {
  easyrl_graph **at = &d->graphs;
  while (*at && *at != a->graph) at = &(*at)->next;
  if (!*at) return; /* not one of this device */
  *at = a->graph->next;
  for (far_command *c = a->graph->calls.first, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  free(a->graph);
}
static void far_graph_free(easyrl_device *d, easyrl_graph *g) { PUSH(graph_free, g); }

/* Opens a queue on a memory. */
static easyrl_device *far_queue(far_memory *m, easyrl_dtype type, int32_t ordinal, int32_t threads, char *err, int64_t err_len) {
  easyrl_device *d = calloc(1, sizeof *d);
  if (!d || !m) {
    snprintf(err, (size_t)err_len, "out of memory");
    free(d);
    return 0;
  }
  d->memory = m;
  pthread_mutex_init(&d->mutex, 0);
  d->api = easyrl_far_cpu_api(type);
  d->cpu = d->api->open(ordinal, threads, err, err_len);
  if (!d->cpu) {
    free(d);
    return 0;
  }
  snprintf(d->name, sizeof d->name, "far/%s", d->api->name(d->cpu) + strlen("cpu/"));
  pthread_mutex_lock(&m->mutex);
  m->queues++;
  pthread_mutex_unlock(&m->mutex);
  return d;
}

static easyrl_device *far_open_type(easyrl_dtype type, int32_t ordinal, int32_t threads, char *err, int64_t err_len) {
  far_memory *m = calloc(1, sizeof *m);
  if (m) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&m->running, &recursive);
    pthread_mutexattr_destroy(&recursive);
    pthread_mutex_init(&m->mutex, 0);
    m->newest = &m->oldest;
  }
  easyrl_device *d = far_queue(m, type, ordinal, threads, err, err_len);
  if (!d) free(m);
  return d;
}

static easyrl_device *far_open(int32_t ordinal, int32_t threads, char *err, int64_t err_len) {
  return far_open_type(EASYRL_FLOAT32, ordinal, threads, err, err_len);
}

static easyrl_device *far_open_bf16(int32_t ordinal, int32_t threads, char *err, int64_t err_len) {
  return far_open_type(EASYRL_BFLOAT16, ordinal, threads, err, err_len);
}

static easyrl_device *far_fork(easyrl_device *d, int32_t threads, char *err, int64_t err_len) {
  return far_queue(d->memory, d->api->type, 0, threads, err, err_len);
}

/* Frees everything that the queue has allocated. The caller holds the mutex. */
static void far_abandon(easyrl_device *d) {
  far_memory *m = d->memory;
  for (int64_t i = m->n - 1; i >= 0; i--) {
    far_block *b = m->blocks[i];
    if (b->owner != d) continue;
    if (b->state == FAR_PINNED) far_remove(m, b);
    else if (b->state == FAR_LIVE) far_bury(m, b);
    i = i < m->n ? i : m->n; /* old blocks may have left */
  }
}

static void far_close(easyrl_device *d) {
  far_memory *m = d->memory;
  for (easyrl_graph *g = d->graphs; g; g = g->next) far_graph_free(d, g);
  far_flush(d, 0);
  pthread_mutex_lock(&m->mutex);
  far_abandon(d);
  int32_t left = --m->queues;
  pthread_mutex_unlock(&m->mutex);
  if (left == 0) {
    while (m->n) far_remove(m, m->blocks[m->n - 1]);
    pthread_mutex_destroy(&m->mutex);
    pthread_mutex_destroy(&m->running);
    free(m->blocks);
    free(m);
  }
  d->api->close(d->cpu);
  pthread_mutex_destroy(&d->mutex);
  free(d);
}

static const char *far_name(easyrl_device *d) { return d->name; }

static int64_t far_matrix_len(easyrl_device *d, int32_t rows, int32_t cols) { return far_matrix(d, rows, cols); }

static int32_t far_sync(easyrl_device *d, char *err, int64_t err_len) {
  far_wait(d);
  if (!d->failed) return 0;
  snprintf(err, (size_t)err_len, "%s", d->failure);
  d->failed = 0;
  return 1;
}

#define ENTRY(kernel) .kernel = far_##kernel

EXPORT const easyrl_device_api *easyrl_device_api_v5(easyrl_dtype type) {
  static const easyrl_device_api table = {
      .version = EASYRL_DEVICE_VERSION,
      .size = sizeof table,
      .exact = 1,
      ENTRY(open), ENTRY(fork), ENTRY(close), ENTRY(name), ENTRY(alloc), ENTRY(free), ENTRY(host_alloc), ENTRY(host_free), ENTRY(sync),
      ENTRY(record), ENTRY(await), ENTRY(event_free), ENTRY(capture), ENTRY(captured), ENTRY(replay), ENTRY(graph_free),
      ENTRY(upload), ENTRY(download), ENTRY(copy), ENTRY(zero), ENTRY(convert), ENTRY(add),
      ENTRY(matrix_len), ENTRY(pack_matrix), ENTRY(unpack_matrix), ENTRY(sum_panels),
      ENTRY(embed), ENTRY(embed_backward), ENTRY(linear), ENTRY(linear_backward_input), ENTRY(linear_backward_weight),
      ENTRY(rms_norm), ENTRY(norm_linear), ENTRY(rms_norm_backward), ENTRY(rope), ENTRY(swiglu), ENTRY(swiglu_backward),
      ENTRY(attention), ENTRY(attention_backward), ENTRY(cache_write), ENTRY(attention_cached), ENTRY(gather_rows), ENTRY(scatter_add_rows), ENTRY(set_ints),
      ENTRY(softmax_max), ENTRY(softmax_sum), ENTRY(softmax_finish), ENTRY(softmax_backward), ENTRY(sample),
      ENTRY(adamw), ENTRY(sum_squares), ENTRY(sum_squares_exact),
  };
  static easyrl_device_api bf16;
  if (type == EASYRL_FLOAT32) return &table;
  bf16 = table;
  bf16.type = EASYRL_BFLOAT16;
  bf16.open = far_open_bf16;
  return &bf16;
}
