/* Wrappers that Go calls, because cgo cannot call through a function pointer. Device addresses
 * are integers here, so that Go never holds one as a pointer. */
#ifndef EASYRL_CTABLE_TABLE_H
#define EASYRL_CTABLE_TABLE_H

#include "../../csrc/easyrl_device.h"

/* The table and its handles are integers too, because cgo checks the pointers in the arguments of
 * each call. */
typedef uintptr_t table, device, event, graph, addr;
#define A(t) ((const easyrl_device_api *)(t))
#define D(d) ((easyrl_device *)(d))
#define E(e) ((easyrl_event *)(e))
#define G(g) ((easyrl_graph *)(g))
#define V(a) ((void *)(a))
#define F(a) ((float *)(a))
#define I(a) ((int32_t *)(a))

static inline device t_open(table t, int32_t ordinal, int32_t threads, char *err, int64_t n) { return (device)A(t)->open(ordinal, threads, err, n); }
static inline device t_fork(table t, device d, int32_t threads, char *err, int64_t n) { return (device)A(t)->fork(D(d), threads, err, n); }
static inline void t_close(table t, device d) { A(t)->close(D(d)); }
static inline const char *t_name(table t, device d) { return A(t)->name(D(d)); }
static inline int32_t t_cores(table t) { return A(t)->host_memory && A(t)->threads && A(t)->limit; }
static inline int32_t t_threads(table t, device d) { return A(t)->threads(D(d)); }
static inline void t_limit(table t, device d, int32_t n) { A(t)->limit(D(d), n); }
static inline addr t_alloc(table t, device d, int64_t bytes) { return (addr)A(t)->alloc(D(d), bytes); }
static inline void t_free(table t, device d, addr a) { A(t)->free(D(d), V(a)); }
static inline void *t_host_alloc(table t, device d, int64_t bytes) { return A(t)->host_alloc(D(d), bytes); }
static inline void t_host_free(table t, device d, uint8_t *mem) { A(t)->host_free(D(d), mem); }
static inline int32_t t_sync(table t, device d, char *err, int64_t n) { return A(t)->sync(D(d), err, n); }
static inline int32_t t_has_events(table t) { return A(t)->record && A(t)->await && A(t)->event_free; }
static inline event t_record(table t, device d) { return (event)A(t)->record(D(d)); }
static inline void t_await(table t, device d, event e) { A(t)->await(D(d), E(e)); }
static inline void t_event_free(table t, event e) { A(t)->event_free(E(e)); }
static inline int32_t t_has_graphs(table t) { return A(t)->capture && A(t)->captured && A(t)->replay && A(t)->graph_free; }
static inline void t_capture(table t, device d) { A(t)->capture(D(d)); }
static inline graph t_captured(table t, device d, char *err, int64_t n) { return (graph)A(t)->captured(D(d), err, n); }
static inline void t_replay(table t, device d, graph g) { A(t)->replay(D(d), G(g)); }
static inline void t_graph_free(table t, device d, graph g) { A(t)->graph_free(D(d), G(g)); }
static inline void t_upload(table t, device d, addr dst, const uint8_t *src, int64_t bytes) { A(t)->upload(D(d), V(dst), src, bytes); }
static inline void t_download(table t, device d, uint8_t *dst, addr src, int64_t bytes) { A(t)->download(D(d), dst, V(src), bytes); }
static inline void t_copy(table t, device d, addr dst, addr src, int64_t bytes) { A(t)->copy(D(d), V(dst), V(src), bytes); }
static inline void t_zero(table t, device d, addr a, int64_t bytes) { A(t)->zero(D(d), V(a), bytes); }
static inline void t_convert(table t, device d, addr y, easyrl_dtype y_type, addr x, easyrl_dtype x_type, int64_t n) {
  A(t)->convert(D(d), V(y), y_type, V(x), x_type, n);
}
static inline void t_add(table t, device d, addr y, addr x, int64_t n) { A(t)->add(D(d), F(y), F(x), n); }

