// Measures oneDNN's matrix products for `go run ./bench`: y = x wT, with the same shapes and the
// same amount of work as bench/gemm.go. It prints the seconds of each iteration as JSON.
//
//	gemm sgemm all       multiplies by the weight as given
//	gemm matmul small    reorders the weight once into the layout that the primitive prefers;
//	                     only shapes with at most 32 rows
//
// Each method also accepts the other set of shapes.
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float *filled(size_t n) {
  float *x = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
  for (size_t i = 0; i < n; i++) x[i] = (float)(i % 7) - 3;
  return x;
}

typedef struct {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t prim;
  dnnl_exec_arg_t args[3];
} packed_t;

static void unpack(packed_t *p) {
  for (int i = 0; i < 3; i++) dnnl_memory_destroy(p->args[i].memory);
  dnnl_primitive_destroy(p->prim);
  dnnl_stream_destroy(p->stream);
  dnnl_engine_destroy(p->engine);
}

// pack returns a matmul primitive for x [m, k], w [n, k] and y [m, n], with a reordered copy of w.
// unpack frees it.
static packed_t pack(int m, int n, int k, float *x, float *w, float *y) {
  packed_t p;
  dnnl_engine_t engine;
  dnnl_engine_create(&engine, dnnl_cpu, 0);
  dnnl_stream_create(&p.stream, engine, dnnl_stream_default_flags);
  dnnl_dims_t xd = {m, k}, wd = {k, n}, yd = {m, n}, ws = {1, k};
  dnnl_memory_desc_t xm, wplain, wany, ym;
  dnnl_memory_desc_init_by_tag(&xm, 2, xd, dnnl_f32, dnnl_ab);
  dnnl_memory_desc_init_by_tag(&ym, 2, yd, dnnl_f32, dnnl_ab);
  dnnl_memory_desc_init_by_tag(&wany, 2, wd, dnnl_f32, dnnl_format_tag_any);
  dnnl_memory_desc_init_by_strides(&wplain, 2, wd, dnnl_f32, ws);
  dnnl_matmul_desc_t desc;
  dnnl_matmul_desc_init(&desc, &xm, &wany, NULL, &ym);
  dnnl_primitive_desc_t pd;
  dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL);
  dnnl_primitive_create(&p.prim, pd);
  const dnnl_memory_desc_t *want = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
  dnnl_memory_t mx, mw, mp, my;
  dnnl_memory_create(&mx, &xm, engine, x);
  dnnl_memory_create(&my, &ym, engine, y);
  dnnl_memory_create(&mw, &wplain, engine, w);
  dnnl_memory_create(&mp, want, engine, DNNL_MEMORY_ALLOCATE);
  dnnl_primitive_desc_t rpd;
  dnnl_reorder_primitive_desc_create(&rpd, &wplain, engine, want, engine, NULL);
  dnnl_primitive_t reorder;
  dnnl_primitive_create(&reorder, rpd);
  dnnl_exec_arg_t ra[] = {{DNNL_ARG_SRC, mw}, {DNNL_ARG_DST, mp}};
  dnnl_primitive_execute(reorder, p.stream, 2, ra);
  dnnl_stream_wait(p.stream);
  dnnl_memory_destroy(mw);
  dnnl_primitive_destroy(reorder);
  dnnl_primitive_desc_destroy(rpd);
  dnnl_primitive_desc_destroy(pd);
  p.engine = engine;
  p.args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, mx};
  p.args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, mp};
  p.args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, my};
  return p;
}

int main(int argc, char **argv) {
  int packed = argc == 3 && !strcmp(argv[1], "matmul"), small = argc == 3 && !strcmp(argv[2], "small");
  if (argc != 3 || (!packed && strcmp(argv[1], "sgemm")) || (!small && strcmp(argv[2], "all"))) {
    fprintf(stderr, "gemm: expected sgemm or matmul, then all or small\n");
    return 2;
  }
  static const int shapes[][3] = {
      {256, 512, 128}, {1024, 1024, 256}, {2048, 512, 512}, {2048, 2048, 2048}, {64, 384, 128},
      {1, 2048, 2048}, {8, 2048, 2048},   {16, 2048, 2048}, {32, 2048, 2048},   {32, 512, 128},
  };
  enum { ITERATIONS = 20 };
  printf("{\"seconds\":{");
  const char *comma = "";
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
    if (small && m > 32) continue;
    float *x = filled((size_t)m * k), *w = filled((size_t)n * k), *y = filled((size_t)m * n);
    packed_t p;
    if (packed) {
      p = pack(m, n, k, x, w, y);
      free(w), w = NULL;
    }
    long repeat = 500000000L / (2L * m * n * k);
    if (repeat < 1) repeat = 1;
    double seconds[ITERATIONS];
    for (int i = -1; i < ITERATIONS; i++) {
      double began = now();
      for (long r = 0; r < repeat; r++) {
        if (packed)
          dnnl_primitive_execute(p.prim, p.stream, 3, p.args);
        else
          dnnl_sgemm('N', 'T', m, n, k, 1, x, k, w, k, 0, y, n);
      }
      if (packed) dnnl_stream_wait(p.stream);
      if (i >= 0) seconds[i] = now() - began;
    }
    printf("%s\"%dx%dx%d\":[", comma, m, n, k);
    comma = ",";
    for (int i = 0; i < ITERATIONS; i++) printf("%s%.9f", i ? "," : "", seconds[i]);
    printf("]");
    if (packed) unpack(&p);
    free(x), free(w), free(y);
  }
  const dnnl_version_t *v = dnnl_version();
  printf("},\"version\":\"oneDNN %d.%d.%d\"}\n", v->major, v->minor, v->patch);
  return 0;
}
