/* Launches the kernels of shipping.py from C, on this machine's processors or on a GPU, and compares the results.

     ziggurat build examples/shipping.py -o kernels --target cpu --target sm_90a
     cc -O2 -pthread -o shipping examples/shipping.c -Ikernels kernels/kernels.a -ldl -lm
     ./shipping cpu    # or ./shipping gpu

   A GPU's memory is that of CUDA's driver, which is opened here by dlopen, so that this builds without CUDA. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

typedef _Float16 half;
enum { ROWS = 64, COLUMNS = 777, M = 200, N = 272, K = 320, HEADS = 2, LENGTH = 256, D = 64 };

/* Memory: of the GPU, or this machine's. */
static int on_gpu;
static int (*allocate)(unsigned long long *, size_t), (*upload)(unsigned long long, const void *, size_t),
    (*download)(void *, unsigned long long, size_t);

static void check(int status, const char *what) {
  if (status) {
    printf("%s: %d %s\n", what, status, kernels_error());
    exit(1);
  }
}

static void open_driver(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = 0;
  int device;
  if (!cuda) {
    printf("there is no libcuda.so.1\n");
    exit(1);
  }
  int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *);
  *(void **)&init = dlsym(cuda, "cuInit");
  *(void **)&get = dlsym(cuda, "cuDeviceGet");
  *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  *(void **)&set = dlsym(cuda, "cuCtxSetCurrent");
  *(void **)&allocate = dlsym(cuda, "cuMemAlloc_v2");
  *(void **)&upload = dlsym(cuda, "cuMemcpyHtoD_v2");
  *(void **)&download = dlsym(cuda, "cuMemcpyDtoH_v2");
  check(init(0) || get(&device, 0) || retain(&context, device) || set(context), "opening a GPU");
}

static void *placed(const void *data, size_t size) {
  if (on_gpu) {
    unsigned long long address;
    check(allocate(&address, size) || upload(address, data, size), "copying to the GPU");
    return (void *)(uintptr_t)address;
  }
  return memcpy(aligned_alloc(64, (size + 63) / 64 * 64), data, size);
}

static void fetched(void *data, void *place, size_t size) {
  if (on_gpu)
    check(download(data, (uintptr_t)place, size), "copying from the GPU");
  else
    memcpy(data, place, size);
}

static float drawn(void) { return (float)rand() / RAND_MAX * 2 - 1; }

static void draw(half *numbers, int count) {
  for (int i = 0; i < count; i++) numbers[i] = drawn();
}

static float error_of(float worst, double got, double expected) {
  float error = fabs(got - expected);
  return error > worst || error != error ? error : worst;
}

static float softmax(void) {
  static float x[ROWS][COLUMNS], y[ROWS][COLUMNS];
  for (int row = 0; row < ROWS; row++)
    for (int i = 0; i < COLUMNS; i++) x[row][i] = 10 * drawn();
  void *in = placed(x, sizeof x), *out = placed(y, sizeof y);
  uint32_t grid[3] = {ROWS, 1, 1};
  if (on_gpu)
    check(softmax_kernel_launch(0, grid, out, in, COLUMNS, COLUMNS, COLUMNS), "softmax");
  else
    check(softmax_kernel_run(grid, 0, ROWS, out, in, COLUMNS, COLUMNS, COLUMNS), "softmax");
  fetched(y, out, sizeof y);
  float worst = 0;
  for (int row = 0; row < ROWS; row++) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < COLUMNS; i++) top = fmax(top, x[row][i]);
    for (int i = 0; i < COLUMNS; i++) sum += exp(x[row][i] - top);
    for (int i = 0; i < COLUMNS; i++) worst = error_of(worst, y[row][i], exp(x[row][i] - top) / sum);
  }
  return worst;
}

/* Two threads divide the programs of a product. */
static struct {
  uint32_t grid[3];
  void *a, *b, *c;
} product;

static void *half_of_product(void *second) {
  int64_t total = product.grid[0], first = second ? total / 2 : 0, last = second ? total : total / 2;
  check(matmul_kernel_run(product.grid, first, last, product.a, product.b, product.c, M, N, K, K, 1, N, 1, N, 1), "matmul");
  return 0;
}

static float matmul(void) {
  static half a[M][K], b[K][N], c[M][N];
  draw(*a, M * K), draw(*b, K * N);
  product.a = placed(a, sizeof a), product.b = placed(b, sizeof b), product.c = placed(c, sizeof c);
  matmul_kernel_grid(product.grid, M, N);
  if (on_gpu) {
    check(matmul_kernel_launch(0, product.grid, product.a, product.b, product.c, M, N, K, K, 1, N, 1, N, 1), "matmul");
  } else {
    pthread_t thread;
    pthread_create(&thread, 0, half_of_product, "second");
    half_of_product(0);
    pthread_join(thread, 0);
  }
  fetched(c, product.c, sizeof c);
  float worst = 0;
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      double sum = 0;
      for (int k = 0; k < K; k++) sum += (double)a[i][k] * b[k][j];
      worst = error_of(worst, c[i][j], sum);
    }
  return worst;
}

static ziggurat_tensor described(void *base) {
  return (ziggurat_tensor){base, {HEADS * LENGTH, D}, {D, 1}};
}

static float attention(void) {
  static half q[HEADS * LENGTH][D], k[HEADS * LENGTH][D], v[HEADS * LENGTH][D], o[HEADS * LENGTH][D];
  draw(*q, HEADS * LENGTH * D), draw(*k, HEADS * LENGTH * D), draw(*v, HEADS * LENGTH * D);
  void *out = placed(o, sizeof o);
  ziggurat_tensor tensors[4] = {described(placed(q, sizeof q)), described(placed(k, sizeof k)),
                                described(placed(v, sizeof v)), described(out)};
  uint32_t grid[3] = {LENGTH / 128, HEADS, 1};
  const ziggurat_tensor *t = tensors;
  if (on_gpu)
    check(attention_kernel_launch(0, grid, t, t + 1, t + 2, t + 3, LENGTH, 0.125f), "attention");
  else
    check(attention_kernel_run(grid, 0, LENGTH / 128 * HEADS, t, t + 1, t + 2, t + 3, LENGTH, 0.125f), "attention");
  fetched(o, out, sizeof o);
  float worst = 0;
  for (int row = 0; row < HEADS * LENGTH; row++) {
    int head = row / LENGTH * LENGTH;
    double weights[LENGTH], sum = 0;
    for (int key = 0; key < LENGTH; key++) {
      double score = 0;
      for (int i = 0; i < D; i++) score += (double)q[row][i] * k[head + key][i];
      sum += weights[key] = exp(score / 8);
    }
    for (int i = 0; i < D; i++) {
      double value = 0;
      for (int key = 0; key < LENGTH; key++) value += weights[key] * v[head + key][i];
      worst = error_of(worst, o[row][i], value / sum);
    }
  }
  return worst;
}

int main(int count, char **arguments) {
  on_gpu = count > 1 && !strcmp(arguments[1], "gpu");
  if (on_gpu) open_driver();
  float errors[3] = {softmax(), matmul(), attention()};
  printf("softmax is off by at most %.1e, matmul by %.1e, attention by %.1e\n", errors[0], errors[1], errors[2]);
  return !(errors[0] < 1e-6 && errors[1] < 0.02 && errors[2] < 2e-3);
}
