/* A driver that writes its calls into the file $FAKE_LOG, one line of JSON each, so that the launcher of libraries is
   tested without a GPU. $FAKE_SIZES has the bytes of each parameter of a launch, $FAKE_CAPABILITY the device's. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;

static void note(const char *format, ...) {
  FILE *file = fopen(getenv("FAKE_LOG"), "a");
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
  fclose(file);
}

static void *current = 0;
static u64 allocated = 0x100000;

int cuInit(unsigned flags) { return 0; }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)100; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int capability = atoi(getenv("FAKE_CAPABILITY"));
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 3;
  return 0;
}
int cuModuleLoadData(void **module, const void *image) {
  char text[41] = "";
  for (int i = 0; i < 40 && ((const char *)image)[i] >= ' '; i++) text[i] = ((const char *)image)[i];
  note("{\"call\": \"load\", \"image\": \"%s\"}\n", text);
  *module = (void *)image;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)name;
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  note("{\"call\": \"attribute\", \"number\": %d, \"value\": %d}\n", attribute, value);
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *function, int threads, size_t shared) {
  *count = 2;
  return 0;
}
int cuOccupancyMaxActiveClusters(int *count, void *function, const void *config) { *count = 5; return 0; }
int cuMemAllocAsync(u64 *address, size_t size, void *stream) {
  note("{\"call\": \"allocate\", \"size\": %zu, \"stream\": %lu}\n", size, (uintptr_t)stream);
  *address = allocated += 4096;
  return 0;
}
int cuMemFreeAsync(u64 address, void *stream) {
  note("{\"call\": \"free\", \"address\": %llu}\n", address);
  return 0;
}
int cuTensorMapEncodeTiled(unsigned char *map, int type, unsigned rank, void *address, const u64 *dims,
                           const u64 *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                           int promotion, int fill) {
  unsigned head[2] = {type, rank}, tail[4] = {interleave, swizzle, promotion, fill};
  if ((uintptr_t)map % 64) return 1;
  memset(map, 0, 128);
  memcpy(map, head, 8);
  memcpy(map + 8, &address, 8);
  memcpy(map + 16, dims, 8 * rank);
  memcpy(map + 56, strides, 8 * (rank - 1));
  memcpy(map + 88, box, 4 * rank);
  memcpy(map + 108, tail, 16);
  for (unsigned axis = 0; axis < rank; axis++)
    if (steps[axis] != 1) return 1;
  return 0;
}
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct { int id; char pad[4]; int value; char rest[60]; } *attributes;
  unsigned count;
} Config;
int cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra) {
  char text[20000] = "", sizes[1000], *at = text;
  strcpy(sizes, getenv("FAKE_SIZES"));
  int number = 0;
  for (char *size = strtok(sizes, ","); size; size = strtok(0, ","), number++) {
    at += sprintf(at, "%s\"", number ? ", " : "");
    for (int byte = 0; byte < atoi(size); byte++) at += sprintf(at, "%02x", ((unsigned char *)parameters[number])[byte]);
    at += sprintf(at, "\"");
  }
  char attributes[200] = "", *end = attributes;
  for (unsigned each = 0; each < config->count; each++)
    end += sprintf(end, "%s[%d, %d]", each ? ", " : "", config->attributes[each].id, config->attributes[each].value);
  note("{\"call\": \"launch\", \"function\": \"%s\", \"grid\": [%u, %u, %u], \"threads\": %u, \"shared\": %u, "
       "\"stream\": %lu, \"attributes\": [%s], \"values\": [%s]}\n",
       (char *)function, config->grid[0], config->grid[1], config->grid[2], config->block[0], config->shared,
       (uintptr_t)config->stream, attributes, text);
  return 0;
}

#define FUNCTION(name) if (!strcmp(symbol, #name)) *function = (void *)name;
int cuGetProcAddress_v2(const char *symbol, void **function, int version, u64 flags, int *answer) {
  *function = 0;
  FUNCTION(cuInit) FUNCTION(cuCtxGetCurrent) FUNCTION(cuCtxSetCurrent) FUNCTION(cuCtxGetDevice) FUNCTION(cuDeviceGet)
  FUNCTION(cuDevicePrimaryCtxRetain) FUNCTION(cuDeviceGetAttribute) FUNCTION(cuModuleLoadData)
  FUNCTION(cuModuleGetFunction) FUNCTION(cuFuncSetAttribute) FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor)
  FUNCTION(cuOccupancyMaxActiveClusters) FUNCTION(cuMemAllocAsync) FUNCTION(cuMemFreeAsync)
  FUNCTION(cuTensorMapEncodeTiled) FUNCTION(cuLaunchKernelEx)
  return *function ? 0 : 500;
}
