/* Wrappers for Go: cgo cannot call through a function pointer. Device addresses
 * are integers here, so that Go never holds one as a pointer. */
#ifndef EASYRL_CTABLE_TABLE_H
#define EASYRL_CTABLE_TABLE_H

#include "../../csrc/easyrl_device.h"

typedef const easyrl_device_api *table;
typedef easyrl_device *device;
typedef uintptr_t addr;
#define F(a) ((float *)(a))

static inline device t_open(table t, int32_t ordinal, int32_t threads, char *err, int64_t n) { return t->open(ordinal, threads, err, n); }
static inline void t_close(table t, device d) { t->close(d); }
static inline const char *t_name(table t, device d) { return t->name(d); }
static inline int32_t t_threads(table t, device d) { return t->threads(d); }
static inline void t_limit(table t, device d, int32_t n) { t->limit(d, n); }
static inline addr t_alloc(table t, device d, int64_t n) { return (addr)t->alloc(d, n); }
static inline void t_free(table t, device d, addr a) { t->free(d, F(a)); }
static inline int32_t t_sync(table t, device d, char *err, int64_t n) { return t->sync(d, err, n); }
static inline void t_upload(table t, device d, addr dst, const float *src, int64_t n) { t->upload(d, F(dst), src, n); }
static inline void t_download(table t, device d, float *dst, addr src, int64_t n) { t->download(d, dst, F(src), n); }
static inline void t_copy(table t, device d, addr dst, addr src, int64_t n) { t->copy(d, F(dst), F(src), n); }
static inline void t_zero(table t, device d, addr a, int64_t n) { t->zero(d, F(a), n); }
static inline void t_add(table t, device d, addr y, addr x, int64_t n) { t->add(d, F(y), F(x), n); }

typedef struct { addr data; int32_t rows, cols; } matrix;
static inline easyrl_matrix M(matrix m) { easyrl_matrix w = {F(m.data), m.rows, m.cols}; return w; }

typedef struct { addr data, mark; } sums;
typedef struct { sums s; int32_t rows, cols; } matrix_sums;
typedef struct { addr dy; matrix w; int32_t block; } product;
static inline easyrl_sums S(sums s) { easyrl_sums v = {(int64_t *)s.data, (int64_t *)s.mark}; return v; }
static inline easyrl_matrix_sums MS(matrix_sums m) { easyrl_matrix_sums v = {S(m.s), m.rows, m.cols}; return v; }
static inline easyrl_leaves L(const int32_t *ends, int32_t n, easyrl_fixed_point f) { easyrl_leaves v = {ends, n, f}; return v; }

