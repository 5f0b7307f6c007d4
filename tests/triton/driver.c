/* Driver: a libcuda that launches nothing, and writes down what it is told to.
 *
 * It has the functions that Triton's launcher calls. Parameters are those of `copy_tiles`: four of 64 bits, then three
 * of 32. */

#include <stdint.h>

#include "cuda.h"

#define MOST 16
#define DONE CUDA_SUCCESS

typedef struct {
    uint64_t stream, programs, threads, early, parameters[7];
} Launch;

Launch launched[MOST];
int launches, asked;

CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction, void **given, void **) {
    Launch *one = &launched[launches++ % MOST];
    *one = (Launch){(uint64_t)how->hStream, how->gridDimX, how->blockDimX, 0, {0}};
    for (unsigned k = 0; k < how->numAttrs; k++)
        if (how->attrs[k].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            one->early = how->attrs[k].value.programmaticStreamSerializationAllowed;
    for (int k = 0; k < 7; k++) one->parameters[k] = k < 4 ? *(uint64_t *)given[k] : *(uint32_t *)given[k];
    return DONE;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute, CUdeviceptr pointer) {
    asked++;
    *(CUdeviceptr *)value = pointer;
    return DONE;
}

/* Of everything there is enough. */
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute, CUdevice) { return *value = 200 << 10, DONE; }
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute, CUfunction) { return *value = 1 << 10, DONE; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return DONE; }
CUresult cuModuleLoadData(CUmodule *module, const void *) { return *module = (CUmodule)1, DONE; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *) { return *function = (CUfunction)1, DONE; }
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)1, DONE; }
CUresult cuCtxSetCurrent(CUcontext) { return DONE; }
CUresult cuDeviceGet(CUdevice *device, int) { return *device = 0, DONE; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice) { return *context = (CUcontext)1, DONE; }
