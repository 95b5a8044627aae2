/* The contract between easyrl and a device: a table of functions over opaque
 * handles, in plain C. A device library exports
 *
 *     const easyrl_device_api *easyrl_device_api_v1(void);
 *
 * Meaning, shapes and the order of every reduction are those of npu.Device in
 * npu.go, function by function. This header only defines how they are called.
 * Pointers of type float * are addresses in the device's memory unless marked
 * host. Pointers of type const int32_t * are always host memory, read before the
 * call returns. Kernels return nothing: a device records its first failure, which
 * sync returns. A device is used from one thread at a time. */
#ifndef EASYRL_DEVICE_H
#define EASYRL_DEVICE_H

#include <stdint.h>

#define EASYRL_DEVICE_ABI 2
#define EASYRL_PAGE_SIZE 16

typedef struct easyrl_device easyrl_device;

typedef struct { int32_t start, len, parent; } easyrl_segment;
typedef struct { int32_t q, kv, dim; } easyrl_heads;
typedef struct { float temperature, top_p, min_p; int32_t top_k; float uniform; } easyrl_sample_params;
typedef struct { float lr, beta1, beta2, eps, weight_decay, grad_scale; int32_t step; } easyrl_adamw_params;

/* A weight [rows, cols] in the device's own layout. */
typedef struct { float *data; int32_t rows, cols; } easyrl_matrix;

/* Fixed-point sums and the word that marks values out of range, in the device's
 * memory. Those of a matrix have the matrix's layout. */
typedef struct { int64_t *data, *mark; } easyrl_sums;
typedef struct { easyrl_sums sums; int32_t rows, cols; } easyrl_matrix_sums;

typedef struct { float scale, limit; } easyrl_fixed_point;

/* n leaves; leaf i ends before row ends[i]. The last one ends at the number of rows. */
typedef struct { const int32_t *ends; int32_t n; easyrl_fixed_point format; } easyrl_leaves;

/* Rows of a leaf with one token id form a list: next[t] is the next row, or -1.
 * firsts are the first rows of the n lists. */
typedef struct { const int32_t *firsts, *next; int32_t n; } easyrl_row_lists;

/* A term of linear_backward_input: dy [t, w.rows]. */
typedef struct { const float *dy; easyrl_matrix w; int32_t block; } easyrl_product;

/* A 192-bit unsigned integer, least significant word first. */
typedef struct { uint64_t words[3]; } easyrl_wide;

