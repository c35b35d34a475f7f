/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_GLAKE_HPP
#define GLAKE_GLAKE_HPP

/*
 * glake for C++17: contexts and blocks that clean up after themselves, errors as exceptions. All
 * of it is inline and calls the functions of the headers for C, which say what may happen, which
 * thread may call, what blocks and what the driver is asked for; here stands only what is added.
 * The namespace is glk, since glake is the name of a structure of C.
 *
 *   glk::context ctx(glk::options().set("pool.budget", "24GiB"));
 *   glk::block tensor = ctx.alloc(48 << 20, stream);
 *   kernel<<<grid, threads, 0, stream>>>(tensor.as<float>());
 *
 *   error.hpp             errors
 *   block.hpp             blocks
 *   context.hpp           contexts
 *   memory_resource.hpp   std::pmr
 *   rmm.hpp, tensorrt.hpp for those who have RMM and TensorRT; not included here
 *
 * Errors. Functions throw glk::error, which holds the record of glake_last_error. Those that take
 * std::nothrow as their last argument do not throw: they return 0 or a negative errno value, or
 * an empty object, and glk::last_error() has the record.
 *
 * Lifetimes. A context_ref is a name of a context, copied like a pointer; a context owns it. What
 * outlives its context does no harm: the library knows the handle of a closed one, so a block
 * whose context has gone frees nothing.
 */
#include <glake/block.hpp>
#include <glake/context.hpp>
#include <glake/error.hpp>
#include <glake/glake.h>
#include <glake/memory_resource.hpp>

#endif
