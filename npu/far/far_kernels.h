/* The kernels. A call records its arguments. Later, the kernel's run function checks them,
 * replaces device addresses by host addresses and calls the CPU's kernel. It does not call the
 * kernel if an argument is invalid. */

/* The fields of a kernel's arguments. */
#define ARGS(kernel, ...)             \
  typedef struct {                    \
    __VA_ARGS__                       \
  } kernel##_args;

/* Begins the function that runs a kernel with arguments a. */
#define RUN(kernel)                                                                    \
  static void with_##kernel(easyrl_device *d, kernel##_args *a);                       \
  static void run_##kernel(easyrl_device *d, void *args) { with_##kernel(d, args); }   \
  static void with_##kernel(easyrl_device *d, kernel##_args *a)

/* Records a call with its arguments. */
#define PUSH(call, ...) far_push(d, #call, run_##call, &(call##_args){__VA_ARGS__}, sizeof(call##_args), 0, 0)

/* Records a call of a kernel. */
#define CALL(kernel, ...)      \
  do {                         \
    far_count(FAR_KERNELS, 1); \
    PUSH(kernel, __VA_ARGS__); \
  } while (0)

/* Records a call of a kernel with a copy of a list of n elements. In the run function, LIST sets
 * the field to that copy. */
#define CALL_LIST(kernel, list, n, ...)                                                                                             \
  do {                                                                                                                              \
    far_count(FAR_KERNELS, 1);                                                                                                      \
    far_push(d, #kernel, run_##kernel, &(kernel##_args){__VA_ARGS__}, sizeof(kernel##_args), list, (size_t)(n) * sizeof *(list));   \
  } while (0)
#define LIST(field) (a->field = (void *)(a + 1))

/* Calls the CPU's kernel if all arguments are valid. */
#define CPU(kernel, ...) \
  if (d->valid) d->api->kernel(d->cpu, __VA_ARGS__)

/* Each of these checks an operand, named by its field in the arguments, and replaces its device
 * address by the host address. NEAR is for n values, OPTIONAL for n values or NULL. */
#define NEAR(field, n) (a->field = far_near(d, #field, a->field, (int64_t)(n) * (int64_t)sizeof *a->field))
#define OPTIONAL(field, n) (a->field ? NEAR(field, n) : 0)
/* TYPED is for n values of a type, VALUES for n weights or activations. */
#define TYPED(field, type, n) (a->field = far_near(d, #field, a->field, (int64_t)(n) * ((type) == EASYRL_FLOAT32 ? 4 : 2)))
#define VALUES(field, n) TYPED(field, d->api->type, n)
#define INDICES(field, n, lo, hi) (NEAR(field, n), far_indices(d, #field, a->field, n, lo, hi))
#define MATRIX(field) VALUES(field.data, far_matrix(d, a->field.rows, a->field.cols))
#define FLOAT_MATRIX(field) TYPED(field.data, EASYRL_FLOAT32, far_matrix(d, a->field.rows, a->field.cols))
#define SUMS(field, n) (NEAR(field.data, n), NEAR(field.mark, 1))
#define MATRIX_SUMS(field) SUMS(field.sums, far_matrix(d, a->field.rows, a->field.cols))
#define LEAVES(field) \
  (INDICES(field.ends, a->field.n, 0, (int64_t)a->field.rows + 1), NEAR(field.units, a->field.n_units), far_units(d, &a->field))
#define INDEX_END INT32_MAX /* for indices whose limit is the size of another operand */

static int64_t far_matrix(easyrl_device *d, int32_t rows, int32_t cols) { return d->api->matrix_len(d->cpu, rows, cols); }

/* Records a failure unless units of at most EASYRL_UNIT_ROWS rows cover all rows. */
static void far_units(easyrl_device *d, const easyrl_leaves *l) {
  int32_t row = 0;
  for (int32_t i = 0; l->units && i < l->n_units; row = l->units[i++])
    if (l->units[i] < row || l->units[i] > row + EASYRL_UNIT_ROWS)
      far_fail(d, "leaves.units", "unit %d ends at row %d, expected %d to %d", (int)i, (int)l->units[i], (int)row,
               (int)row + EASYRL_UNIT_ROWS);
  if (row != l->rows) far_fail(d, "leaves.units", "units end at row %d, expected %d", (int)row, (int)l->rows);
}

ARGS(copy, char *dst; const char *src; int64_t bytes;)
RUN(copy) {
  NEAR(dst, a->bytes), NEAR(src, a->bytes);
  CPU(copy, a->dst, a->src, a->bytes);
}
static void far_copy(easyrl_device *d, void *dst, const void *src, int64_t bytes) { CALL(copy, dst, src, bytes); }

ARGS(zero, char *x; int64_t bytes;)
RUN(zero) {
  NEAR(x, a->bytes);
  CPU(zero, a->x, a->bytes);
}
static void far_zero(easyrl_device *d, void *x, int64_t bytes) { CALL(zero, x, bytes); }

ARGS(convert, void *y; easyrl_dtype y_type; const void *x; easyrl_dtype x_type; int64_t n;)
RUN(convert) {
  TYPED(y, a->y_type, a->n), TYPED(x, a->x_type, a->n);
  CPU(convert, a->y, a->y_type, a->x, a->x_type, a->n);
}
static void far_convert(easyrl_device *d, void *y, easyrl_dtype y_type, const void *x, easyrl_dtype x_type, int64_t n) {
  CALL(convert, y, y_type, x, x_type, n);
}

ARGS(add, float *y; const float *x; int64_t n;)
RUN(add) {
  NEAR(y, a->n), NEAR(x, a->n);
  CPU(add, a->y, a->x, a->n);
}
static void far_add(easyrl_device *d, float *y, const float *x, int64_t n) { CALL(add, y, x, n); }

ARGS(pack_matrix, easyrl_matrix m; const float *pinned;)
RUN(pack_matrix) {
  a->pinned = far_pinned(d, "source", a->pinned, (int64_t)a->m.rows * a->m.cols * 4);
  FLOAT_MATRIX(m);
  CPU(pack_matrix, a->m, a->pinned);
}
static void far_pack_matrix(easyrl_device *d, easyrl_matrix m, const float *pinned) {
  if (far_breaks()) pinned = 0;
  far_count(FAR_UPLOADS, 1);
  far_count(FAR_BYTES_UP, (int64_t)m.rows * m.cols * 4);
  CALL(pack_matrix, m, pinned);
}

ARGS(unpack_matrix, float *pinned; easyrl_matrix m;)
RUN(unpack_matrix) {
  a->pinned = far_pinned(d, "destination", a->pinned, (int64_t)a->m.rows * a->m.cols * 4);
  FLOAT_MATRIX(m);
  CPU(unpack_matrix, a->pinned, a->m);
}
static void far_unpack_matrix(easyrl_device *d, float *pinned, easyrl_matrix m) {
  int64_t bytes = (int64_t)m.rows * m.cols * 4;
  far_count(FAR_DOWNLOADS, 1);
  far_count(FAR_BYTES_DOWN, bytes);
  far_poison(pinned, bytes);
  CALL(unpack_matrix, pinned, m);
}

ARGS(sum_panels, uint64_t *sums; easyrl_matrix *m; int32_t n;)
RUN(sum_panels) {
  LIST(m);
  for (int32_t i = 0; i < a->n; i++) {
    easyrl_matrix m = a->m[i];
    TYPED(m[i].data, EASYRL_FLOAT32, m.cols ? far_matrix(d, m.rows, m.cols) : m.rows);
  }
  CPU(sum_panels, a->sums, a->m, a->n);
}
static void far_sum_panels(easyrl_device *d, uint64_t *sums, const easyrl_matrix *m, int32_t n) {
  CALL_LIST(sum_panels, m, n, sums, 0, n);
  far_wait(d);
}

ARGS(embed, float *y; easyrl_matrix table; const int32_t *ids; int32_t t;)
RUN(embed) {
  NEAR(y, (int64_t)a->t * a->table.cols), MATRIX(table);
  INDICES(ids, a->t, 0, a->table.rows);
  CPU(embed, a->y, a->table, a->ids, a->t);
}
static void far_embed(easyrl_device *d, float *y, easyrl_matrix table, const int32_t *ids, int32_t t) { CALL(embed, y, table, ids, t); }

ARGS(embed_backward, easyrl_matrix_sums m; const float *dy; easyrl_tokens tokens; easyrl_fixed_point format;)
RUN(embed_backward) {
  MATRIX_SUMS(m), NEAR(dy, (int64_t)a->tokens.t * a->m.cols);
  INDICES(tokens.ids, a->tokens.t, 0, a->m.rows);
  INDICES(tokens.rows, a->tokens.t, 0, a->tokens.t);
  INDICES(tokens.starts, a->tokens.lists + 1, 0, (int64_t)a->tokens.t + 1);
  CPU(embed_backward, a->m, a->dy, a->tokens, a->format);
}
static void far_embed_backward(easyrl_device *d, easyrl_matrix_sums m, const float *dy, easyrl_tokens tokens, easyrl_fixed_point format) {
  CALL(embed_backward, m, dy, tokens, format);
}

ARGS(linear, void *y; easyrl_dtype y_type; const void *x; easyrl_matrix w; const void *bias; int32_t t; easyrl_start start;)
RUN(linear) {
  TYPED(y, a->y_type, (int64_t)a->t * a->w.rows), VALUES(x, (int64_t)a->t * a->w.cols);
  MATRIX(w);
  if (a->bias) VALUES(bias, a->w.rows);
  CPU(linear, a->y, a->y_type, a->x, a->w, a->bias, a->t, a->start);
}
static void far_linear(easyrl_device *d, void *y, easyrl_dtype y_type, const void *x, easyrl_matrix w, const void *bias,
                       int32_t t, easyrl_start start) {
  CALL(linear, y, y_type, x, w, bias, t, start);
}

ARGS(linear_backward_input, void *dx; easyrl_dtype dx_type; easyrl_product *products; int32_t n, t; easyrl_start start;)
RUN(linear_backward_input) {
  LIST(products);
  TYPED(dx, a->dx_type, (int64_t)a->t * a->products[0].w.cols);
  for (int32_t i = 0; i < a->n; i++) VALUES(products[i].dy, (int64_t)a->t * a->products[i].w.rows), MATRIX(products[i].w);
  CPU(linear_backward_input, a->dx, a->dx_type, a->products, a->n, a->t, a->start);
}
static void far_linear_backward_input(easyrl_device *d, void *dx, easyrl_dtype dx_type, const easyrl_product *products,
                                      int32_t n, int32_t t, easyrl_start start) {
  CALL_LIST(linear_backward_input, products, n, dx, dx_type, 0, n, t, start);
}

ARGS(linear_backward_weight, easyrl_matrix_sums dw; easyrl_sums d_bias; const void *dy, *x; easyrl_leaves leaves;)
RUN(linear_backward_weight) {
  MATRIX_SUMS(dw), LEAVES(leaves);
  if (a->d_bias.data) SUMS(d_bias, a->dw.rows);
  VALUES(dy, (int64_t)a->leaves.rows * a->dw.rows), VALUES(x, (int64_t)a->leaves.rows * a->dw.cols);
  CPU(linear_backward_weight, a->dw, a->d_bias, a->dy, a->x, a->leaves);
}
static void far_linear_backward_weight(easyrl_device *d, easyrl_matrix_sums dw, easyrl_sums d_bias, const void *dy,
                                       const void *x, easyrl_leaves leaves) {
  CALL(linear_backward_weight, dw, d_bias, dy, x, leaves);
}

ARGS(rms_norm, void *y; const void *x; easyrl_dtype x_type; const void *weight; int32_t t, cols; float eps;)
RUN(rms_norm) {
  VALUES(y, (int64_t)a->t * a->cols), TYPED(x, a->x_type, (int64_t)a->t * a->cols), VALUES(weight, a->cols);
  CPU(rms_norm, a->y, a->x, a->x_type, a->weight, a->t, a->cols, a->eps);
}
static void far_rms_norm(easyrl_device *d, void *y, const void *x, easyrl_dtype x_type, const void *weight, int32_t t,
                         int32_t cols, float eps) {
  CALL(rms_norm, y, x, x_type, weight, t, cols, eps);
}

ARGS(norm_linear, easyrl_projection *outputs; int32_t n; void *norm; const float *x; const void *weight;
     int32_t t, cols; float eps;)
RUN(norm_linear) {
  LIST(outputs);
  VALUES(norm, (int64_t)a->t * a->cols), NEAR(x, (int64_t)a->t * a->cols), VALUES(weight, a->cols);
  CPU(rms_norm, a->norm, a->x, EASYRL_FLOAT32, a->weight, a->t, a->cols, a->eps);
  for (int32_t i = 0; i < a->n; i++) {
    easyrl_projection *o = a->outputs + i;
    VALUES(outputs[i].y, (int64_t)a->t * o->w.rows), MATRIX(outputs[i].w);
    if (o->bias) VALUES(outputs[i].bias, o->w.rows);
    CPU(linear, o->y, d->api->type, a->norm, o->w, o->bias, a->t, 0);
  }
  if (d->valid) far_poison(a->norm, (int64_t)a->t * a->cols * (d->api->type == EASYRL_FLOAT32 ? 4 : 2)); /* scratch */
}
static void far_norm_linear(easyrl_device *d, const easyrl_projection *outputs, int32_t n, void *norm, const float *x,
                            const void *weight, int32_t t, int32_t cols, float eps) {
  CALL_LIST(norm_linear, outputs, n, 0, n, norm, x, weight, t, cols, eps);
}

ARGS(rms_norm_backward, void *dx; easyrl_sums dw; const void *dy, *x; easyrl_dtype x_type; const void *weight;
     int32_t heads, cols; float eps; int32_t add; easyrl_leaves leaves;)
RUN(rms_norm_backward) {
  int64_t n = (int64_t)a->leaves.rows * a->heads * a->cols;
  TYPED(dx, a->x_type, n), VALUES(dy, n), TYPED(x, a->x_type, n), VALUES(weight, a->cols), SUMS(dw, a->cols), LEAVES(leaves);
  CPU(rms_norm_backward, a->dx, a->dw, a->dy, a->x, a->x_type, a->weight, a->heads, a->cols, a->eps, a->add, a->leaves);
}
static void far_rms_norm_backward(easyrl_device *d, void *dx, easyrl_sums dw, const void *dy, const void *x,
                                  easyrl_dtype x_type, const void *weight, int32_t heads, int32_t cols, float eps,
                                  int32_t add, easyrl_leaves leaves) {
  CALL(rms_norm_backward, dx, dw, dy, x, x_type, weight, heads, cols, eps, add, leaves);
}

ARGS(rope, void *x; const float *table; const int32_t *positions; int32_t t, heads, dim, inverse;)
RUN(rope) {
  VALUES(x, (int64_t)a->t * a->heads * a->dim);
  INDICES(positions, a->t, 0, INDEX_END);
  NEAR(table, (far_most(a->positions, a->t) + 1) * a->dim);
  CPU(rope, a->x, a->table, a->positions, a->t, a->heads, a->dim, a->inverse);
}
static void far_rope(easyrl_device *d, void *x, const float *table, const int32_t *positions, int32_t t, int32_t heads,
                     int32_t dim, int32_t inverse) {
  CALL(rope, x, table, positions, t, heads, dim, inverse);
}

ARGS(swiglu, void *y; const void *gate, *up; int64_t n;)
RUN(swiglu) {
  VALUES(y, a->n), VALUES(gate, a->n), VALUES(up, a->n);
  CPU(swiglu, a->y, a->gate, a->up, a->n);
}
static void far_swiglu(easyrl_device *d, void *y, const void *gate, const void *up, int64_t n) { CALL(swiglu, y, gate, up, n); }

ARGS(swiglu_backward, void *d_gate, *d_up; const void *dy, *gate, *up; int64_t n;)
RUN(swiglu_backward) {
  VALUES(d_gate, a->n), VALUES(d_up, a->n), VALUES(dy, a->n), VALUES(gate, a->n), VALUES(up, a->n);
  CPU(swiglu_backward, a->d_gate, a->d_up, a->dy, a->gate, a->up, a->n);
}
static void far_swiglu_backward(easyrl_device *d, void *d_gate, void *d_up, const void *dy, const void *gate,
                                const void *up, int64_t n) {
  CALL(swiglu_backward, d_gate, d_up, dy, gate, up, n);
}

ARGS(gather_rows, float *y; const float *x; const int32_t *rows; int32_t n, cols;)
RUN(gather_rows) {
  NEAR(y, (int64_t)a->n * a->cols);
  INDICES(rows, a->n, 0, INDEX_END);
  NEAR(x, (far_most(a->rows, a->n) + 1) * a->cols);
  CPU(gather_rows, a->y, a->x, a->rows, a->n, a->cols);
}
static void far_gather_rows(easyrl_device *d, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols) {
  CALL(gather_rows, y, x, rows, n, cols);
}

ARGS(scatter_add_rows, float *y; const float *x; const int32_t *rows; int32_t n, cols;)
RUN(scatter_add_rows) {
  INDICES(rows, a->n, 0, INDEX_END);
  NEAR(y, (far_most(a->rows, a->n) + 1) * a->cols), NEAR(x, (int64_t)a->n * a->cols);
  CPU(scatter_add_rows, a->y, a->x, a->rows, a->n, a->cols);
}
static void far_scatter_add_rows(easyrl_device *d, float *y, const float *x, const int32_t *rows, int32_t n, int32_t cols) {
  CALL(scatter_add_rows, y, x, rows, n, cols);
}

ARGS(set_ints, int32_t *y; const int32_t *at, *x; int32_t n;)
RUN(set_ints) {
  INDICES(at, a->n, 0, INDEX_END);
  NEAR(x, a->n), NEAR(y, far_most(a->at, a->n) + 1);
  for (int32_t i = 0; d->valid && i < a->n; i++)
    for (int32_t j = 0; j < i; j++)
      if (a->at[i] == a->at[j] && a->x[i] != a->x[j]) far_fail(d, "at", "index %d has the values %d and %d", (int)a->at[i], (int)a->x[j], (int)a->x[i]);
  CPU(set_ints, a->y, a->at, a->x, a->n);
}
static void far_set_ints(easyrl_device *d, int32_t *y, const int32_t *at, const int32_t *x, int32_t n) { CALL(set_ints, y, at, x, n); }
