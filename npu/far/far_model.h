/* The kernels of attention, of the vocabulary and of the optimizer. */

/* Records a failure unless all segments are in range, each parent precedes its children, and the tiles have every row once. */
static void far_forest(easyrl_device *d, easyrl_segments s) {
  for (int32_t i = 0; s.list && i < s.n; i++) {
    easyrl_segment g = s.list[i];
    int32_t before = i > g.parent && g.parent >= 0 ? s.list[g.parent].before + s.list[g.parent].len : 0;
    if (g.start < 0 || g.len < 0 || g.parent < -1 || g.parent >= i || g.before != before || (int64_t)g.start + g.len > s.rows) {
      far_fail(d, "segments", "segment %d is {%d, %d, %d, %d} of %d rows", (int)i, (int)g.start, (int)g.len, (int)g.parent,
               (int)g.before, (int)s.rows);
      return;
    }
  }
  int64_t rows = 0;
  for (int32_t i = 0; s.tiles && i < s.n; i++) rows += s.list[i].len;
  for (int32_t i = 0; s.tiles && i < s.n_tiles; i++) {
    easyrl_tile t = s.tiles[i];
    if (t.segment < 0) continue;
    if (t.segment >= s.n || t.first < 0 || t.first % EASYRL_ROW_TILE || t.first >= s.list[t.segment].len) {
      far_fail(d, "segments", "tile %d is {%d, %d}", (int)i, (int)t.segment, (int)t.first);
      return;
    }
    int32_t left = s.list[t.segment].len - t.first;
    rows -= left < EASYRL_ROW_TILE ? left : EASYRL_ROW_TILE;
  }
  if (rows) far_fail(d, "segments", "tiles lack %lld rows", (long long)rows);
}
#define SEGMENTS(field) (NEAR(field.list, a->field.n), NEAR(field.tiles, a->field.n_tiles), far_forest(d, a->field))

ARGS(attention, void *out; float *stats; const void *q, *k, *v; easyrl_segments segments; easyrl_heads h;)
RUN(attention) {
  int64_t heads = (int64_t)a->segments.rows * a->h.q, keys = (int64_t)a->segments.rows * a->h.kv;
  VALUES(out, heads * a->h.dim), OPTIONAL(stats, heads * 2), VALUES(q, heads * a->h.dim);
  VALUES(k, keys * a->h.dim), VALUES(v, keys * a->h.dim), SEGMENTS(segments);
  CPU(attention, a->out, a->stats, a->q, a->k, a->v, a->segments, a->h);
}
static void far_attention(easyrl_device *d, void *out, float *stats, const void *q, const void *k, const void *v,
                          easyrl_segments s, easyrl_heads h) {
  CALL(attention, out, stats, q, k, v, s, h);
}

ARGS(attention_backward, void *dq, *dk, *dv; const void *d_out, *out; const float *stats; const void *q, *k, *v;
     easyrl_segments segments; easyrl_heads h;)
RUN(attention_backward) {
  int64_t heads = (int64_t)a->segments.rows * a->h.q, keys = (int64_t)a->segments.rows * a->h.kv, dim = a->h.dim;
  VALUES(dq, heads * dim), VALUES(dk, keys * dim), VALUES(dv, keys * dim), VALUES(d_out, heads * dim), VALUES(out, heads * dim);
  NEAR(stats, heads * 2), VALUES(q, heads * dim), VALUES(k, keys * dim), VALUES(v, keys * dim), SEGMENTS(segments);
  CPU(attention_backward, a->dq, a->dk, a->dv, a->d_out, a->out, a->stats, a->q, a->k, a->v, a->segments, a->h);
}
static void far_attention_backward(easyrl_device *d, void *dq, void *dk, void *dv, const void *d_out, const void *out,
                                   const float *stats, const void *q, const void *k, const void *v, easyrl_segments s,
                                   easyrl_heads h) {
  CALL(attention_backward, dq, dk, dv, d_out, out, stats, q, k, v, s, h);
}

/* Returns the number of values in a page of keys or of values. */
static int64_t far_page(easyrl_heads h) { return (int64_t)EASYRL_PAGE_SIZE * h.kv * h.dim; }

ARGS(cache_write, void *cache_k, *cache_v; const void *k, *v; const int32_t *slots; int32_t t; easyrl_heads h;)
RUN(cache_write) {
  int64_t n = (int64_t)a->t * a->h.kv * a->h.dim;
  INDICES(slots, a->t, 0, INDEX_END);
  int64_t most = far_most(a->slots, a->t), cache = most < 0 ? 0 : (most / EASYRL_PAGE_SIZE + 1) * far_page(a->h);
  VALUES(cache_k, cache), VALUES(cache_v, cache), VALUES(k, n), VALUES(v, n);
  CPU(cache_write, a->cache_k, a->cache_v, a->k, a->v, a->slots, a->t, a->h);
}
static void far_cache_write(easyrl_device *d, void *cache_k, void *cache_v, const void *k, const void *v,
                            const int32_t *slots, int32_t t, easyrl_heads h) {
  CALL(cache_write, cache_k, cache_v, k, v, slots, t, h);
}

