/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_ATOMIC_H
#define GLK_BASE_ATOMIC_H

/*
 * Atomic operations named by their memory order, so that the memory model of the library can
 * be found with grep. This is the only file that includes <stdatomic.h>. Under GLK_MODEL the
 * same names run on relacy, so a model executes the real lock-free headers.
 *
 * Plain fields that one thread hands to another through an atomic are declared with
 * glk_plain(T) and accessed with glk_get and glk_set: nothing here, a race detector in models.
 *
 * Words of tables that are written under a lock, and read without it too, stay plain: who holds
 * the lock reads them as such. It writes them with glk_poke, which is a plain store with an order,
 * and who does not hold it reads them with glk_peek.
 *
 * A byte of an atomic word, from its lowest on, is written as such by glk_store_byte: others may write the bytes beside it.
 *
 * A counter of one writer grows by glk_add_own: a load and a store, relaxed. Of the two gcc makes three instructions, so
 * where one does both it is named.
 */
#ifdef GLK_MODEL
#include <relacy/relacy.hpp>

#define glk_atomic(T) rl::atomic<T>
#define glk_plain(T)  rl::var<T>
#define glk_get(v)    ((v)($))
#define glk_set(v, x) ((v)($) = (x))

#define glk_load_relaxed(p)	    ((p)->load(rl::mo_relaxed, $))
#define glk_load_acquire(p)	    ((p)->load(rl::mo_acquire, $))
#define glk_store_relaxed(p, v)	    ((p)->store((v), rl::mo_relaxed, $))
#define glk_store_release(p, v)	    ((p)->store((v), rl::mo_release, $))
#define glk_xchg_acq_rel(p, v)	    ((p)->exchange((v), rl::mo_acq_rel, $))
#define glk_load_seq_cst(p)	    ((p)->load(rl::mo_seq_cst, $))
#define glk_xchg_seq_cst(p, v)	    ((p)->exchange((v), rl::mo_seq_cst, $))
#define glk_add_seq_cst(p, v)	    ((p)->fetch_add((v), rl::mo_seq_cst, $))
#define glk_add_relaxed(p, v)	    ((p)->fetch_add((v), rl::mo_relaxed, $))
#define glk_or_relaxed(p, v)	    ((p)->fetch_or((v), rl::mo_relaxed, $))
#define glk_sub_relaxed(p, v)	    ((p)->fetch_sub((v), rl::mo_relaxed, $))
#define glk_add_acq_rel(p, v)	    ((p)->fetch_add((v), rl::mo_acq_rel, $))
#define glk_sub_acq_rel(p, v)	    ((p)->fetch_sub((v), rl::mo_acq_rel, $))
#define glk_cas_weak(p, o, n, s, f) ((p)->compare_exchange_weak(*(o), (n), s, $, f, $))
#define glk_cas_weak_acquire(p, o, n)                                                    \
	glk_cas_weak(p, o, n, rl::mo_acquire, rl::mo_acquire)
#define glk_cas_weak_release(p, o, n)                                                    \
	glk_cas_weak(p, o, n, rl::mo_release, rl::mo_relaxed)
#define glk_cas_weak_relaxed(p, o, n)                                                    \
	glk_cas_weak(p, o, n, rl::mo_relaxed, rl::mo_relaxed)
#define glk_cas_seq_cst(p, o, n)                                                         \
	((p)->compare_exchange_strong(*(o), (n), rl::mo_seq_cst, $, rl::mo_seq_cst, $))
#define glk_cas_acq_rel(p, o, n)                                                         \
	((p)->compare_exchange_strong(*(o), (n), rl::mo_acq_rel, $, rl::mo_acquire, $))
/* as two would who know nothing of each other: less than what is promised */
#define glk_store_byte(p, i, v)                                                          \
	((p)->store(((p)->load(rl::mo_relaxed, $) & ~((uint64_t)0xff << 8 * (i))) |      \
			(uint64_t)(v) << 8 * (i),                                        \
		rl::mo_relaxed, $))
#else
#include <stdatomic.h>

/* Where the library is compiled for the tests' scheduler another thread may go on before each of them,
 * and one that may fail without a reason does so at times: see t/sched. A program that loads such a
 * library has no scheduler. */
#ifdef GLK_SCHED
#include <stdbool.h>
__attribute__((weak)) void glk_sched_point(void);
__attribute__((weak)) bool glk_sched_fails(void);
#define GLK_POINT (glk_sched_point ? glk_sched_point() : (void)0),
#define GLK_FAILS(p, o)                                                                  \
	(glk_sched_fails ? glk_sched_fails() : false)                                    \
		? (*(o) = atomic_load_explicit((p), memory_order_relaxed), false)        \
		:
