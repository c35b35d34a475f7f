/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_ORT_H
#define GLK_FRONT_ORT_H

/*
 * What ONNX Runtime's CUDA provider calls for the memory of its tensors, in the context that
 * PyTorch's plug-in has. See ort.c.
 */
#include <glake/glake.h>

#define GLK_ORT_DEVICES 16 /* GPUs that have functions of their own */

/* As ONNX Runtime's options gpu_external_alloc, gpu_external_free, gpu_external_empty_cache. */
struct glake_ort_functions {
	void *(*alloc)(size_t size); /* NULL where there is no memory */
	void (*free)(void *ptr);
	void (*empty_cache)(void);
};

/* Those of GPU 0. */
GLAKE_EXPORT void *glake_ort_alloc(size_t size);
GLAKE_EXPORT void glake_ort_free(void *ptr);
GLAKE_EXPORT void glake_ort_empty_cache(void);

/* Those of a GPU, in the order of a stream or with NULL of none. Returns 0, -EINVAL (no such GPU,
 * no context), -EBUSY (the GPU's functions have another stream already). */
GLAKE_EXPORT int glake_ort_functions(int device, struct CUstream_st *stream,
	struct glake_ort_functions *ret_functions);

#endif