typedef struct { addr data; int32_t rows, cols; } matrix;
typedef struct { addr data, mark; } sums;
typedef struct { sums s; int32_t rows, cols; } matrix_sums;
typedef struct { addr ends, units; int32_t n, n_units, rows; easyrl_fixed_point format; } leaves;
typedef struct { addr list, tiles; int32_t n, n_tiles, rows; } segments;
typedef struct { addr ids, rows, starts; int32_t t, lists; } tokens;
typedef struct { addr pages, rows, lens, blocks; int32_t n, stride, longest; } tables;
static inline easyrl_matrix M(matrix m) { easyrl_matrix v = {V(m.data), m.rows, m.cols}; return v; }
static inline easyrl_sums S(sums s) { easyrl_sums v = {(int64_t *)s.data, (int64_t *)s.mark}; return v; }
static inline easyrl_matrix_sums MS(matrix_sums m) { easyrl_matrix_sums v = {S(m.s), m.rows, m.cols}; return v; }
static inline easyrl_leaves L(leaves l) { easyrl_leaves v = {I(l.ends), I(l.units), l.n, l.n_units, l.rows, l.format}; return v; }
static inline easyrl_segments SG(segments s) { easyrl_segments v = {V(s.list), V(s.tiles), s.n, s.n_tiles, s.rows}; return v; }
static inline easyrl_tokens TK(tokens t) { easyrl_tokens v = {I(t.ids), I(t.rows), I(t.starts), t.t, t.lists}; return v; }
static inline easyrl_tables TB(tables t) {
  easyrl_tables v = {I(t.pages), I(t.rows), I(t.lens), I(t.blocks), t.n, t.stride, t.longest};
  return v;
}

/* Elements of lists. They have the same layout as the types in easyrl_device.h that they are
 * named after. */
typedef struct { addr dy; matrix w; int32_t block; } product;
typedef struct { addr y; matrix w; addr bias; } projection;
typedef struct { addr w, copy; sums g; addr m, v; int64_t n; int32_t decay; } update;
typedef struct { addr data; int64_t n; } values;
typedef struct { sums s; int64_t n; } gradient;
_Static_assert(sizeof(product) == sizeof(easyrl_product) && sizeof(update) == sizeof(easyrl_update), "layout");
_Static_assert(sizeof(projection) == sizeof(easyrl_projection) && sizeof(matrix) == sizeof(easyrl_matrix), "layout");
_Static_assert(sizeof(values) == sizeof(easyrl_values) && sizeof(gradient) == sizeof(easyrl_gradient), "layout");