/* Checks tables and replaces their device addresses by host addresses. Returns one more than the
 * largest page that a sequence uses. */
static int64_t far_tables(easyrl_device *d, easyrl_tables *t) {
  t->rows = far_near(d, "tables.rows", t->rows, t->n * 4LL);
  t->lens = far_near(d, "tables.lens", t->lens, t->n * 4LL);
  far_indices(d, "tables.rows", t->rows, t->n, 0, INDEX_END);
  far_indices(d, "tables.lens", t->lens, t->n, 1, (int64_t)t->longest + 1);
  t->blocks = far_near(d, "tables.blocks", t->blocks, (t->n + 1) * 4LL);
  far_indices(d, "tables.blocks", t->blocks, t->n + 1, 0, (int64_t)t->n + 1);
  for (int32_t b = 0; d->valid && b < t->n; b++) {
    int32_t first = t->blocks[b], end = t->blocks[b + 1];
    if (end < first || end - first > EASYRL_QUERY_BLOCK) far_fail(d, "tables.blocks", "rows %d to %d", (int)first, (int)end);
    for (int32_t i = first + 1; d->valid && i < end; i++)
      if (t->rows[i] != t->rows[first] || t->lens[i] < t->lens[i - 1])
        far_fail(d, "tables.blocks", "row %d among rows from %d", (int)i, (int)first);
  }
  if (t->longest > (int64_t)t->stride * EASYRL_PAGE_SIZE) far_fail(d, "tables", "%d positions in %d pages", (int)t->longest, (int)t->stride);
  t->pages = far_near(d, "tables.pages", t->pages, (far_most(t->rows, t->n) + 1) * t->stride * 4);
  int64_t most = -1;
  for (int32_t i = 0; d->valid && i < t->n; i++) {
    const int32_t *row = t->pages + (int64_t)t->rows[i] * t->stride;
    int64_t used = (t->lens[i] + EASYRL_PAGE_SIZE - 1) / EASYRL_PAGE_SIZE, last = far_most(row, used);
    far_indices(d, "tables.pages", row, used, 0, INDEX_END);
    most = last > most ? last : most;
  }
  return most + 1;
}

ARGS(attention_cached, void *out; const void *q, *cache_k, *cache_v; easyrl_tables tables; easyrl_heads h;)
RUN(attention_cached) {
  int64_t n = (int64_t)a->tables.n * a->h.q * a->h.dim;
  VALUES(out, n), VALUES(q, n);
  int64_t cache = far_tables(d, &a->tables) * far_page(a->h);
  VALUES(cache_k, cache), VALUES(cache_v, cache);
  CPU(attention_cached, a->out, a->q, a->cache_k, a->cache_v, a->tables, a->h);
}
static void far_attention_cached(easyrl_device *d, void *out, const void *q, const void *cache_k, const void *cache_v,
                                 easyrl_tables t, easyrl_heads h) {
  CALL(attention_cached, out, q, cache_k, cache_v, t, h);
}

ARGS(softmax_max, float *max; const float *logits; int32_t n, cols; float inv_temp;)
RUN(softmax_max) {
  NEAR(max, a->n), NEAR(logits, (int64_t)a->n * a->cols);
  CPU(softmax_max, a->max, a->logits, a->n, a->cols, a->inv_temp);
}
static void far_softmax_max(easyrl_device *d, float *max, const float *logits, int32_t n, int32_t cols, float inv_temp) {
  CALL(softmax_max, max, logits, n, cols, inv_temp);
}

ARGS(softmax_sum, int64_t *sums; const float *max, *logits; const int32_t *targets; int32_t n, cols, first;
     float inv_temp; int32_t add;)
RUN(softmax_sum) {
  NEAR(sums, (int64_t)a->n * EASYRL_SOFTMAX_SUMS), NEAR(max, a->n), NEAR(logits, (int64_t)a->n * a->cols);
  INDICES(targets, a->n, INT32_MIN, INDEX_END);
  CPU(softmax_sum, a->sums, a->max, a->logits, a->targets, a->n, a->cols, a->first, a->inv_temp, a->add);
}
static void far_softmax_sum(easyrl_device *d, int64_t *sums, const float *max, const float *logits,
                            const int32_t *targets, int32_t n, int32_t cols,
                            int32_t first, float inv_temp, int32_t add) {
  CALL(softmax_sum, sums, max, logits, targets, n, cols, first, inv_temp, add);
}

