/* The contract between easyrl and a device: a table of functions over opaque
 * handles, in plain C. A device library exports
 *
 *     const easyrl_device_api *easyrl_device_api_v5(easyrl_dtype type);
 *
 * which returns the table for weights and activations of a type, or NULL if the library lacks it: float32
 * values are npu.FP32, bfloat16 values npu.BF16.
 *
 * Meaning, shapes and the order of every reduction are those of npu.Device in
 * npu.go, function by function. This header only defines how they are called.
 *
 * A device is memory and a queue. A call adds work to the queue and may return before the
 * work is done. The queue does its work in the order of the calls. Only sync, sum_squares,
 * sum_squares_exact and sum_panels wait for the queue. Kernels return nothing: a device
 * records its first failure, which sync returns. The caller uses a device from one thread at
 * a time. Other threads may use its forks meanwhile. The thread may change from call to
 * call, so each call sets the thread state it needs (in CUDA, the current device).
 *
 * Pointers, also those to indices, segments and sampling parameters, are addresses in the
 * device's memory, with two exceptions. A parameter named host... points to host memory,
 * which the device does not use after the call returns. A parameter named pinned... points
 * to memory of host_alloc, which the queue uses until the next wait. */
#ifndef EASYRL_DEVICE_H
#define EASYRL_DEVICE_H

#include <stdint.h>

#define EASYRL_DEVICE_VERSION 5
#define EASYRL_PAGE_SIZE 16
#define EASYRL_UNIT_ROWS 256
#define EASYRL_KEY_TILE 64    /* npu.KeyTile */
#define EASYRL_KEY_SPLIT 512  /* npu.KeySplit */
#define EASYRL_ROW_TILE 64    /* npu.RowTile */
#define EASYRL_PART_ROWS 1024  /* npu.PartRows */
#define EASYRL_QUERY_BLOCK 64 /* npu.QueryBlock */
#define EASYRL_SOFTMAX_SUMS 4 /* sums of a row of softmax_sum, see npu.Device.SoftmaxSum */

typedef struct easyrl_device easyrl_device;
typedef struct easyrl_event easyrl_event; /* a point in a queue */
typedef struct easyrl_graph easyrl_graph; /* recorded calls */

/* Types of values, and what a product does with its output (npu.Start). */
typedef uint32_t easyrl_dtype, easyrl_start;
enum { EASYRL_FLOAT32, EASYRL_BFLOAT16 };
enum { EASYRL_FRESH, EASYRL_CONTINUE, EASYRL_ADD };

/* before is the number of rows of all ancestors. */
typedef struct { int32_t start, len, parent, before; } easyrl_segment;

/* Rows of a segment from its row first on, at most EASYRL_ROW_TILE. Segment -1 marks an empty tile. */
typedef struct { int32_t segment, first; } easyrl_tile;
typedef struct { int32_t q, kv, dim, window; } easyrl_heads;
typedef struct { float temperature, top_p, min_p; int32_t top_k; float uniform; } easyrl_sample_params;
typedef struct { float lr, beta1, beta2, eps, weight_decay, grad_scale; int32_t step; } easyrl_adamw_params;

/* A matrix [rows, cols] in the device's own layout, which is the same for both types. Its values are weights, but
 * float32 in pack_matrix, unpack_matrix and sum_panels. */
typedef struct { void *data; int32_t rows, cols; } easyrl_matrix;

/* Fixed-point sums and their mark. The mark is 0 if all values were in range. Otherwise it
 * holds the float32 bits of the largest magnitude among the values out of range; NaN counts
 * as the largest, with the bits 0x7fc00000. The sums of a matrix have the matrix's layout. */
typedef struct { int64_t *data, *mark; } easyrl_sums;
typedef struct { easyrl_sums sums; int32_t rows, cols; } easyrl_matrix_sums;

typedef struct { float scale, limit; } easyrl_fixed_point;

/* n leaves that cover rows [0, rows), and n_units units of at most EASYRL_UNIT_ROWS rows that cover
 * them too. Leaf i ends before row ends[i], unit i before row units[i]. Both may be empty. */