static inline int64_t t_matrix_len(table t, device d, int32_t rows, int32_t cols) { return A(t)->matrix_len(D(d), rows, cols); }
static inline void t_pack_matrix(table t, device d, matrix m, const uint8_t *src) { A(t)->pack_matrix(D(d), M(m), (const float *)src); }
static inline void t_unpack_matrix(table t, device d, uint8_t *dst, matrix m) { A(t)->unpack_matrix(D(d), (float *)dst, M(m)); }
static inline void t_sum_panels(table t, device d, uint64_t *s, const matrix *m, int32_t n) { A(t)->sum_panels(D(d), s, (const easyrl_matrix *)m, n); }
static inline void t_embed(table t, device d, addr y, matrix m, addr ids, int32_t n) { A(t)->embed(D(d), F(y), M(m), I(ids), n); }
static inline void t_embed_backward(table t, device d, matrix_sums m, addr dy, tokens k, easyrl_fixed_point f) { A(t)->embed_backward(D(d), MS(m), F(dy), TK(k), f); }
static inline void t_linear(table t, device d, addr y, easyrl_dtype y_type, addr x, matrix w, addr bias, int32_t n,
                            easyrl_start start) {
  A(t)->linear(D(d), V(y), y_type, V(x), M(w), V(bias), n, start);
}
static inline void t_linear_backward_input(table t, device d, addr dx, easyrl_dtype dx_type, const product *p,
                                           int32_t n, int32_t rows, easyrl_start start) {
  A(t)->linear_backward_input(D(d), V(dx), dx_type, (const easyrl_product *)p, n, rows, start);
}
static inline void t_linear_backward_weight(table t, device d, matrix_sums dw, sums d_bias, addr dy, addr x, leaves l) {
  A(t)->linear_backward_weight(D(d), MS(dw), S(d_bias), V(dy), V(x), L(l));
}
static inline void t_rms_norm(table t, device d, addr y, addr x, easyrl_dtype x_type, addr w, int32_t n, int32_t cols,
                              float eps) {
  A(t)->rms_norm(D(d), V(y), V(x), x_type, V(w), n, cols, eps);
}
static inline int32_t t_has_norm_linear(table t) { return A(t)->norm_linear != 0; }
static inline void t_norm_linear(table t, device d, const projection *p, int32_t n, addr norm, addr x, addr w, int32_t rows, int32_t cols, float eps) {
  A(t)->norm_linear(D(d), (const easyrl_projection *)p, n, V(norm), F(x), V(w), rows, cols, eps);
}
static inline void t_rms_norm_backward(table t, device d, addr dx, sums dw, addr dy, addr x, easyrl_dtype x_type,
                                       addr w, int32_t heads, int32_t cols, float eps, int32_t add, leaves l) {
  A(t)->rms_norm_backward(D(d), V(dx), S(dw), V(dy), V(x), x_type, V(w), heads, cols, eps, add, L(l));
}
static inline void t_rope(table t, device d, addr x, addr tab, addr pos, int32_t n, int32_t heads, int32_t dim, int32_t inverse) {
  A(t)->rope(D(d), V(x), F(tab), I(pos), n, heads, dim, inverse);
}
static inline void t_swiglu(table t, device d, addr y, addr gate, addr up, int64_t n) {
  A(t)->swiglu(D(d), V(y), V(gate), V(up), n);
}
static inline void t_swiglu_backward(table t, device d, addr dg, addr du, addr dy, addr gate, addr up, int64_t n) {
  A(t)->swiglu_backward(D(d), V(dg), V(du), V(dy), V(gate), V(up), n);
}
static inline void t_attention(table t, device d, addr out, addr stats, addr q, addr k, addr v, segments s, easyrl_heads h) {
  A(t)->attention(D(d), V(out), F(stats), V(q), V(k), V(v), SG(s), h);
}
static inline void t_attention_backward(table t, device d, addr dq, addr dk, addr dv, addr d_out, addr out, addr stats, addr q, addr k, addr v, segments s,
                                        easyrl_heads h) {
  A(t)->attention_backward(D(d), V(dq), V(dk), V(dv), V(d_out), V(out), F(stats), V(q), V(k), V(v), SG(s), h);
}
static inline void t_cache_write(table t, device d, addr ck, addr cv, addr k, addr v, addr slots, int32_t n, easyrl_heads h) {
  A(t)->cache_write(D(d), V(ck), V(cv), V(k), V(v), I(slots), n, h);
}
static inline void t_attention_cached(table t, device d, addr out, addr q, addr ck, addr cv, tables b, easyrl_heads h) {
  A(t)->attention_cached(D(d), V(out), V(q), V(ck), V(cv), TB(b), h);
}
static inline void t_gather_rows(table t, device d, addr y, addr x, addr rows, int32_t n, int32_t cols) { A(t)->gather_rows(D(d), F(y), F(x), I(rows), n, cols); }
static inline void t_scatter_add_rows(table t, device d, addr y, addr x, addr rows, int32_t n, int32_t cols) { A(t)->scatter_add_rows(D(d), F(y), F(x), I(rows), n, cols); }
static inline void t_set_ints(table t, device d, addr y, addr at, addr x, int32_t n) { A(t)->set_ints(D(d), I(y), I(at), I(x), n); }
static inline void t_softmax_max(table t, device d, addr max, addr logits, int32_t n, int32_t cols, float inv_temp) {
  A(t)->softmax_max(D(d), F(max), F(logits), n, cols, inv_temp);
}
static inline void t_softmax_sum(table t, device d, addr sums, addr max, addr logits, addr targets, int32_t n,
                                 int32_t cols, int32_t first, float inv_temp,
                                 int32_t add) {
  A(t)->softmax_sum(D(d), (int64_t *)sums, F(max), F(logits), I(targets), n, cols, first, inv_temp, add);
}
static inline void t_softmax_finish(table t, device d, addr logp, addr entropy, addr stats, addr sums, addr max, int32_t n) {
  A(t)->softmax_finish(D(d), F(logp), F(entropy), F(stats), (const int64_t *)sums, F(max), n);
}
static inline void t_softmax_backward(table t, device d, addr d_logits, addr logits, addr dl, addr stats, addr targets,
                                      int32_t n, int32_t cols, int32_t first, float inv_temp) {
  A(t)->softmax_backward(D(d), V(d_logits), F(logits), F(dl), F(stats), I(targets), n, cols, first, inv_temp);
}
static inline void t_sample(table t, device d, addr ids, addr logp, addr logits, int32_t n, int32_t vocab, addr params) {
  A(t)->sample(D(d), I(ids), F(logp), F(logits), n, vocab, V(params));
}
static inline void t_adamw(table t, device d, const update *u, int32_t n, easyrl_adamw_params p) { A(t)->adamw(D(d), (const easyrl_update *)u, n, p); }
static inline void t_sum_squares(table t, device d, double *s, const values *x, int32_t n) { A(t)->sum_squares(D(d), s, (const easyrl_values *)x, n); }
static inline void t_sum_squares_exact(table t, device d, easyrl_squares *s, const gradient *g, int32_t n) {
  A(t)->sum_squares_exact(D(d), s, (const easyrl_gradient *)g, n);
}

#endif