static inline int64_t t_matrix_len(table t, device d, int32_t rows, int32_t cols) { return t->matrix_len(d, rows, cols); }
static inline void t_pack_matrix(table t, device d, matrix m, const float *src) { t->pack_matrix(d, M(m), src); }
static inline void t_unpack_matrix(table t, device d, float *dst, matrix m) { t->unpack_matrix(d, dst, M(m)); }
static inline void t_embed(table t, device d, addr y, matrix m, const int32_t *ids, int32_t n) { t->embed(d, F(y), M(m), ids, n); }
static inline void t_embed_backward(table t, device d, matrix_sums m, addr dy, const int32_t *ids, const int32_t *firsts, const int32_t *next, int32_t n,
                                    easyrl_fixed_point f) {
  easyrl_row_lists lists = {firsts, next, n};
  t->embed_backward(d, MS(m), F(dy), ids, lists, f);
}
static inline void t_linear(table t, device d, addr y, addr x, matrix w, addr bias, int32_t n, int32_t add) { t->linear(d, F(y), F(x), M(w), F(bias), n, add); }
static inline void t_linear_backward_input(table t, device d, addr dx, const product *products, int32_t n, int32_t rows, int32_t add) {
  easyrl_product p[n];
  for (int32_t i = 0; i < n; i++) p[i] = (easyrl_product){F(products[i].dy), M(products[i].w), products[i].block};
  t->linear_backward_input(d, F(dx), p, n, rows, add);
}
static inline void t_linear_backward_weight(table t, device d, matrix_sums dw, sums d_bias, addr dy, addr x, const int32_t *ends, int32_t n, easyrl_fixed_point f) {
  t->linear_backward_weight(d, MS(dw), S(d_bias), F(dy), F(x), L(ends, n, f));
}
static inline void t_rms_norm(table t, device d, addr y, addr x, addr w, int32_t n, int32_t cols, float eps) { t->rms_norm(d, F(y), F(x), F(w), n, cols, eps); }
static inline void t_rms_norm_backward(table t, device d, addr dx, sums dw, addr dy, addr x, addr w, int32_t heads, int32_t cols, float eps, int32_t add,
                                       const int32_t *ends, int32_t n, easyrl_fixed_point f) {
  t->rms_norm_backward(d, F(dx), S(dw), F(dy), F(x), F(w), heads, cols, eps, add, L(ends, n, f));
}
static inline void t_rope(table t, device d, addr x, addr tab, const int32_t *pos, int32_t n, int32_t heads, int32_t dim, int32_t inverse) {
  t->rope(d, F(x), F(tab), pos, n, heads, dim, inverse);
}
static inline void t_swiglu(table t, device d, addr y, addr gate, addr up, int64_t n) { t->swiglu(d, F(y), F(gate), F(up), n); }
static inline void t_swiglu_backward(table t, device d, addr dg, addr du, addr dy, addr gate, addr up, int64_t n) {
  t->swiglu_backward(d, F(dg), F(du), F(dy), F(gate), F(up), n);
}
static inline void t_attention(table t, device d, addr out, addr stats, addr q, addr k, addr v, const easyrl_segment *s, int32_t n, easyrl_heads h) {
  t->attention(d, F(out), F(stats), F(q), F(k), F(v), s, n, h);
}
static inline void t_attention_backward(table t, device d, addr dq, addr dk, addr dv, addr d_out, addr out, addr stats, addr q, addr k, addr v,
                                 const easyrl_segment *s, int32_t n, easyrl_heads h) {
  t->attention_backward(d, F(dq), F(dk), F(dv), F(d_out), F(out), F(stats), F(q), F(k), F(v), s, n, h);
}
static inline void t_cache_write(table t, device d, addr ck, addr cv, addr k, addr v, const int32_t *slots, int32_t n, easyrl_heads h) {
  t->cache_write(d, F(ck), F(cv), F(k), F(v), slots, n, h);
}
static inline void t_attention_cached(table t, device d, addr out, addr q, addr ck, addr cv, const int32_t *tables, int32_t stride, const int32_t *lens,
                               int32_t n, easyrl_heads h) {
  t->attention_cached(d, F(out), F(q), F(ck), F(cv), tables, stride, lens, n, h);
}
static inline void t_gather_rows(table t, device d, addr y, addr x, const int32_t *rows, int32_t n, int32_t cols) { t->gather_rows(d, F(y), F(x), rows, n, cols); }
static inline void t_scatter_add_rows(table t, device d, addr y, addr x, const int32_t *rows, int32_t n, int32_t cols) { t->scatter_add_rows(d, F(y), F(x), rows, n, cols); }
static inline void t_softmax_max(table t, device d, addr max, addr logits, int32_t n, int32_t cols, float inv_temp) {
  t->softmax_max(d, F(max), F(logits), n, cols, inv_temp);
}
static inline void t_softmax_fold(table t, device d, addr folds, addr scores, addr max, addr logits, const int32_t *targets, int32_t n, int32_t cols,
                                  int32_t first, float inv_temp) {
  t->softmax_fold(d, F(folds), F(scores), F(max), F(logits), targets, n, cols, first, inv_temp);
}
static inline void t_softmax_finish(table t, device d, addr logp, addr entropy, addr stats, addr folds, addr scores, addr max, int32_t n) {
  t->softmax_finish(d, F(logp), F(entropy), F(stats), F(folds), F(scores), F(max), n);
}
static inline void t_softmax_backward(table t, device d, addr logits, addr dl, addr stats, const int32_t *targets, int32_t n, int32_t cols, int32_t first,
                                      float inv_temp) {
  t->softmax_backward(d, F(logits), F(dl), F(stats), targets, n, cols, first, inv_temp);
}
static inline void t_sample(table t, device d, int32_t *ids, float *logp, addr logits, int32_t n, int32_t vocab, const easyrl_sample_params *p) {
  t->sample(d, ids, logp, F(logits), n, vocab, p);
}
static inline void t_adamw(table t, device d, addr w, sums g, addr m, addr v, int64_t n, easyrl_adamw_params p) { t->adamw(d, F(w), S(g), F(m), F(v), n, p); }
static inline double t_sum_squares(table t, device d, addr x, int64_t n) { return t->sum_squares(d, F(x), n); }
static inline int32_t t_sum_squares_exact(table t, device d, easyrl_wide *sum, sums g, int64_t n) { return t->sum_squares_exact(d, sum, S(g), n); }

#endif
