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

static inline int64_t t_matrix_len(table t, device d, int32_t rows, int32_t cols) { return t->matrix_len(d, rows, cols); }
static inline void t_pack_matrix(table t, device d, matrix m, const float *src) { t->pack_matrix(d, M(m), src); }
static inline void t_unpack_matrix(table t, device d, float *dst, matrix m) { t->unpack_matrix(d, dst, M(m)); }
static inline void t_embed(table t, device d, addr y, matrix m, const int32_t *ids, int32_t n) { t->embed(d, F(y), M(m), ids, n); }
static inline void t_embed_backward(table t, device d, matrix m, addr dy, const int32_t *ids, int32_t n) { t->embed_backward(d, M(m), F(dy), ids, n); }
static inline void t_linear(table t, device d, addr y, addr x, matrix w, addr bias, int32_t n, int32_t add) { t->linear(d, F(y), F(x), M(w), F(bias), n, add); }
static inline void t_linear_backward_input(table t, device d, addr dx, addr dy, matrix w, int32_t n, int32_t add) { t->linear_backward_input(d, F(dx), F(dy), M(w), n, add); }
static inline void t_linear_backward_weight(table t, device d, matrix dw, addr d_bias, addr dy, addr x, int32_t n) { t->linear_backward_weight(d, M(dw), F(d_bias), F(dy), F(x), n); }
static inline void t_rms_norm(table t, device d, addr y, addr x, addr w, int32_t n, int32_t cols, float eps) { t->rms_norm(d, F(y), F(x), F(w), n, cols, eps); }
static inline void t_rms_norm_backward(table t, device d, addr dx, addr dw, addr dy, addr x, addr w, int32_t n, int32_t cols, float eps, int32_t add) {
  t->rms_norm_backward(d, F(dx), F(dw), F(dy), F(x), F(w), n, cols, eps, add);
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
static inline void t_log_prob(table t, device d, addr logp, addr entropy, addr hidden, matrix w, const int32_t *targets, int32_t n, float inv_temp) {
  t->log_prob(d, F(logp), F(entropy), F(hidden), M(w), targets, n, inv_temp);
}
static inline void t_log_prob_backward(table t, device d, addr dh, matrix dw, addr dl, addr hidden, matrix w, const int32_t *targets, int32_t n, float inv_temp) {
  t->log_prob_backward(d, F(dh), M(dw), F(dl), F(hidden), M(w), targets, n, inv_temp);
}
static inline void t_sample(table t, device d, int32_t *ids, float *logp, addr logits, int32_t n, int32_t vocab, const easyrl_sample_params *p) {
  t->sample(d, ids, logp, F(logits), n, vocab, p);
}
static inline void t_adamw(table t, device d, addr w, addr g, addr m, addr v, int64_t n, easyrl_adamw_params p) { t->adamw(d, F(w), F(g), F(m), F(v), n, p); }
static inline double t_sum_squares(table t, device d, addr x, int64_t n) { return t->sum_squares(d, F(x), n); }

#endif
