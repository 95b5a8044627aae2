/* Wrappers for Go: cgo cannot call through a function pointer. Device addresses
 * are integers here, so that Go never holds one as a pointer. */
#ifndef EASYRL_CTABLE_TABLE_H
#define EASYRL_CTABLE_TABLE_H

#include "../../csrc/easyrl_device.h"

typedef const easyrl_device_api *table;
typedef easyrl_device *device;
typedef uintptr_t addr;
#define V(a) ((void *)(a))
#define F(a) ((float *)(a))
#define I(a) ((int32_t *)(a))

static inline device t_open(table t, int32_t ordinal, int32_t threads, char *err, int64_t n) { return t->open(ordinal, threads, err, n); }
static inline device t_fork(table t, device d, int32_t threads, char *err, int64_t n) { return t->fork(d, threads, err, n); }
static inline void t_close(table t, device d) { t->close(d); }
static inline const char *t_name(table t, device d) { return t->name(d); }
static inline int32_t t_cores(table t) { return t->host_memory && t->threads && t->limit; }
static inline int32_t t_threads(table t, device d) { return t->threads(d); }
static inline void t_limit(table t, device d, int32_t n) { t->limit(d, n); }
static inline addr t_alloc(table t, device d, int64_t bytes) { return (addr)t->alloc(d, bytes); }
static inline void t_free(table t, device d, addr a) { t->free(d, V(a)); }
static inline void *t_host_alloc(table t, device d, int64_t bytes) { return t->host_alloc(d, bytes); }
static inline void t_host_free(table t, device d, uint8_t *mem) { t->host_free(d, mem); }
static inline int32_t t_sync(table t, device d, char *err, int64_t n) { return t->sync(d, err, n); }
static inline void t_upload(table t, device d, addr dst, const uint8_t *src, int64_t bytes) { t->upload(d, V(dst), src, bytes); }
static inline void t_download(table t, device d, uint8_t *dst, addr src, int64_t bytes) { t->download(d, dst, V(src), bytes); }
static inline void t_copy(table t, device d, addr dst, addr src, int64_t bytes) { t->copy(d, V(dst), V(src), bytes); }
static inline void t_zero(table t, device d, addr a, int64_t bytes) { t->zero(d, V(a), bytes); }
static inline void t_add(table t, device d, addr y, addr x, int64_t n) { t->add(d, F(y), F(x), n); }

typedef struct { addr data; int32_t rows, cols; } matrix;
typedef struct { addr data, mark; } sums;
typedef struct { sums s; int32_t rows, cols; } matrix_sums;
typedef struct { addr ends; int32_t n, rows; easyrl_fixed_point format; } leaves;
typedef struct { addr list; int32_t n, rows; } segments;
typedef struct { addr ids, firsts, next; int32_t t, lists; } tokens;
typedef struct { addr pages, lens; int32_t n, stride, longest; } tables;
static inline easyrl_matrix M(matrix m) { easyrl_matrix v = {F(m.data), m.rows, m.cols}; return v; }
static inline easyrl_sums S(sums s) { easyrl_sums v = {(int64_t *)s.data, (int64_t *)s.mark}; return v; }
static inline easyrl_matrix_sums MS(matrix_sums m) { easyrl_matrix_sums v = {S(m.s), m.rows, m.cols}; return v; }
static inline easyrl_leaves L(leaves l) { easyrl_leaves v = {I(l.ends), l.n, l.rows, l.format}; return v; }
static inline easyrl_segments SG(segments s) { easyrl_segments v = {V(s.list), s.n, s.rows}; return v; }
static inline easyrl_tokens TK(tokens t) { easyrl_tokens v = {I(t.ids), I(t.firsts), I(t.next), t.t, t.lists}; return v; }
static inline easyrl_tables TB(tables t) { easyrl_tables v = {I(t.pages), I(t.lens), t.n, t.stride, t.longest}; return v; }

/* Elements of lists. They have the layout of the contract's types. */
typedef struct { addr dy; matrix w; int32_t block; } product;
typedef struct { addr w; sums g; addr m, v; int64_t n; int32_t decay; } update;
typedef struct { addr data; int64_t n; } values;
typedef struct { sums s; int64_t n; } gradient;
_Static_assert(sizeof(product) == sizeof(easyrl_product) && sizeof(update) == sizeof(easyrl_update), "layout");
_Static_assert(sizeof(values) == sizeof(easyrl_values) && sizeof(gradient) == sizeof(easyrl_gradient), "layout");