typedef struct { const int32_t *ends, *units; int32_t n, n_units, rows; easyrl_fixed_point format; } easyrl_leaves;

/* A forest of n segments. rows is one more than the last row of all segments. The tiles of a tree follow each other;
 * segments and rows ascend. Empty tiles come last. */
typedef struct { const easyrl_segment *list; const easyrl_tile *tiles; int32_t n, n_tiles, rows; } easyrl_segments;

/* The ids of t tokens, and lists lists of rows. The rows of list i are rows[starts[i]] to
 * rows[starts[i+1]-1]; they have the same id and are in one unit. Lists of one id are adjacent. Only
 * lists at the end may be empty. */
typedef struct { const int32_t *ids, *rows, *starts; int32_t t, lists; } easyrl_tokens;

/* n query rows. Row rows[i] of pages, which has rows of stride entries, lists the pages of row i's sequence, and
 * lens[i], at most longest, is the number of its positions that row i sees. Block b, 0 <= b < n, has rows
 * blocks[b] to blocks[b + 1], at most EASYRL_QUERY_BLOCK, of one sequence; their lens do not fall. Blocks may be empty. */
typedef struct { const int32_t *pages, *rows, *lens, *blocks; int32_t n, stride, longest; } easyrl_tables;

/* A term of linear_backward_input: dy [t, w.rows]. */
typedef struct { const void *dy; easyrl_matrix w; int32_t block; } easyrl_product;

/* An output of norm_linear: y [t, w.rows]. bias may be NULL. */
typedef struct { void *y; easyrl_matrix w; const void *bias; } easyrl_projection;

/* n values to update, with their gradient and moments. copy, which may be NULL, receives the new values as
 * weights of the table's type. Without decay, weight_decay counts as 0. */
typedef struct { float *w; void *copy; easyrl_sums g; float *m, *v; int64_t n; int32_t decay; } easyrl_update;

typedef struct { const float *data; int64_t n; } easyrl_values;
typedef struct { easyrl_sums sums; int64_t n; } easyrl_gradient;

/* A 192-bit unsigned integer, least significant word first. */
typedef struct { uint64_t words[3]; } easyrl_wide;

/* worst is the mark as a float32. sum is undefined unless worst is 0. */
typedef struct { easyrl_wide sum; float worst; } easyrl_squares;