#else
#define GLK_POINT
#define GLK_FAILS(p, o)
#endif

#define glk_atomic(T) _Atomic(T)
#define glk_plain(T)  T
#define glk_get(v)    (v)
#define glk_set(v, x) ((v) = (x))

#define glk_load_relaxed(p) (GLK_POINT atomic_load_explicit((p), memory_order_relaxed))
#define glk_load_acquire(p) (GLK_POINT atomic_load_explicit((p), memory_order_acquire))
#define glk_store_relaxed(p, v)                                                          \
	(GLK_POINT atomic_store_explicit((p), (v), memory_order_relaxed))
#define glk_store_release(p, v)                                                          \
	(GLK_POINT atomic_store_explicit((p), (v), memory_order_release))
#define glk_xchg_acq_rel(p, v)                                                           \
	(GLK_POINT atomic_exchange_explicit((p), (v), memory_order_acq_rel))
#define glk_load_seq_cst(p) (GLK_POINT atomic_load_explicit((p), memory_order_seq_cst))
#define glk_xchg_seq_cst(p, v)                                                           \
	(GLK_POINT atomic_exchange_explicit((p), (v), memory_order_seq_cst))
#define glk_add_seq_cst(p, v)                                                            \
	(GLK_POINT atomic_fetch_add_explicit((p), (v), memory_order_seq_cst))
#define glk_add_relaxed(p, v)                                                            \
	(GLK_POINT atomic_fetch_add_explicit((p), (v), memory_order_relaxed))
#define glk_sub_relaxed(p, v)                                                            \
	(GLK_POINT atomic_fetch_sub_explicit((p), (v), memory_order_relaxed))
#define glk_or_relaxed(p, v)                                                             \
	(GLK_POINT atomic_fetch_or_explicit((p), (v), memory_order_relaxed))
#define glk_add_acq_rel(p, v)                                                            \
	(GLK_POINT atomic_fetch_add_explicit((p), (v), memory_order_acq_rel))
#define glk_sub_acq_rel(p, v)                                                            \
	(GLK_POINT atomic_fetch_sub_explicit((p), (v), memory_order_acq_rel))
#define glk_cas_weak_acquire(p, o, n)                                                    \
	(GLK_POINT GLK_FAILS(p, o) atomic_compare_exchange_weak_explicit(                \
		(p), (o), (n), memory_order_acquire, memory_order_acquire))
#define glk_cas_weak_release(p, o, n)                                                    \
	(GLK_POINT GLK_FAILS(p, o) atomic_compare_exchange_weak_explicit(                \
		(p), (o), (n), memory_order_release, memory_order_relaxed))
#define glk_cas_weak_relaxed(p, o, n)                                                    \
	(GLK_POINT GLK_FAILS(p, o) atomic_compare_exchange_weak_explicit(                \
		(p), (o), (n), memory_order_relaxed, memory_order_relaxed))
#define glk_cas_seq_cst(p, o, n)                                                         \
	(GLK_POINT atomic_compare_exchange_strong_explicit(                              \
		(p), (o), (n), memory_order_seq_cst, memory_order_seq_cst))
#define glk_cas_acq_rel(p, o, n)                                                         \
	(GLK_POINT atomic_compare_exchange_strong_explicit(                              \
		(p), (o), (n), memory_order_acq_rel, memory_order_acquire))

#if defined(__x86_64__) && !defined(GLK_SCHED) && !defined(__SANITIZE_THREAD__)
#define glk_add_own(p, v)                                                                \
	__asm__("addq %1, %0" : "+m"(*(uint64_t *)(p)) : "er"((uint64_t)(v)))
#else
#define glk_add_own(p, v) glk_store_relaxed((p), glk_load_relaxed(p) + (v))
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lowest byte is the first");
#define glk_store_byte(p, i, v)                                                          \
	(GLK_POINT __atomic_store_n((uint8_t *)(p) + (i), (uint8_t)(v), __ATOMIC_RELAXED))

#define glk_peek_relaxed(p)    (GLK_POINT __atomic_load_n((p), __ATOMIC_RELAXED))
#define glk_peek_acquire(p)    (GLK_POINT __atomic_load_n((p), __ATOMIC_ACQUIRE))
#define glk_poke_relaxed(p, v) (GLK_POINT __atomic_store_n((p), (v), __ATOMIC_RELAXED))
#define glk_poke_release(p, v) (GLK_POINT __atomic_store_n((p), (v), __ATOMIC_RELEASE))
#endif

#endif