static inline int64_t t_matrix_len(table t, device d, int32_t rows, int32_t cols) { return t->matrix_len(d, rows, cols); }
static inline void t_pack_matrix(table t, device d, matrix m, const float *src) { t->pack_matrix(d, M(m), src); }
static inline void t_unpack_matrix(table t, device d, float *dst, matrix m) { t->unpack_matrix(d, dst, M(m)); }
static inline void t_embed(table t, device d, addr y, matrix m, addr ids, int32_t n) { t->embed(d, F(y), M(m), I(ids), n); }
static inline void t_embed_backward(table t, device d, matrix_sums m, addr dy, tokens k, easyrl_fixed_point f) { t->embed_backward(d, MS(m), F(dy), TK(k), f); }
static inline void t_linear(table t, device d, addr y, addr x, matrix w, addr bias, int32_t n, int32_t add) { t->linear(d, F(y), F(x), M(w), F(bias), n, add); }
static inline void t_linear_backward_input(table t, device d, addr dx, const product *p, int32_t n, int32_t rows, int32_t add) {
  t->linear_backward_input(d, F(dx), (const easyrl_product *)p, n, rows, add);
}
static inline void t_linear_backward_weight(table t, device d, matrix_sums dw, sums d_bias, addr dy, addr x, leaves l) {
  t->linear_backward_weight(d, MS(dw), S(d_bias), F(dy), F(x), L(l));
}
static inline void t_rms_norm(table t, device d, addr y, addr x, addr w, int32_t n, int32_t cols, float eps) { t->rms_norm(d, F(y), F(x), F(w), n, cols, eps); }
static inline void t_rms_norm_backward(table t, device d, addr dx, sums dw, addr dy, addr x, addr w, int32_t heads, int32_t cols, float eps, int32_t add, leaves l) {
  t->rms_norm_backward(d, F(dx), S(dw), F(dy), F(x), F(w), heads, cols, eps, add, L(l));
}
static inline void t_rope(table t, device d, addr x, addr tab, addr pos, int32_t n, int32_t heads, int32_t dim, int32_t inverse) {
  t->rope(d, F(x), F(tab), I(pos), n, heads, dim, inverse);
}
static inline void t_swiglu(table t, device d, addr y, addr gate, addr up, int64_t n) { t->swiglu(d, F(y), F(gate), F(up), n); }
static inline void t_swiglu_backward(table t, device d, addr dg, addr du, addr dy, addr gate, addr up, int64_t n) {
  t->swiglu_backward(d, F(dg), F(du), F(dy), F(gate), F(up), n);
}
static inline void t_attention(table t, device d, addr out, addr stats, addr q, addr k, addr v, segments s, easyrl_heads h) {
  t->attention(d, F(out), F(stats), F(q), F(k), F(v), SG(s), h);
}
static inline void t_attention_backward(table t, device d, addr dq, addr dk, addr dv, addr d_out, addr out, addr stats, addr q, addr k, addr v, segments s,
                                        easyrl_heads h) {
  t->attention_backward(d, F(dq), F(dk), F(dv), F(d_out), F(out), F(stats), F(q), F(k), F(v), SG(s), h);
}
static inline void t_cache_write(table t, device d, addr ck, addr cv, addr k, addr v, addr slots, int32_t n, easyrl_heads h) {
  t->cache_write(d, F(ck), F(cv), F(k), F(v), I(slots), n, h);
}
static inline void t_attention_cached(table t, device d, addr out, addr q, addr ck, addr cv, tables b, easyrl_heads h) {
  t->attention_cached(d, F(out), F(q), F(ck), F(cv), TB(b), h);
}
static inline void t_gather_rows(table t, device d, addr y, addr x, addr rows, int32_t n, int32_t cols) { t->gather_rows(d, F(y), F(x), I(rows), n, cols); }
static inline void t_scatter_add_rows(table t, device d, addr y, addr x, addr rows, int32_t n, int32_t cols) { t->scatter_add_rows(d, F(y), F(x), I(rows), n, cols); }
static inline void t_softmax_max(table t, device d, addr max, addr logits, int32_t n, int32_t cols, float inv_temp) {
  t->softmax_max(d, F(max), F(logits), n, cols, inv_temp);
}
static inline void t_softmax_fold(table t, device d, addr folds, addr scores, addr max, addr logits, addr targets, int32_t n, int32_t cols, int32_t first,
                                  float inv_temp) {
  t->softmax_fold(d, F(folds), F(scores), F(max), F(logits), I(targets), n, cols, first, inv_temp);
}
static inline void t_softmax_finish(table t, device d, addr logp, addr entropy, addr stats, addr folds, addr scores, addr max, int32_t n) {
  t->softmax_finish(d, F(logp), F(entropy), F(stats), F(folds), F(scores), F(max), n);
}
static inline void t_softmax_backward(table t, device d, addr logits, addr dl, addr stats, addr targets, int32_t n, int32_t cols, int32_t first, float inv_temp) {
  t->softmax_backward(d, F(logits), F(dl), F(stats), I(targets), n, cols, first, inv_temp);
}
static inline void t_sample(table t, device d, addr ids, addr logp, addr logits, int32_t n, int32_t vocab, addr params) {
  t->sample(d, I(ids), F(logp), F(logits), n, vocab, V(params));
}
static inline void t_adamw(table t, device d, const update *u, int32_t n, easyrl_adamw_params p) { t->adamw(d, (const easyrl_update *)u, n, p); }
static inline void t_sum_squares(table t, device d, double *s, const values *x, int32_t n) { t->sum_squares(d, s, (const easyrl_values *)x, n); }
static inline void t_sum_squares_exact(table t, device d, easyrl_squares *s, const gradient *g, int32_t n) {
  t->sum_squares_exact(d, s, (const easyrl_gradient *)g, n);
}

#endif