typedef struct {
  uint32_t version; /* EASYRL_DEVICE_VERSION */
  uint32_t size;    /* sizeof(easyrl_device_api). A later header may add entries at the end. */
  uint32_t exact;   /* 1 if kernels have the bits of npu.Device's chains and folds */

  /* 1 if device addresses are addresses in host memory. upload and download then take
   * any host memory and are done when they return. */
  uint32_t host_memory;

  /* The type of weights and activations. Pointers to them are void *. The host's values are float32. */
  easyrl_dtype type;

  /* open returns NULL and writes a line to err (of err_len bytes) on failure. ordinal
   * selects one of several devices. threads, 0 for all, is for devices of CPU cores. */
  easyrl_device *(*open)(int32_t ordinal, int32_t threads, char *err, int64_t err_len);
  /* fork opens another queue on the same memory, with its own failure. Kernels of all
   * queues may use memory that any of them allocated. Queues are not ordered with each
   * other: before one queue uses what another wrote, the caller syncs the writer or makes the
   * reader await its event. fork reports an error as open does. Any thread may call it at any
   * time. */
  easyrl_device *(*fork)(easyrl_device *, int32_t threads, char *err, int64_t err_len);
  /* close frees the queue, its graphs and everything allocated with it. The caller closes
   * forks before their origin. */
  void (*close)(easyrl_device *);
  const char *(*name)(easyrl_device *);
  /* threads returns the number of threads of the device. limit sets the number of threads
   * for kernels called from now on to n, which is from 1 to threads(). Any thread may call
   * limit at any time. Both are NULL unless kernels run on CPU cores. */
  int32_t (*threads)(easyrl_device *);
  void (*limit)(easyrl_device *, int32_t n);

  /* alloc returns memory aligned to 64 bytes, or NULL. Its content is undefined. All queues
   * may use it immediately. free takes effect after the calls so far. */
  void *(*alloc)(easyrl_device *, int64_t bytes);
  void (*free)(easyrl_device *, void *);
  /* host_alloc returns pinned memory, which is host memory that the queue may access, aligned
   * to 64 bytes. It returns NULL on failure. The caller calls host_free only when the queue is
   * empty. */
  void *(*host_alloc)(easyrl_device *, int64_t bytes);
  void (*host_free)(easyrl_device *, void *host);
  /* sync waits for the queue and returns 0, or 1 with a line in err. It then clears the
   * failure, unless no later call can succeed. */
  int32_t (*sync)(easyrl_device *, char *err, int64_t err_len);

  /* record returns an event that marks the end of the calls so far, or NULL if out of memory.
   * await makes later calls of this queue run after an event of another queue on the same
   * memory. Any thread may call event_free, even before an await has taken effect or after
   * the event's queue is closed. All three are NULL if each call finishes its work before it
   * returns. */
  easyrl_event *(*record)(easyrl_device *);
  void (*await)(easyrl_device *, easyrl_event *);
  void (*event_free)(easyrl_event *);

  /* capture makes the device record the following calls of copy, zero and kernels instead of
   * running them, until captured. In between, the caller makes no other call on this queue,
   * except matrix_len. It may make any call on other queues, and may call captured from
   * another thread (in CUDA, use the relaxed capture mode). captured returns the graph, or
   * NULL with a line in err if capture or a call in between failed. sync does not return such
   * a failure. replay queues the recorded calls with their original arguments. Scalars and
   * lists in host memory, which the graph copies, are the same in every replay. The content
   * of device memory, index arrays included, may change between replays. Scratch that a graph
   * uses lives as long as the graph. The caller does not replay a graph after it has freed
   * memory that the graph uses. graph_free takes effect after the calls so far. All four are
   * NULL if the device cannot record. */
  void (*capture)(easyrl_device *);
  easyrl_graph *(*captured)(easyrl_device *, char *err, int64_t err_len);
  void (*replay)(easyrl_device *, easyrl_graph *);
  void (*graph_free)(easyrl_device *, easyrl_graph *);

  void (*upload)(easyrl_device *, void *dst, const void *pinned, int64_t bytes);
  void (*download)(easyrl_device *, void *pinned, const void *src, int64_t bytes);
  void (*copy)(easyrl_device *, void *dst, const void *src, int64_t bytes);
  void (*zero)(easyrl_device *, void *, int64_t bytes);
  /* The types differ. The table for float32 may have NULL. */
  void (*convert)(easyrl_device *, void *y, easyrl_dtype y_type, const void *x, easyrl_dtype x_type, int64_t n);
  void (*add)(easyrl_device *, float *y, const float *x, int64_t n);

  int64_t (*matrix_len)(easyrl_device *, int32_t rows, int32_t cols);
  void (*pack_matrix)(easyrl_device *, easyrl_matrix, const float *pinned_src);
  void (*unpack_matrix)(easyrl_device *, float *pinned_dst, easyrl_matrix);
  /* sum_panels waits, and writes the sums of all panels of n matrices, in order. A matrix with
   * cols 0 is a vector of rows values, which is one panel. If it fails, sync returns the
   * failure. */
  void (*sum_panels)(easyrl_device *, uint64_t *host_sums, const easyrl_matrix *host_m, int32_t n);

  void (*embed)(easyrl_device *, float *y, easyrl_matrix table, const int32_t *ids, int32_t t);
  void (*embed_backward)(easyrl_device *, easyrl_matrix_sums d_table, const float *dy, easyrl_tokens, easyrl_fixed_point);
  /* bias may be NULL. With a start other than EASYRL_FRESH, y is float32 and bias NULL. */
  void (*linear)(easyrl_device *, void *y, easyrl_dtype y_type, const void *x, easyrl_matrix w, const void *bias, int32_t t,
                 easyrl_start);
  /* With a start other than EASYRL_FRESH, dx is float32. The start is never EASYRL_ADD. */
  void (*linear_backward_input)(easyrl_device *, void *dx, easyrl_dtype dx_type, const easyrl_product *host_products, int32_t n,
                                int32_t t, easyrl_start);
  /* d_bias.data may be NULL. */
  void (*linear_backward_weight)(easyrl_device *, easyrl_matrix_sums dw, easyrl_sums d_bias, const void *dy,
                                 const void *x, easyrl_leaves);
  void (*rms_norm)(easyrl_device *, void *y, const void *x, easyrl_dtype x_type, const void *weight, int32_t t, int32_t cols,
                   float eps);
  /* norm [t, cols] is scratch. norm_linear is NULL if rms_norm and linear are as fast. */
  void (*norm_linear)(easyrl_device *, const easyrl_projection *host_outputs, int32_t n, void *norm, const float *x,
                      const void *weight, int32_t t, int32_t cols, float eps);
  /* dx and x are of type x_type. */
  void (*rms_norm_backward)(easyrl_device *, void *dx, easyrl_sums d_weight, const void *dy, const void *x, easyrl_dtype x_type,
                            const void *weight, int32_t heads, int32_t cols, float eps, int32_t add, easyrl_leaves);
  void (*rope)(easyrl_device *, void *x, const float *table, const int32_t *positions, int32_t t, int32_t heads,
               int32_t dim, int32_t inverse);
  void (*swiglu)(easyrl_device *, void *y, const void *gate, const void *up, int64_t n);
  void (*swiglu_backward)(easyrl_device *, void *d_gate, void *d_up, const void *dy, const void *gate, const void *up,
                          int64_t n);
  void (*attention)(easyrl_device *, void *out, float *stats, const void *q, const void *k, const void *v,
                    easyrl_segments, easyrl_heads);
  void (*attention_backward)(easyrl_device *, void *dq, void *dk, void *dv, const void *d_out, const void *out,
                             const float *stats, const void *q, const void *k, const void *v,
                             easyrl_segments, easyrl_heads);
  void (*cache_write)(easyrl_device *, void *cache_k, void *cache_v, const void *k, const void *v,
                      const int32_t *slots, int32_t t, easyrl_heads);
  void (*attention_cached)(easyrl_device *, void *out, const void *q, const void *cache_k, const void *cache_v,
                           easyrl_tables, easyrl_heads);
  void (*gather_rows)(easyrl_device *, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols);
  void (*scatter_add_rows)(easyrl_device *, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols);
  void (*set_ints)(easyrl_device *, int32_t *y, const int32_t *at, const int32_t *x, int32_t n);
  void (*softmax_max)(easyrl_device *, float *max, const float *logits, int32_t n, int32_t cols, float inv_temp);
  void (*softmax_sum)(easyrl_device *, int64_t *sums, const float *max, const float *logits, const int32_t *targets,
                      int32_t n, int32_t cols, int32_t first, float inv_temp, int32_t add);
  void (*softmax_finish)(easyrl_device *, float *logp, float *entropy, float *stats, const int64_t *sums,
                         const float *max, int32_t n);
  void (*softmax_backward)(easyrl_device *, void *d_logits, const float *logits, const float *d_logp, const float *stats,
                           const int32_t *targets, int32_t n, int32_t cols, int32_t first, float inv_temp);
  void (*sample)(easyrl_device *, int32_t *ids, float *logp, const float *logits, int32_t n, int32_t vocab,
                 const easyrl_sample_params *);
  void (*adamw)(easyrl_device *, const easyrl_update *host_updates, int32_t n, easyrl_adamw_params);
  /* sum_squares and sum_squares_exact wait. If they fail, sync returns the failure and the
   * sums are undefined. */
  void (*sum_squares)(easyrl_device *, double *host_sums, const easyrl_values *host_x, int32_t n);
  void (*sum_squares_exact)(easyrl_device *, easyrl_squares *host_sums, const easyrl_gradient *host_g, int32_t n);
} easyrl_device_api;

#endif