ARGS(softmax_finish, float *logp, *entropy, *stats; const int64_t *sums; const float *max; int32_t n;)
RUN(softmax_finish) {
  NEAR(logp, a->n), NEAR(entropy, a->n), NEAR(stats, (int64_t)a->n * 2);
  NEAR(sums, (int64_t)a->n * EASYRL_SOFTMAX_SUMS), NEAR(max, a->n);
  CPU(softmax_finish, a->logp, a->entropy, a->stats, a->sums, a->max, a->n);
}
static void far_softmax_finish(easyrl_device *d, float *logp, float *entropy, float *stats, const int64_t *sums,
                               const float *max, int32_t n) {
  CALL(softmax_finish, logp, entropy, stats, sums, max, n);
}

ARGS(softmax_backward, void *d_logits; const float *logits, *d_logp, *stats; const int32_t *targets;
     int32_t n, cols, first; float inv_temp;)
RUN(softmax_backward) {
  VALUES(d_logits, (int64_t)a->n * a->cols), NEAR(logits, (int64_t)a->n * a->cols);
  NEAR(d_logp, a->n), NEAR(stats, (int64_t)a->n * 2);
  INDICES(targets, a->n, INT32_MIN, INDEX_END);
  CPU(softmax_backward, a->d_logits, a->logits, a->d_logp, a->stats, a->targets, a->n, a->cols, a->first, a->inv_temp);
}
static void far_softmax_backward(easyrl_device *d, void *d_logits, const float *logits, const float *d_logp,
                                 const float *stats, const int32_t *targets, int32_t n, int32_t cols, int32_t first,
                                 float inv_temp) {
  CALL(softmax_backward, d_logits, logits, d_logp, stats, targets, n, cols, first, inv_temp);
}

ARGS(sample, int32_t *ids; float *logp; const float *logits; int32_t n, vocab; const easyrl_sample_params *params;)
RUN(sample) {
  NEAR(ids, a->n), NEAR(logp, a->n), NEAR(logits, (int64_t)a->n * a->vocab), NEAR(params, a->n);
  CPU(sample, a->ids, a->logp, a->logits, a->n, a->vocab, a->params);
}
static void far_sample(easyrl_device *d, int32_t *ids, float *logp, const float *logits, int32_t n, int32_t vocab, const easyrl_sample_params *params) {
  CALL(sample, ids, logp, logits, n, vocab, params);
}

ARGS(adamw, easyrl_update *updates; int32_t n; easyrl_adamw_params p;)
RUN(adamw) {
  LIST(updates);
  for (int32_t i = 0; i < a->n; i++) {
    int64_t n = a->updates[i].n;
    if (n > 0 && a->updates[i].copy) VALUES(updates[i].copy, n);
    if (n > 0) NEAR(updates[i].w, n), SUMS(updates[i].g, n), NEAR(updates[i].m, n), NEAR(updates[i].v, n);
  }
  CPU(adamw, a->updates, a->n, a->p);
}
static void far_adamw(easyrl_device *d, const easyrl_update *updates, int32_t n, easyrl_adamw_params p) {
  CALL_LIST(adamw, updates, n, 0, n, p);
}

ARGS(sum_squares, double *sums; easyrl_values *x; int32_t n;)
RUN(sum_squares) {
  LIST(x);
  for (int32_t i = 0; i < a->n; i++) NEAR(x[i].data, a->x[i].n);
  CPU(sum_squares, a->sums, a->x, a->n);
}
static void far_sum_squares(easyrl_device *d, double *sums, const easyrl_values *x, int32_t n) {
  memset(sums, 0, (size_t)n * sizeof *sums);
  CALL_LIST(sum_squares, x, n, sums, 0, n);
  far_wait(d);
}

ARGS(sum_squares_exact, easyrl_squares *sums; easyrl_gradient *g; int32_t n;)
RUN(sum_squares_exact) {
  LIST(g);
  for (int32_t i = 0; i < a->n; i++)
    if (a->g[i].n > 0) SUMS(g[i].sums, a->g[i].n);
  CPU(sum_squares_exact, a->sums, a->g, a->n);
}
static void far_sum_squares_exact(easyrl_device *d, easyrl_squares *sums, const easyrl_gradient *g, int32_t n) {
  memset(sums, 0, (size_t)n * sizeof *sums);
  CALL_LIST(sum_squares_exact, g, n, sums, 0, n);
  far_wait(d);
}