typedef struct {
  uint32_t abi;            /* EASYRL_DEVICE_ABI */
  uint32_t host_memory;    /* 1 if the host may read and write device addresses */

  /* open returns NULL and writes a line to err (of err_len bytes) on failure.
   * threads is a hint that accelerators ignore; ordinal selects one of several
   * devices. */
  easyrl_device *(*open)(int32_t ordinal, int32_t threads, char *err, int64_t err_len);
  void (*close)(easyrl_device *);
  const char *(*name)(easyrl_device *);
  int32_t (*threads)(easyrl_device *);
  /* limit sets the number of threads for kernels called from now on to n, 1 to
   * threads(). It may be called from any thread at any time. Accelerators ignore
   * it. */
  void (*limit)(easyrl_device *, int32_t n);
  /* alloc returns n zeroed values aligned to 64 bytes, or NULL. */
  float *(*alloc)(easyrl_device *, int64_t n);
  void (*free)(easyrl_device *, float *);
  /* sync returns 0, or 1 with a line in err. It then clears the failure. */
  int32_t (*sync)(easyrl_device *, char *err, int64_t err_len);

  void (*upload)(easyrl_device *, float *dst, const float *host_src, int64_t n);
  void (*download)(easyrl_device *, float *host_dst, const float *src, int64_t n);
  void (*copy)(easyrl_device *, float *dst, const float *src, int64_t n);
  void (*zero)(easyrl_device *, float *, int64_t n);
  void (*add)(easyrl_device *, float *y, const float *x, int64_t n);

  int64_t (*matrix_len)(easyrl_device *, int32_t rows, int32_t cols);
  void (*pack_matrix)(easyrl_device *, easyrl_matrix, const float *host_src);
  void (*unpack_matrix)(easyrl_device *, float *host_dst, easyrl_matrix);

  void (*embed)(easyrl_device *, float *y, easyrl_matrix table, const int32_t *ids, int32_t t);
  void (*embed_backward)(easyrl_device *, easyrl_matrix_sums d_table, const float *dy, const int32_t *ids,
                         easyrl_row_lists, easyrl_fixed_point);
  void (*linear)(easyrl_device *, float *y, const float *x, easyrl_matrix w, const float *bias, int32_t t, int32_t add);
  /* The n products are in host memory. */
  void (*linear_backward_input)(easyrl_device *, float *dx, const easyrl_product *products, int32_t n, int32_t t,
                                int32_t add);
  /* d_bias.data may be NULL. */
  void (*linear_backward_weight)(easyrl_device *, easyrl_matrix_sums dw, easyrl_sums d_bias, const float *dy,
                                 const float *x, easyrl_leaves);
  void (*rms_norm)(easyrl_device *, float *y, const float *x, const float *weight, int32_t t, int32_t cols, float eps);
  void (*rms_norm_backward)(easyrl_device *, float *dx, easyrl_sums d_weight, const float *dy, const float *x,
                            const float *weight, int32_t heads, int32_t cols, float eps, int32_t add, easyrl_leaves);
  void (*rope)(easyrl_device *, float *x, const float *table, const int32_t *positions, int32_t t, int32_t heads,
               int32_t dim, int32_t inverse);
  void (*swiglu)(easyrl_device *, float *y, const float *gate, const float *up, int64_t n);
  void (*swiglu_backward)(easyrl_device *, float *d_gate, float *d_up, const float *dy, const float *gate,
                          const float *up, int64_t n);
  void (*attention)(easyrl_device *, float *out, float *stats, const float *q, const float *k, const float *v,
                    const easyrl_segment *segments, int32_t n_segments, easyrl_heads);
  void (*attention_backward)(easyrl_device *, float *dq, float *dk, float *dv, const float *d_out, const float *out,
                             const float *stats, const float *q, const float *k, const float *v,
                             const easyrl_segment *segments, int32_t n_segments, easyrl_heads);
  void (*cache_write)(easyrl_device *, float *cache_k, float *cache_v, const float *k, const float *v,
                      const int32_t *slots, int32_t t, easyrl_heads);
  void (*attention_cached)(easyrl_device *, float *out, const float *q, const float *cache_k, const float *cache_v,
                           const int32_t *tables, int32_t stride, const int32_t *lens, int32_t t, easyrl_heads);
  void (*gather_rows)(easyrl_device *, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols);
  void (*scatter_add_rows)(easyrl_device *, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols);
  void (*softmax_max)(easyrl_device *, float *max, const float *logits, int32_t n, int32_t cols, float inv_temp);
  void (*softmax_fold)(easyrl_device *, float *folds, float *scores, const float *max, const float *logits,
                       const int32_t *targets, int32_t n, int32_t cols, int32_t first, float inv_temp);
  void (*softmax_finish)(easyrl_device *, float *logp, float *entropy, float *stats, const float *folds,
                         const float *scores, const float *max, int32_t n);
  void (*softmax_backward)(easyrl_device *, float *logits, const float *d_logp, const float *stats,
                           const int32_t *targets, int32_t n, int32_t cols, int32_t first, float inv_temp);
  void (*sample)(easyrl_device *, int32_t *host_ids, float *host_logp, const float *logits, int32_t n, int32_t vocab,
                 const easyrl_sample_params *host_params);
  void (*adamw)(easyrl_device *, float *w, easyrl_sums g, float *m, float *v, int64_t n, easyrl_adamw_params);
  double (*sum_squares)(easyrl_device *, const float *x, int64_t n);
  /* sum_squares_exact returns whether the sums are in range. */
  int32_t (*sum_squares_exact)(easyrl_device *, easyrl_wide *host_sum, easyrl_sums g, int64_t n);
} easyrl_device_api;

#endif
